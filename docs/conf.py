"""
The pages as a site: which files belong to it, and how Markdown is read.

Sphinx takes the whole project for its source, so that links between pages, and from pages to files, are the ones that
work in the repository too. A link to a file that is no page becomes a download.
"""

project = "compactor"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "changelog.d/README.md",
    "docs/**.md",
]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "compactor"
html_show_copyright = False
html_copy_source = False
html_use_index = False
