"""
What an S3 store promises is tried: each promise that a store breaks is named, and nothing is published or cleaned there.

The stores are buckets of the tests' server that break one promise each (`tests/cluster/s3_broken.py`).
"""

import uuid
from dataclasses import replace

import pytest

from compactor.cli.commands.setup import doctor
from compactor.engine.staging.objects import ObjectStaging
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.roles.cleaner.trash_in_place import TrashInPlace
from compactor.settings.stores import S3
from compactor.storage.base import Promises
from compactor.storage.location import join
from compactor.storage.registry import configure, configured, storage_for
from compactor.storage.s3_store import promises
from tests.cluster import s3_broken


@pytest.fixture
def place(s3, request):
    """An empty directory in a bucket of this name, whose promises weren't tried yet."""
    bucket = request.param
    configure(replace(configured(), s3=S3(**s3.settings)))
    s3.bucket(bucket)
    name = f"k={uuid.uuid4().hex} ä%2F+"  # as a partition's directory may be called
    s3.client.put_object(Bucket=bucket, Key=f"{name}/", Body=b"")
    location = f"s3a://{bucket}/{name}"
    storage_for(location)._driver._promises = None
    yield location
    for key in s3.keys(bucket):
        if key.startswith(f"{name}/"):
            s3.client.delete_object(Bucket=bucket, Key=key)


def names(sentences):
    return [sentence.split(" (", 1)[0] for sentence in sentences]


@pytest.mark.parametrize("place", s3_broken.BROKEN, indirect=True)
def test_a_broken_promise_is_named_and_refused(place):
    """By `promises`, by `doctor`, and before anything is staged or removed."""
    promise, storage = place.split("/")[2], storage_for(place)
    broken = storage.uploads.promises(place).broken
    assert promise in names(broken)
    (found,) = doctor.store(place)
    assert found.standing is doctor.Standing.FAILED
    assert promise in found.sentence

    def never():
        raise AssertionError

    for use in (
        ObjectStaging(storage, storage.uploads, place, 7, "a").make,
        TrashInPlace(storage, storage.uploads, place, 7, never).open,
    ):
        with pytest.raises(RefusedError, match=promise) as caught:
            use()
        assert caught.value.reason is Reason.UNSUPPORTED_STORE


@pytest.mark.parametrize(
    ("place", "missed"),
    [("warehouse", ()), (s3_broken.WHOLE_KEYS, ()), *((name, (name,)) for name in s3_broken.MISSED)],
    indirect=["place"],
)
def test_a_store_that_keeps_all_is_tried_once(place, missed, s3, monkeypatch):
    """Nothing is left of the trial; a listing of uploads that shows few of them breaks no promise."""
    storage, bucket = storage_for(place), place.split("/")[2]
    tried = []
    whole = promises._tried_once
    monkeypatch.setattr(promises, "_tried_once", lambda *asked: tried.append(1) or whole(*asked))
    for _ in range(2):
        assert storage.uploads.promises(place) == Promises(missed=missed)
    assert len(tried) == 1
    directory = f"{place.rpartition('/')[2]}/"
    assert [key for key in s3.keys(bucket) if key.startswith(directory)] == [directory]
    assert s3.uploads(bucket) == []
    (found,) = doctor.store(place)
    assert (found.standing is doctor.Standing.WARNING) is bool(missed)


@pytest.mark.parametrize("place", ["warehouse"], indirect=True)
def test_a_trial_that_another_cleaner_cut_off_is_repeated(place, s3, monkeypatch):
    """Its directory looks like a removal that was cut off, and the Cleaner of another daemon finishes those."""
    storage = storage_for(place)
    whole, cut = promises._Trial.uploads, []

    def uploads(trial):
        if not cut:
            cut.append(trial._prefix)
            storage.delete_tree(join("s3a://warehouse", trial._prefix.rstrip("/")))
        whole(trial)

    monkeypatch.setattr(promises._Trial, "uploads", uploads)
    assert storage.uploads.promises(place) == Promises()
    assert cut
