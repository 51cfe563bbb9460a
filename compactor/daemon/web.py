"""
Serves the daemon's endpoints by HTTP (`/metrics`, `/-/healthy`, …); `Daemon` says which there are.

The server changes nothing. A check answers 200 `OK`, or 503 with one line for each trouble.
"""

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from compactor.errors import SettingsError
from compactor.log import get_logger

_log = get_logger(__name__)


class HttpAnswer(NamedTuple):
    """What a client gets."""

    body: bytes
    code: int = 200
    content_type: str = "text/plain; charset=utf-8"


Endpoint = Callable[[], HttpAnswer]
"""Makes the answer; called in a thread of its own for each request."""


def check(troubles: Callable[[], Sequence[str]]) -> Endpoint:
    """The endpoint of a check; `troubles` returns what is wrong, and is empty when all is well."""

    def answer() -> HttpAnswer:
        found = troubles()
        return HttpAnswer(("\n".join(found or ("OK",)) + "\n").encode(), 503 if found else 200)

    return answer


class _Server(ThreadingHTTPServer):
    """Handles each request in a thread. A client that disconnects before the answer is logged at debug level only."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - overrides
        _log.debug("http_request.failed", client=str(client_address), error=str(sys.exception()))


class WebServer:
    """
    Serves in threads of its own until closed.

    Args:
        endpoints: by path; any other path is answered with 404 and these paths.

    Raises:
        SettingsError: the address can't be used.
    """

    def __init__(self, host: str, port: int, endpoints: Mapping[str, Endpoint]) -> None:
        missing = HttpAnswer(f"{' '.join(endpoints)}\n".encode(), 404)

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            server_version = "compactor"
            sys_version = ""
            timeout = 10

            def do_GET(self) -> None:
                endpoint = endpoints.get(self.path.split("?", 1)[0])
                answer = missing if endpoint is None else endpoint()
                self.send_response(answer.code)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer.body)

            do_HEAD = do_GET  # noqa: N815 - the name http.server wants

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - overrides
                _log.debug("http_request.answered", request=format % args)

        try:
            self._server = _Server((host, port), Handler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise SettingsError(f"http.host, http.port: can't listen on {host}:{port}: {why}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in use; with `port` 0 the port that the system chose."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()
