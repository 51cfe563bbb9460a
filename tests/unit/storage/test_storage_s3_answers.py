"""
What the S3 driver makes of answers that Amazon's gives and moto's server doesn't: conflicts, requests to slow down,
errors inside 200, answers that are lost.
"""

import io
from dataclasses import replace

import pytest
from botocore.awsrequest import AWSResponse
from botocore.httpsession import URLLib3Session

from compactor.errors import OutcomeUnknownError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import S3
from compactor.storage.location import join
from compactor.storage.registry import configure, configured, storage_for
from compactor.storage.s3_store import client
from compactor.storage.s3_store.client import S3ConflictError

CONFLICT = (409, "ConditionalRequestConflict")
SLOW_DOWN = (503, "SlowDown")
IN_200 = (200, "InternalError")
MIB = 1 << 20


class Raw(io.BytesIO):
    """A body as urllib3 hands it out."""

    def stream(self, amt=1024, **_):
        while chunk := self.read(amt):
            yield chunk


def answer(url, status, code):
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n   \n<Error><Code>{code}</Code><Message>said by a test</Message></Error>'.encode()
    return AWSResponse(url, status, {"content-type": "application/xml", "content-length": str(len(body))}, Raw(body))


class Answers:
    """
    Answers some requests in the server's place. `lost`: the server gets them, and its answer is replaced; `gone`: by
    the conflict the upload is taken away.
    """

    def __init__(self, server, client):
        self.server, self.client = server, client
        self.sent: dict[str, int] = {}
        self.hooks = []

    def give(self, operation, *answers, lost=False, gone=False, instead=lambda: None):
        remaining = list(answers)

        def before_send(request, **_):
            self.sent[operation] = self.sent.get(operation, 0) + 1
            if not remaining:
                return None
            instead()
            if lost:
                URLLib3Session().send(request)
            if gone:
                for key, upload in self.server.uploads("warehouse"):
                    self.server.client.abort_multipart_upload(Bucket="warehouse", Key=key, UploadId=upload)
            return answer(request.url, *remaining.pop(0))

        event = f"before-send.s3.{operation}"
        self.client.meta.events.register(event, before_send)
        self.hooks.append((event, before_send))

    def end(self):
        for event, hook in self.hooks:
            self.client.meta.events.unregister(event, hook)


@pytest.fixture
def storage(s3, s3_directory, monkeypatch):
    """Two tries of botocore's own; no pauses of ours to speak of."""
    monkeypatch.setattr(client, "_PAUSES", (0.001, 0.001))
    before = configured()
    configure(replace(before, s3=S3(**s3.settings, attempts=2)))
    yield storage_for(s3_directory)
    configure(before)


@pytest.fixture
def answers(s3, storage):
    made = Answers(s3, storage._driver.client.call)
    yield made
    made.end()


@pytest.fixture
def prepared(storage, s3_directory, request):
    """A file that is ready to appear as `base_5/f`; with other content where the test's parameter says so."""
    storage.mkdir(join(s3_directory, ".staging"))
    storage.write_small(join(s3_directory, ".staging/f"), getattr(request, "param", b"content"))
    made = storage.uploads.prepare(
        join(s3_directory, ".staging/f"),
        join(s3_directory, "base_5/f"),
        "7-a",
        join(s3_directory, ".staging/noted"),
    )
    yield made
    made.abort()


def taken_by_somebody(s3, s3_directory, name):
    return lambda: s3.client.put_object(
        Bucket="warehouse", Key=f"{s3_directory.removeprefix('s3a://warehouse/')}/{name}", Body=b"another's"
    )


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_a_conflict_is_tried_again(storage, s3_directory, answers, code):
    """Amazon says so: nothing was made. Files and directories."""
    answers.give("PutObject", (409, code), (409, code))
    storage.write_small(join(s3_directory, "f"), b"x")
    assert answers.sent["PutObject"] == 3
    answers.end()
    answers.give("PutObject", (409, code))
    storage.mkdir(join(s3_directory, "d"))
    assert storage.read_small(join(s3_directory, "f")) == b"x"
    assert storage.list_tree(s3_directory).directories == ("d",)


def test_a_conflict_that_does_not_end_may_be_tried_later(storage, s3_directory, answers):
    """After three tries, with nothing there: not refused, and not taken for a file that is there."""
    answers.give("PutObject", *[CONFLICT] * 9)
    with pytest.raises(UnreachableError, match="ConditionalRequestConflict"):
        storage.write_small(join(s3_directory, "f"), b"x")
    assert answers.sent["PutObject"] == 3
    assert not storage.exists(join(s3_directory, "f"))


def test_what_appeared_by_the_other_counts_as_there(storage, s3, s3_directory, answers):
    """A conflict, and then a look shows somebody else's object: as for 412, and it stays."""
    answers.give("PutObject", CONFLICT, instead=taken_by_somebody(s3, s3_directory, "f"))
    with pytest.raises(FileExistsError):
        storage.write_small(join(s3_directory, "f"), b"x")
    assert storage.read_small(join(s3_directory, "f")) == b"another's"


@pytest.mark.parametrize("lost", [(500, "InternalError"), SLOW_DOWN, IN_200])
def test_our_own_object_is_no_reason_to_refuse(storage, s3_directory, answers, lost):
    """
    The answer of a try that succeeded is lost, so botocore tries again and is told 412: what is there is ours, and
    counts as written.
    """
    answers.give("PutObject", lost, lost=True)
    storage.mkdir(join(s3_directory, "d"))
    assert answers.sent["PutObject"] == 2
    answers.end()
    answers.give("PutObject", lost, lost=True)
    storage.write_small(join(s3_directory, "d/f"), b"x")
    assert storage.read_small(join(s3_directory, "d/f")) == b"x"


def test_somebody_elses_object_is(storage, s3, s3_directory, answers):
    """The same, but what is there is of another request."""
    answers.give("PutObject", SLOW_DOWN, instead=taken_by_somebody(s3, s3_directory, "f"))
    with pytest.raises(FileExistsError):
        storage.write_small(join(s3_directory, "f"), b"x")


@pytest.mark.parametrize("gone", [True, False])
def test_after_a_conflict_an_upload_is_made_anew(storage, s3_directory, prepared, answers, gone):
    """
    Amazon takes the upload away by it, others may not: either way it is made again from its source, says whose it is,
    and no upload is left.
    """
    answers.give("CompleteMultipartUpload", CONFLICT, gone=gone)
    prepared.complete()
    assert storage.read_small(prepared.target) == b"content"
    assert storage.uploads.owner_of(prepared.target) == "7-a"
    assert storage.uploads.contents(s3_directory).uploads == ()


@pytest.mark.parametrize("prepared", [b"content", b""], indirect=True)
def test_whoever_was_fenced_off_makes_nothing_anew(storage, s3_directory, prepared, answers):
    """
    The conflict was with those who cleared up: the source is gone with the staging directory, so nothing appears, and
    no upload stays. Of an empty file no byte has to be copied, but its source must be there all the same.
    """

    def cleared_up():
        storage.delete_tree(join(s3_directory, ".staging"))
        storage.delete_tree(join(s3_directory, "base_5"))

    answers.give("CompleteMultipartUpload", CONFLICT, instead=cleared_up)
    with pytest.raises(FileNotFoundError):
        prepared.complete()
    prepared.abort()
    assert storage.uploads.contents(s3_directory).uploads == ()
    assert not storage.exists(prepared.target)


def test_an_upload_of_our_own_bytes_is_not_made_anew(storage, s3_directory, answers):
    """They are forgotten: it may be tried later, as a whole; nothing is left of it."""
    answers.give("CompleteMultipartUpload", CONFLICT, gone=True)

    def write():
        with storage.create(join(s3_directory, "f")) as writer:
            for _ in range(4):
                writer.write(bytes(8 * MIB))

    with pytest.raises(S3ConflictError, match="can't be made anew"):
        write()
    assert not storage.exists(join(s3_directory, "f"))
    assert storage.uploads.contents(s3_directory).uploads == ()


def test_an_error_inside_a_success_is_an_error(storage, s3_directory, prepared, answers):
    """
    200 with an error in its body: Amazon begins to answer before it is done. Tried again; if that doesn't help it isn't
    known whether it happened.
    """
    answers.give("CompleteMultipartUpload", IN_200)
    prepared.complete()
    assert answers.sent["CompleteMultipartUpload"] == 2
    assert storage.read_small(prepared.target) == b"content"


def test_an_error_inside_each_success_is_not_taken_for_one(storage, prepared, answers):
    """The outcome is unknown, and the object isn't there."""
    answers.give("CompleteMultipartUpload", IN_200, IN_200)
    with pytest.raises(OutcomeUnknownError, match="InternalError"):
        prepared.complete()
    assert storage.uploads.owner_of(prepared.target) is None


@pytest.mark.parametrize("lost", [(500, "InternalError"), SLOW_DOWN, IN_200])
def test_a_completion_whose_answers_are_lost_is_looked_up(storage, prepared, answers, lost):
    """It happened by the first try; the object says that it is this upload's."""
    answers.give("CompleteMultipartUpload", lost, lost, lost=True)
    prepared.complete()
    assert storage.uploads.owner_of(prepared.target) == "7-a"


@pytest.mark.parametrize("answered", [IN_200, SLOW_DOWN])
def test_a_part_that_could_not_be_copied_is_copied_again(storage, s3_directory, answers, answered):
    """An error inside a success counts as one: else its ETag would be missing, or the part."""
    storage.write_small(join(s3_directory, "a"), b"content")
    answers.give("UploadPartCopy", answered)
    storage.link_or_copy(join(s3_directory, "a"), join(s3_directory, "b"))
    assert answers.sent["UploadPartCopy"] == 2
    assert storage.read_small(join(s3_directory, "b")) == b"content"


@pytest.mark.parametrize("answered", [IN_200, SLOW_DOWN, (500, "InternalError")])
def test_a_part_that_can_not_be_copied_may_be_tried_later(storage, s3_directory, answers, answered):
    """Nothing appears, and no upload is left."""
    storage.write_small(join(s3_directory, "a"), b"content")
    answers.give("UploadPartCopy", answered, answered)
    with pytest.raises(UnreachableError, match=answered[1]):
        storage.link_or_copy(join(s3_directory, "a"), join(s3_directory, "b"))
    assert storage.uploads.contents(s3_directory).uploads == ()
    assert not storage.exists(join(s3_directory, "b"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("InternalError", (UnreachableError, None)),
        ("SlowDown", (UnreachableError, None)),
        ("RequestTimeTooSkewed", (UnreachableError, None)),
        ("AccessDenied", (RefusedError, Reason.PERMISSION_DENIED)),
    ],
)
def test_a_key_that_can_not_be_deleted_now(storage, s3_directory, monkeypatch, code, said):
    """One of a batch, told inside a success: whether it may be tried later is said by its code."""
    storage.write_small(join(s3_directory, "f"), b"x")
    monkeypatch.setattr(
        storage._driver.client.call, "delete_objects", lambda **_: {"Errors": [{"Key": "f", "Code": code}]}
    )
    with pytest.raises(said[0], match=code) as caught:
        storage.delete_file(join(s3_directory, "f"))
    assert getattr(caught.value, "reason", None) is said[1]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "RequestTimeTooSkewed"),
        (403, "RequestLimitExceeded"),
        (403, "ExpiredToken"),
        (400, "ExpiredToken"),
        (400, "RequestTimeout"),
        (429, "TooManyRequests"),
    ],
)
def test_a_request_that_may_succeed_later_is_not_refused(storage, s3_directory, answers, status, code):
    """Whatever the status: a clock that is off, a limit of requests and credentials that are over are no right."""
    answers.give("ListObjectsV2", *[(status, code)] * 9)
    with pytest.raises(UnreachableError, match=code):
        storage.list_tree(s3_directory)


def test_rights_that_are_missing_are_refused(storage, s3_directory, answers):
    """The same status, with a code that says so."""
    answers.give("ListObjectsV2", *[(403, "AccessDenied")] * 9)
    with pytest.raises(RefusedError) as caught:
        storage.list_tree(s3_directory)
    assert caught.value.reason is Reason.PERMISSION_DENIED


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchVersion"])
def test_a_key_that_is_gone_counts_as_deleted(storage, s3_directory, monkeypatch, code):
    """Ceph, Google and Alibaba say so inside a success, where Amazon says nothing."""
    storage.write_small(join(s3_directory, "f"), b"x")
    deletes = storage._driver.client.call.delete_objects

    def said(**asked):
        deletes(**asked)
        return {"Errors": [{"Key": asked["Delete"]["Objects"][0]["Key"], "Code": code}]}

    monkeypatch.setattr(storage._driver.client.call, "delete_objects", said)
    storage.delete_file(join(s3_directory, "f"))
    assert not storage.exists(join(s3_directory, "f"))
