"""
Notes which uploads are under way, since not every store lists them (MinIO lists those of a whole key only).

    <directory>/<32 hexadecimal digits>     {"key": …, "upload": …}

An upload is noted once the store has given it an id, and before the first part is copied into it. A process that fences
its worker off deletes what is copied from first, and reads the notes after that: an upload that is noted later finds
nothing to copy, and all others are given up by their ids.
Source: docs/storage.md.
"""

import json
import uuid

from compactor.storage.s3_store.client import S3Client, explained, put_new


def note(client: S3Client, bucket: str, directory: str, key: str, upload_id: str) -> str:
    """
    Write down an upload; durable when this returns the key of the note.

    Args:
        directory: the beginning of the note's key, with a slash at its end.
    """
    noted = f"{directory}{uuid.uuid4().hex}"
    put_new(client, bucket, noted, json.dumps({"key": key, "upload": upload_id}).encode(), noted)
    return noted


def read(client: S3Client, bucket: str, noted: str, within: str) -> tuple[str, str] | None:
    """
    Key and id of a noted upload; None of a note that is gone, or that isn't one of ours: it names no key in the
    directory that was compacted.

    Args:
        within: what the key must begin with.
    """
    try:
        with explained("read", noted):
            content: bytes = client.call.get_object(Bucket=bucket, Key=noted)["Body"].read()
    except FileNotFoundError:
        return None
    try:
        said = json.loads(content)
        key, upload_id = said["key"], said["upload"]
    except (ValueError, KeyError, TypeError):
        return None
    ours = isinstance(key, str) and isinstance(upload_id, str) and key.startswith(within)
    return (key, upload_id) if ours else None


def remove(client: S3Client, bucket: str, noted: str) -> None:
    """Remove the note of an upload that was given up."""
    with explained("delete", noted):
        client.call.delete_object(Bucket=bucket, Key=noted)
