"""
Serves the daemon's `/metrics`, `/-/healthy` and `/-/ready` by HTTP.

The server changes nothing. A check answers 200 `OK`, or 503 with one line for each trouble.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from compactor.errors import SettingsError
from compactor.log import get_logger
from compactor.metrics import CONTENT_TYPE, Metrics

_log = get_logger(__name__)
Check = Callable[[], Sequence[str]]
"""Returns what is wrong; empty when all is well."""


class _Server(ThreadingHTTPServer):
    """Handles each request in a thread. A client that disconnects before the answer is logged at debug level only."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - overrides
        _log.debug("http_request.failed", client=str(client_address), error=str(sys.exception()))


class WebServer:
    """
    Serves in threads of its own until closed.

    Raises:
        SettingsError: the address can't be used.
    """

    def __init__(self, host: str, port: int, metrics: Metrics, healthy: Check, ready: Check) -> None:
        class Handler(BaseHTTPRequestHandler):
            """One request."""

            server_version = "compactor"
            sys_version = ""
            timeout = 10

            def do_GET(self) -> None:
                match self.path.split("?", 1)[0]:
                    case "/metrics":
                        self._answer(200, metrics.render(), CONTENT_TYPE)
                    case "/-/healthy":
                        self._check(healthy)
                    case "/-/ready":
                        self._check(ready)
                    case _:
                        self._answer(404, b"/metrics /-/healthy /-/ready\n")

            do_HEAD = do_GET  # noqa: N815 - the name http.server wants

            def _check(self, check: Check) -> None:
                troubles = check()
                self._answer(503 if troubles else 200, ("\n".join(troubles or ("OK",)) + "\n").encode())

            def _answer(self, code: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
                self.send_response(code)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

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
