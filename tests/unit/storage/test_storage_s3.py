"""What only the S3 driver does: parts, markers, conditions, and errors in one line."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from compactor.errors import CorruptFileError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import S3
from compactor.storage.location import join
from compactor.storage.registry import configure, configured, storage_for

MIB = 1 << 20


@pytest.fixture
def storage(s3_directory):
    return storage_for(s3_directory)


def test_ranges_are_copied_by_the_store(storage, s3_directory):
    """Between own bytes, from two objects; what passes through us is what own bytes need to become a part."""
    a, b = b"ORC" + os.urandom(14 * MIB), os.urandom(8 * MIB)
    for name, data in (("a", a), ("b", b)):
        storage.write_small(join(s3_directory, name), data)
    first, second = (storage.open_read(join(s3_directory, name)) for name in "ab")
    before = storage._driver.client.traffic.moved
    with storage.create(join(s3_directory, "new")) as writer:
        writer.write(b"ORC")
        writer.copy_from(first, 3, 7 * MIB)
        writer.copy_from(first, 3 + 7 * MIB, 7 * MIB)
        writer.copy_from(second, 1, 6 * MIB)
        writer.write(b"recoded")
        writer.copy_from(second, 6 * MIB, 2 * MIB)
        writer.write(b"tail")
    moved = storage._driver.client.traffic.moved - before
    wanted = a + b[1 : 1 + 6 * MIB] + b"recoded" + b[6 * MIB :] + b"tail"
    with storage.open_read(join(s3_directory, "new")) as reader:
        assert reader.size == len(wanted)
        assert reader.read_at(0, reader.size) == wanted
    assert moved.received == 2 * MIB + 3 + len(
        b"recoded"
    )  # what was borrowed, and two looks whether own bytes stand in the source too
    assert moved.sent == 2 * MIB + len(b"recodedtail")
    assert moved.copied == len(a) + 6 * MIB


def test_a_source_that_was_replaced_is_noticed(storage, s3_directory):
    """By reading and by copying: never half of one and half of the other."""
    place = join(s3_directory, "a")
    storage.write_small(place, bytes(6 * MIB))
    reader = storage.open_read(place)
    storage.delete_file(place)
    storage.write_small(place, bytes([1]) * (6 * MIB))
    with pytest.raises(CorruptFileError, match="replaced"):
        reader.read_at(0, 10)

    def copy():
        with storage.create(join(s3_directory, "new")) as writer:
            writer.copy_from(reader, 0, 6 * MIB)
            writer.write(b"tail")

    with pytest.raises(CorruptFileError, match="replaced"):
        copy()
    assert storage.uploads.contents(s3_directory).uploads == ()


@pytest.mark.parametrize("marker", ["d/", "d_$folder$"])
def test_markers_of_every_kind_are_directories(storage, s3, s3_directory, marker):
    """As S3A and as s3n and EMR leave them; never files."""
    prefix = s3_directory.removeprefix("s3a://warehouse/")
    s3.client.put_object(Bucket="warehouse", Key=f"{prefix}/{marker}", Body=b"")
    listing = storage.list_tree(s3_directory)
    assert (listing.files, listing.directories) == ((), ("d",))


def test_a_directory_stays_one_when_its_last_file_goes(storage, s3, s3_directory):
    """Its marker may never have been there: a writer of files needs none."""
    prefix = s3_directory.removeprefix("s3a://warehouse/")
    s3.client.put_object(Bucket="warehouse", Key=f"{prefix}/p=1/f", Body=b"x")
    storage.delete_file(join(s3_directory, "p=1/f"))
    assert storage.list_tree(join(s3_directory, "p=1")).files == ()


def test_more_than_a_page_of_objects(storage, s3, s3_directory):
    """Listed in pages, removed in batches."""
    prefix = s3_directory.removeprefix("s3a://warehouse/")
    for number in range(1005):
        s3.client.put_object(Bucket="warehouse", Key=f"{prefix}/d/{number:04d}", Body=b"")
    assert len(storage.list_tree(s3_directory).files) == 1005
    storage.delete_tree(join(s3_directory, "d"))
    assert storage.list_tree(s3_directory).files == ()


def test_a_key_that_no_file_system_could_show_is_refused(storage, s3, s3_directory):
    """An empty part in its name."""
    prefix = s3_directory.removeprefix("s3a://warehouse/")
    s3.client.put_object(Bucket="warehouse", Key=f"{prefix}/d//f", Body=b"")
    with pytest.raises(RefusedError, match="empty part"):
        storage.list_tree(s3_directory)


def test_schemes_are_one_store(s3_directory):
    """s3:, s3a: and s3n: name the same objects."""
    storage_for(s3_directory).write_small(join(s3_directory, "f"), b"x")
    for scheme in ("s3", "s3n"):
        location = s3_directory.replace("s3a:", f"{scheme}:")
        assert [file.path for file in storage_for(location).list_tree(location).files] == ["f"]


@pytest.mark.parametrize(
    ("location", "said", "reason"),
    [
        ("s3a://no-such-bucket/t", "NoSuchBucket", Reason.LOCATION_MISSING),
        ("s3a:/t", "names a bucket", Reason.UNSUPPORTED_STORE),
    ],
)
def test_what_is_wrong_is_said_in_one_line(s3_directory, location, said, reason):
    """With what to do about it."""
    with pytest.raises(RefusedError, match=said) as caught:
        storage_for(location).list_tree(location)
    assert caught.value.reason is reason
    assert "\n" not in str(caught.value)


def test_a_whole_bucket_is_never_removed(storage):
    """Whatever asks for it."""
    with pytest.raises(RefusedError, match="whole bucket"):
        storage.delete_tree("s3a://warehouse/")


@pytest.fixture
def elsewhere():
    """Lets a test reach another endpoint; what was configured is back afterwards."""
    before = configured()
    yield lambda **settings: configure(
        replace(before, s3=S3(region="us-east-1", path_style=True, attempts=1, **settings))
    )
    configure(before)


def test_a_store_that_does_not_answer(elsewhere, tmp_path):
    """It may again later: nothing is refused for it."""
    credentials = tmp_path / "credentials"
    credentials.write_text("[default]\naws_access_key_id = visible\naws_secret_access_key = hidden-from-all\n")
    elsewhere(endpoint="http://127.0.0.1:1", credentials_file=credentials)
    with pytest.raises(UnreachableError, match="EndpointConnectionError") as caught:
        storage_for("s3a://b/t").list_tree("s3a://b/t")
    assert "hidden" not in str(caught.value)


def test_no_credentials(elsewhere, monkeypatch, tmp_path):
    """Said as such, with where they are looked for."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere(endpoint="http://127.0.0.1:1")
    with pytest.raises(RefusedError, match="NoCredentialsError") as caught:
        storage_for("s3a://b/t").list_tree("s3a://b/t")
    assert caught.value.reason is Reason.PERMISSION_DENIED


@pytest.mark.parametrize(("scheme", "said"), [("gs", "gcsfs"), ("abfs", "adlfs")])
def test_a_store_whose_package_is_missing(scheme, said):
    """Named in one line."""
    with pytest.raises(RefusedError, match=said) as caught:
        storage_for(f"{scheme}://bucket@account.host/t")
    assert caught.value.reason is Reason.UNSUPPORTED_STORE


def test_without_botocore_s3_is_refused():
    """Everything else works; a location there names the package."""
    program = "import sys; sys.modules['botocore'] = None; from compactor.storage.registry import storage_for; storage_for('/tmp'); storage_for('s3a://b/t')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .endswith("locations on S3 need the package botocore: pip install 'compactor[s3]'")
    )
