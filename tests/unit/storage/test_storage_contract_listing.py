"""
The contract of every driver (see conftest.py): what looking promises: listings, names, and what is seen while others
write and remove.
"""

from dataclasses import replace

import pytest

from compactor.acid.listing import FileEntry
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.location import join, parent
from tests.unit.storage.contract import meanwhile, put, tree


def test_listing_is_recursive_with_lengths_and_empty_directories(place):
    """Every file with its relative path and length, and every directory, empty ones too."""
    storage, top = place
    tree(
        storage,
        top,
        "delta_1_1/bucket_00000",
        "delta_1_1/_orc_acid_version",
        "base_5/",
        "sub/deep/000000_0",
        "000000_0",
    )
    listing = storage.list_tree(top)
    assert [(f.path, f.length) for f in listing.files] == [
        ("000000_0", 8),
        ("delta_1_1/_orc_acid_version", 27),
        ("delta_1_1/bucket_00000", 22),
        ("sub/deep/000000_0", 17),
    ]
    assert listing.directories == ("base_5", "delta_1_1", "sub", "sub/deep")


def test_listing_stays_out_of_hidden_directories_of_the_top_level(place):
    """Hidden top-level directories are named, their contents aren't looked at; hidden ones further down are."""
    storage, top = place
    tree(storage, top, ".hive-staging_1/delta_1_1/x", "_tmp_2/y", "delta_1_1/_hidden/z")
    listing = storage.list_tree(top)
    assert [f.path for f in listing.files] == ["delta_1_1/_hidden/z"]
    assert listing.directories == (".hive-staging_1", "_tmp_2", "delta_1_1", "delta_1_1/_hidden")


def test_listing_reads_formats_of_bases(place):
    """`dataFormat` of each base's metadata file is part of the listing; other directories' are not."""
    storage, top = place
    tree(storage, top, "base_5/", "base_7/", "delta_9_9/")
    put(storage, join(top, "base_5", "_metadata_acid"), b'{"thisFileVersion":"0","dataFormat":"truncated"}')
    put(storage, join(top, "base_7", "_metadata_acid"), b'{"thisFileVersion":"0","dataFormat":"compacted"}')
    put(storage, join(top, "delta_9_9", "_metadata_acid"), b"nothing that is read")
    assert storage.list_tree(top).formats == (("base_5", "truncated"), ("base_7", "compacted"))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"dataFormat": 5}', b'{"dataFormat"', b"\xff\xfe", b"x" * 70_000]
)
def test_malformed_metadata_is_refused(place, content):
    """A `_metadata_acid` that isn't one is refused with its path; at most a small piece of it is ever read."""
    storage, top = place
    tree(storage, top, "base_5/")
    put(storage, join(top, "base_5", "_metadata_acid"), content)
    with pytest.raises(RefusedError, match="_metadata_acid") as caught:
        storage.list_tree(top)
    assert caught.value.reason is Reason.CORRUPT_FILE


def test_listing_of_a_missing_directory_is_refused(place):
    """A location that isn't there is refused in one line, and so is a file in its place."""
    storage, top = place
    put(storage, join(top, "file"))
    for missing in ("nowhere", "file"):
        with pytest.raises(RefusedError, match=missing) as caught:
            storage.list_tree(join(top, missing))
        assert caught.value.reason is Reason.LOCATION_MISSING


@pytest.mark.parametrize(
    "name", ["k=a b", "k=c%2Fd", "k=ü雪", "k=e%3Df%25%3A%23%22%27", "k=12:30", "__HIVE_DEFAULT_PARTITION__"]
)
def test_partition_names_are_taken_literally(place, name):
    """
    Nothing is decoded: what Hive escaped stays escaped. A store that can't hold a name (a colon on HDFS, which Hive
    therefore escapes) says so.
    """
    storage, top = place
    try:
        tree(storage, top, f"{name}/delta_1_1/bucket_00000")
    except RefusedError as error:
        assert (error.reason, ":" in name) == (Reason.UNKNOWN_NAME, True)  # noqa: PT017 - only some stores refuse
        return
    assert [f.path for f in storage.list_tree(join(top, name)).files] == ["delta_1_1/bucket_00000"]


def test_stat(place):
    """What is there has a length and a time; what isn't has no entry."""
    storage, top = place
    tree(storage, top, "d/f")
    entry = storage.stat(join(top, "d/f"))
    assert entry == FileEntry(join(top, "d/f"), 3, entry.mtime_ms, entry.version)
    assert entry.mtime_ms > 1_500_000_000_000
    assert storage.stat(join(top, "d")).length == 0
    assert storage.stat(join(top, "nothing")) is None
    assert [storage.exists(join(top, p)) for p in ("d", "d/f", "nothing")] == [True, True, False]


def test_listing_and_looking_agree(place):
    """
    A file has the same length, time and version however it is asked for: what is to be removed is listed first and
    looked at later.
    """
    storage, top = place
    tree(storage, top, "f", "d/g")
    for path in ("f", "d/g"):
        (listed,) = (file for file in storage.list_tree(top).files if file.path == path)
        assert storage.stat(join(top, path)) == replace(listed, path=join(top, path))


def test_directories_are_named_whatever_lies_beside_them(place):
    """Hidden ones too, nothing from below, no files; a place that is gone has none."""
    storage, top = place
    for name in ("b", ".a"):
        storage.mkdir(join(top, name))
    storage.mkdir(join(top, "b", "inside"))
    storage.write_small(join(top, "file"), b"x")
    assert storage.directories(top) == (".a", "b")
    assert storage.directories(join(top, "gone")) == ()


def test_the_parent_of_a_location_is_its_directory(place):
    """What is joined is taken apart again, whatever the scheme."""
    storage, top = place
    tree(storage, top, "d/f")
    assert storage.exists(parent(join(top, "d/f")))
    assert storage.directories(parent(join(top, "d"))) == ("d",)


def test_deleting_while_listing_is_no_error(place):
    """What vanishes on the way is left out; what stays is always there."""
    storage, top = place
    tree(storage, top, "kept/file", *(f"gone{i}/{j}" for i in range(4) for j in range(2)))

    def delete() -> None:
        for i in range(4):
            storage.delete_tree(join(top, f"gone{i}"))

    for listing in meanwhile(delete, lambda: storage.list_tree(top)):
        assert "kept/file" in {file.path for file in listing.files}
        assert "kept" in listing.directories
    assert [file.path for file in listing.files] == ["kept/file"]
