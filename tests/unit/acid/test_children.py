"""What lies in a partition: which files hold rows, and in which order original files count theirs."""

import pytest

from compactor.acid.children import children_of, data_files, side_files, stray_files
from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing


def listing(*paths):
    return Listing(
        tuple(FileEntry(path, 10) for path in paths),
        tuple({path.rpartition("/")[0] for path in paths if "/" in path}),
        (),
    )


def names(files):
    return [file.name for file in files]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("000000_0", "000000_0_copy_1"),
        ("a!/000000_0", "a b/000000_0"),  # a space is %20 in a URI, and a percent sign comes after an exclamation mark
        ("a$/000000_0", 'a"/000000_0'),
        ("a#/000000_0", "a+/000000_0"),
        ("aé/000000_0", "a€/000000_0"),  # what isn't ASCII stays as it is
        ("a😀/000000_0", "aｱ/000000_0"),  # by UTF-16 code unit: surrogates come before the last of the plane
    ],
)
def test_original_files_come_in_the_order_of_their_uris(earlier, later):
    """
    Their rows are numbered in this order, so it must be Java's: illegal characters percent-encoded, by UTF-16 code
    unit.
    """
    for paths in ((earlier, later), (later, earlier)):
        assert [entry.path for entry in children_of(listing(*paths), LayoutVersion.HIVE_4).originals] == [
            earlier,
            later,
        ]


def test_files_of_a_delta():
    """
    Bucket files and loaded ones hold rows, side files say how much of them counts, hidden ones are passed over,
    anything else is a stranger.
    """
    files = (
        "bucket_00000",
        "bucket_00001_0",
        "bucket_00001_0_flush_length",
        "000002_0",
        "_orc_acid_version",
        "stranger",
    )
    (delta,) = children_of(listing(*(f"delta_0000001_0000001/{name}" for name in files)), LayoutVersion.HIVE_4).acid
    assert names(data_files(delta, insert_only=False)) == ["000002_0", "bucket_00000", "bucket_00001_0"]
    assert names(side_files(delta)) == ["bucket_00001_0_flush_length"]
    assert names(stray_files(delta, insert_only=False)) == ["stranger"]
    assert names(data_files(delta, insert_only=True)) == sorted(set(files) - {"_orc_acid_version"})
