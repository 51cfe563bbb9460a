"""A folder of this machine copied to a location, and back: tables are built and judged here, and compacted there."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compactor.acid.names import is_hidden
from compactor.storage.location import join
from compactor.storage.registry import storage_for


def put(folder: Path, location: str) -> None:
    """Copy everything in a folder into a directory that is there."""
    storage = storage_for(location)
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            storage.mkdir(join(location, str(path.relative_to(folder))))
    files = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(16) as pool:
        list(
            pool.map(
                lambda path: storage.write_small(join(location, str(path.relative_to(folder))), path.read_bytes()),
                files,
            )
        )


def fetch(location: str, folder: Path) -> None:
    """Make a folder what a directory is now; hidden directories at the top, staging and trash, are left out."""
    storage = storage_for(location)
    shutil.rmtree(folder)
    folder.mkdir()
    listing = storage.list_tree(location)
    for directory in listing.directories:
        if not is_hidden(directory):
            (folder / directory).mkdir(parents=True, exist_ok=True)
    for entry in listing.files:
        (folder / entry.path).write_bytes(storage.read_small(join(location, entry.path), 1 << 30))
