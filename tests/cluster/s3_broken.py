"""
Buckets of the tests' S3 server that break one promise each, as stores do that speak S3's protocol in part: the bucket's
name says which. A bucket of any other name keeps all.

`whole-keys` is no broken promise: MinIO lists unfinished uploads of a whole key only.
"""

import io
import re
import time
from urllib.parse import parse_qs, quote

BROKEN = (
    "create-if-absent",
    "complete-if-absent",
    "read-if-match",
    "copy-if-match",
    "abort-by-id",
    "list-after-write",
    "etag",
    "metadata",
    "delete-at-once",
    "unseen-until-completed",
)
MISSED = ("delete-if-match",)
WHOLE_KEYS = "whole-keys"
_STALE_SECONDS = 60.0
_OBJECT = re.compile(rb"<Object>.*?</Object>", re.DOTALL)
_UPLOAD = re.compile(rb"<Upload>.*?</Upload>", re.DOTALL)


class Broken:
    """Around the server's application."""

    def __init__(self, application):
        self._application = application
        self._listings = {}

    def __call__(self, environ, start_response):
        bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        asked = _kind(environ["REQUEST_METHOD"], key, query)
        match bucket, asked:
            case ("create-if-absent", "put") | ("complete-if-absent", "complete"):
                environ.pop("HTTP_IF_NONE_MATCH", None)
            case "read-if-match", "get":
                environ.pop("HTTP_IF_MATCH", None)
            case "copy-if-match", "part":
                environ.pop("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH", None)
            case "metadata", _:
                for name in [name for name in environ if name.startswith("HTTP_X_AMZ_META_")]:
                    del environ[name]
            case "abort-by-id", "abort":
                return _answer(start_response, "204 No Content", b"")
            case "list-after-write", "list":
                return self._stale(environ, start_response)
            case "etag", "list":
                return self._changed(environ, start_response, lambda body: re.sub(rb"<ETag>.*?</ETag>", b"", body))
            case "delete-at-once", "delete":
                return _answer(start_response, "200 OK", b"<DeleteResult/>")
            case "unseen-until-completed", "part":
                self._inner(environ, "PUT", environ["PATH_INFO"])
            case "whole-keys", "uploads" if query.get("prefix", [""])[0]:
                whole = f"<Key>{query.get('prefix', [''])[0]}</Key>".encode()
                return self._changed(
                    environ,
                    start_response,
                    lambda body: _UPLOAD.sub(lambda one: one[0] if whole in one[0] else b"", body),
                )
            case _, "delete" if bucket != "delete-if-match":
                return self._delete(environ, start_response, bucket)
        return self._application(environ, start_response)

    def _delete(self, environ, start_response, bucket):
        """Looks at the ETags of DeleteObjects, as Amazon does; moto ignores them."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        errors = []

        def kept(found):
            wanted = re.search(rb"<ETag>(.*?)</ETag>", found[0])
            if wanted is None:
                return found[0]
            name = re.search(rb"<Key>(.*?)</Key>", found[0], re.DOTALL)[1]
            said = self._inner(environ, "HEAD", f"/{bucket}/{_text(name.decode())}".encode().decode("latin-1"))
            if said == _text(wanted[1].decode()).strip('"'):
                return re.sub(rb"<ETag>.*?</ETag>", b"", found[0])
            code = b"NoSuchKey" if said is None else b"PreconditionFailed"
            errors.append(b"<Error><Key>" + name + b"</Key><Code>" + code + b"</Code></Error>")
            return b""

        asked = _OBJECT.sub(kept, body)
        if errors and b"<Object>" not in asked:
            return _answer(start_response, "200 OK", b"<DeleteResult>" + b"".join(errors) + b"</DeleteResult>")
        environ |= {"wsgi.input": io.BytesIO(asked), "CONTENT_LENGTH": str(len(asked))}
        environ.pop("HTTP_CONTENT_MD5", None)
        return self._changed(
            environ,
            start_response,
            lambda body: body.replace(b"</DeleteResult>", b"".join(errors) + b"</DeleteResult>"),
        )

    def _inner(self, environ, method, path):
        """
        A request of the server's own; returns the ETag of the answer, None where there is none.

        Args:
            path: as WSGI gives it: each byte a character.
        """
        found = []

        def start(_status, headers, *_):
            found.extend(value.strip('"') for name, value in headers if name.lower() == "etag")
            return lambda _: None

        own = {name: value for name, value in environ.items() if not name.startswith(("HTTP_IF", "werkzeug."))}
        own |= {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "RAW_URI": quote(path, encoding="latin-1"),
            "REQUEST_URI": quote(path, encoding="latin-1"),
            "QUERY_STRING": "",
            "CONTENT_LENGTH": "0",
            "wsgi.input": io.BytesIO(),
        }
        list(self._application(own, start))
        return found[0] if found else None

    def _stale(self, environ, start_response):
        asked = (environ["PATH_INFO"], environ.get("QUERY_STRING"))
        seen, body = self._listings.get(asked, (0.0, b""))
        if time.monotonic() - seen > _STALE_SECONDS:
            body = b"".join(self._application(environ, lambda *_: lambda _: None))
            self._listings[asked] = (time.monotonic(), body)
        return _answer(start_response, "200 OK", body)

    def _changed(self, environ, start_response, change):
        answered = []
        body = change(b"".join(self._application(environ, lambda *started: answered.append(started))))
        status, headers = answered[0][:2]
        kept = [(name, value) for name, value in headers if name.lower() not in {"content-length", "x-amz-checksum"}]
        start_response(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]


def _kind(method, key, query):
    if method == "GET" and not key:
        return "uploads" if "uploads" in query else "list" if "list-type" in query else ""
    if method == "POST" and "delete" in query:
        return "delete"
    if "uploadId" in query:
        return {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(method, "")
    return {"PUT": "put", "GET": "get"}.get(method, "")


def _answer(start_response, status, body):
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _text(escaped):
    for code, meant in (("&quot;", '"'), ("&#34;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        escaped = escaped.replace(code, meant)
    return escaped
