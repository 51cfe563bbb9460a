"""
An S3 server for tests: moto's (see `s3_program`) in a process of its own, on loopback, its buckets in memory.
"""

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import botocore.session

from tests.ports import free_port

CREDENTIALS = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n"
ROOT = Path(__file__).parents[2]


class S3Server:
    """
    A running server.

    Args:
        url: `http://127.0.0.1:<port>`.
        folder: where a file of credentials is left.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        credentials = folder / "credentials"
        credentials.write_text(CREDENTIALS)
        self.settings = {"endpoint": url, "path_style": True, "region": "us-east-1", "credentials_file": credentials}
        self.client = botocore.session.Session().create_client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )

    def bucket(self, name: str) -> None:
        self.client.create_bucket(Bucket=name)

    def objects(self, bucket: str) -> list[tuple[str, int]]:
        """Keys and lengths."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return [(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", ())]

    def keys(self, bucket: str) -> list[str]:
        return [key for key, _ in self.objects(bucket)]

    def uploads(self, bucket: str) -> list[tuple[str, str]]:
        """Keys and ids of uploads that are neither complete nor given up."""
        return [
            (item["Key"], item["UploadId"])
            for item in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", ())
        ]

    def upload_tree(self, folder: Path, bucket: str, prefix: str) -> None:
        """Copy a local directory, with markers for directories, as S3A leaves them."""
        self.client.put_object(Bucket=bucket, Key=f"{prefix}/", Body=b"")
        for path in sorted(folder.rglob("*")):
            key = f"{prefix}/{path.relative_to(folder)}"
            self.client.put_object(
                Bucket=bucket, Key=f"{key}/" if path.is_dir() else key, Body=b"" if path.is_dir() else path.read_bytes()
            )

    def download_tree(self, bucket: str, prefix: str, folder: Path) -> None:
        """Copy what is below a prefix to a local directory."""
        folder.mkdir(parents=True, exist_ok=True)
        for key in self.keys(bucket):
            if not key.startswith(f"{prefix}/"):
                continue
            path = folder / key.removeprefix(f"{prefix}/")
            if key.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.client.get_object(Bucket=bucket, Key=key)["Body"].read())


@contextlib.contextmanager
def running(folder: Path) -> Iterator[S3Server]:
    """A server that ends with the block."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.s3_program", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process)
        yield S3Server(url, folder)
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with {process.returncode}: is moto[server] installed?")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError("the S3 server doesn't answer")
