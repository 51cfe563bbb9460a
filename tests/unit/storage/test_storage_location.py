"""Locations: what is stripped, what is refused, what is joined."""

import pytest

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.location import LocationParts, is_at_or_inside, join, local_path, name, parent, place_of, split
from compactor.storage.registry import storage_for


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:/x/y", "/x/y"),
        ("file:///x/y", "/x/y"),
        ("FILE:/x/y/", "/x/y"),
        ("/x/y", "/x/y"),
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
        ("hdfs://nn:8020/t/k=c%2Fd/", LocationParts("hdfs", "nn:8020", "/t/k=c%2Fd")),
        ("HDFS://ns1", LocationParts("hdfs", "ns1", "/")),
        ("hdfs:///t", LocationParts("hdfs", "", "/t")),
        ("/t/k=12:30", LocationParts("", "", "/t/k=12:30")),
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


@pytest.mark.parametrize(
    "path", ["/x/./y", "/x/../y", "/..", "/x//y", "/x/y//", "/x/\x07y", "/x/y\n", "/x/\x7f", "/x/\x9b"]
)
@pytest.mark.parametrize("store", ["", "file:", "hdfs://nn:8020", "s3a://bucket", "abfs://c@a"])
def test_a_place_has_one_spelling(store, path):
    """Dots, empty parts and control characters are refused, of whichever store."""
    with pytest.raises(RefusedError) as caught:
        split(store + path)
    assert caught.value.reason is Reason.UNSAFE_LOCATION


@pytest.mark.parametrize("part", ["", ".", "..", "/a", "a//b", "a/./b", "a/../b", "a//"])
def test_a_part_adds_no_second_spelling(part):
    """What is joined to a location lies below it, and is spelled as a listing spells it."""
    with pytest.raises(ValueError, match="isn't a path below"):
        join("/x", part)


def test_places_are_compared_by_parts():
    """
    A directory isn't inside another because its name begins with it; one bucket has one name under S3's three schemes.
    """
    inside = [("/w/t/p=1", "/w/t"), ("file:/w/t", "/w/t/"), ("s3a://b/w/t", "s3://b/w"), ("hdfs://nn/w", "hdfs://NN/")]
    outside = [("/w/tt", "/w/t"), ("s3://b2/w/t", "s3://b/w"), ("hdfs://nn1/w/t", "hdfs://nn2/w"), ("/w", "/w/t")]
    assert all(is_at_or_inside(place_of(place), place_of(outer)) for place, outer in inside)
    assert not any(is_at_or_inside(place_of(place), place_of(outer)) for place, outer in outside)
    assert is_at_or_inside(place_of("hdfs://nn1:8020/w/t", any_host=True), place_of("hdfs://cluster/w", any_host=True))
    assert not is_at_or_inside(place_of("s3://b2/w/t", any_host=True), place_of("s3://b/w", any_host=True))
