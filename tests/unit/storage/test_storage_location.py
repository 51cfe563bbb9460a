"""Locations: what is stripped, what is refused, what is joined."""

import pytest

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.local import LocalStorage
from compactor.storage.location import Parts, join, local_path, name, parent, split
from compactor.storage.registry import storage_for


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/x/y", "/x/y"),
        ("file:///x/y", "/x/y"),
        ("FILE:/x/y/", "/x/y"),
        ("/x/y", "/x/y"),
        ("//x/y//", "/x/y"),
        ("/", "/"),
        ("file:/t/k=c%2Fd", "/t/k=c%2Fd"),
        ("/t/k=12:30", "/t/k=12:30"),
        ("file:/t/k=ü雪", "/t/k=ü雪"),
        ("file:/t/a#b?c", "/t/a#b?c"),
    ],
)
def test_only_the_scheme_is_stripped(location, path):
    """Nothing is decoded and nothing is cut off at `#`, `?` or `:`."""
    assert local_path(location) == path
    assert isinstance(storage_for(location), LocalStorage)


@pytest.mark.parametrize("location", ["ftp://host/x", "file://host/x", "x/y", "", "file:x", "hdfs:x", "c:/x"])
def test_other_stores_and_relative_paths_are_refused(location):
    """One line that names the location."""
    with pytest.raises(RefusedError, match=r"location ") as caught:
        storage_for(location)
    assert caught.value.reason is Reason.UNSUPPORTED_STORE


@pytest.mark.parametrize(
    ("location", "parts"),
    [
        ("hdfs://nn:8020/t/k=c%2Fd/", Parts("hdfs", "nn:8020", "/t/k=c%2Fd")),
        ("HDFS://ns1", Parts("hdfs", "ns1", "/")),
        ("hdfs:///t", Parts("hdfs", "", "/t")),
        ("/t/k=12:30", Parts("", "", "/t/k=12:30")),
    ],
)
def test_a_location_taken_apart(location, parts):
    """Scheme in lower case, authority, absolute path; nothing is decoded."""
    assert split(location) == parts


def test_join_parent_name():
    """Parts are put below a location, whose scheme stays."""
    assert join("file:/t/", "k=1", "base_5/bucket_00000") == "file:/t/k=1/base_5/bucket_00000"
    assert parent("file:/t/k=1/") == "file:/t"
    assert parent("/t") == "/"
    assert parent("hdfs://nn:8020/t") == parent("hdfs://nn:8020/") == "hdfs://nn:8020/"
    assert name("file:/t/k=1/") == "k=1"


@pytest.mark.parametrize("part", ["", "/x", "..", "a/../../b"])
def test_join_stays_below(part):
    """No part may lead out of the directory."""
    with pytest.raises(ValueError, match="isn't a path below"):
        join("/t", part)
