"""A network that can be cut: a relay between a client and servers."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Relay:
    """
    Passes bytes between one port of its own and a server's; once cut it passes nothing, in either direction, and nobody is told.

    Args:
        target: port of the server on this machine.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended = True
        self._open.set()
        for one in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ended:
                client, _ = self._listening.accept()
                self._sockets.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        self._sockets.append(server)
        for one, other in ((client, server), (server, client)):
            threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self._open.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
