"""The manual pages, one for each command; `python -m docs.man` writes them anew."""
