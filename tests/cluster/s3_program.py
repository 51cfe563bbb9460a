"""
The S3 server that tests start: `python -m tests.cluster.s3_program PORT`. moto's server, with gaps closed that the
tests would fall into, and with buckets that break promises (`s3_broken`).

 - whatever is asked of an upload that is over is answered by NoSuchUpload, as Amazon does; moto answers 500
 - CopySourceIfMatch of UploadPartCopy is looked at; moto ignores it
 - If-None-Match is looked at and acted on in one step; moto lets two requests both find nothing there
 - the ETags of DeleteObjects are looked at; moto ignores them
"""

import sys
import threading
from urllib.parse import unquote

from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3.exceptions import NoSuchUpload, PreconditionFailed
from moto.s3.models import FakeBucket
from moto.s3.responses import S3Response
from werkzeug.serving import run_simple

from tests.cluster.s3_broken import Broken


class Uploads(dict):
    """A bucket's uploads by id."""

    def __missing__(self, upload_id):
        raise NoSuchUpload(upload_id)

    def __delitem__(self, upload_id):
        self[upload_id]
        super().__delitem__(upload_id)


class OneByOne:
    """Requests that look before they act don't come between each other."""

    def __init__(self, application):
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ, start_response):
        if environ.get("HTTP_IF_NONE_MATCH") == "*":
            with self._lock:
                return list(self._application(environ, start_response))
        return self._application(environ, start_response)


class Quiet(MotoRequestHandler):
    """Says nothing of requests."""

    def log(self, *_):
        pass


def close_gaps() -> None:
    """Change moto where it isn't as S3 is."""
    make, copy = FakeBucket.__init__, S3Response.upload_part_copy

    def make_with_uploads(self, *arguments, **named):
        make(self, *arguments, **named)
        vars(self)["multiparts"] = Uploads()

    def copy_if_match(self):
        wanted = self.headers.get("x-amz-copy-source-if-match")
        bucket, _, key = unquote(self.headers.get("x-amz-copy-source")).lstrip("/").partition("/")
        found = self.backend.get_object(bucket, key)
        if wanted and found is not None and found.etag.strip('"') != wanted.strip('"'):
            raise PreconditionFailed("x-amz-copy-source-If-Match")
        return copy(self)

    FakeBucket.__init__ = make_with_uploads
    S3Response.upload_part_copy = copy_if_match


def main() -> None:
    close_gaps()
    application = Broken(OneByOne(create_backend_app("s3")))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    main()
