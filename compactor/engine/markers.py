"""
The small files that stand beside the data of a published directory, and what is in them.

Source: docs/layout.md; Hive's OrcAcidVersion, AcidUtils.MetaDataFile.
"""

from collections.abc import Mapping

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.names import METADATA_FILE, METADATA_FILE_CONTENT, ORIGINALS_FILE, VERSION_FILE, VERSION_FILE_CONTENT, DirKind
from compactor.acid.originals import encode_originals
from compactor.planning.document import CompactionPlan, Role


def markers_of(plan: CompactionPlan, directory: str) -> Mapping[str, bytes]:
    """
    Name and content of each marker of one output directory.

    The version file always, so that an empty directory is seen on every store. On 3.1 a base also says that it was compacted. A base of original files lists
    them: they are removed only where such a list names them.
    """
    markers = {VERSION_FILE: VERSION_FILE_CONTENT}
    if next(output.kind for output in plan.outputs if output.name == directory) is not DirKind.BASE:
        return markers
    if plan.layout is LayoutVersion.HIVE_3:
        markers[METADATA_FILE] = METADATA_FILE_CONTENT
    originals = [FileEntry(file.path, file.length, file.mtime_ms, file.version) for file in plan.inputs if file.role is Role.ORIGINAL]
    if originals:
        markers[ORIGINALS_FILE] = encode_originals(originals)
    return markers
