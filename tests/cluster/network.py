"""
A network that can be cut: a relay between a client and servers, and a network of its own for a process, with one cable to ours.

The relay stops passing bytes, while both ends' systems go on acknowledging them; of a pulled cable's packets nothing arrives.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self


class Relay:
    """
    Passes bytes between one port of its own and a server's; once cut it passes nothing, in either direction, and nobody is told.

    Args:
        target: port of the server on this machine.
        host: where it listens.
    """

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = target
        self._listening = socket.create_server((host, 0))
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
        if self._ended:
            client.close()
            return
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


class UnavailableError(Exception):
    """Networks can't be made here; the message says why."""


class Island:
    """
    A network namespace that is joined to ours by one cable: `shore` is the address of our end, `host` of the other.

    Raises:
        UnavailableError: it takes root's rights, util-linux and iproute2.
    """

    _numbers = itertools.count(os.getpid() % 1000)

    def __init__(self) -> None:
        number = next(self._numbers) % 4000
        self._cable = f"cmpct{number}"
        block = f"10.{200 + number // 1000}.{number // 16 % 62}.{number % 16 * 16}".rsplit(".", 1)
        self.shore, self.host = (f"{block[0]}.{int(block[1]) + one}" for one in (1, 2))

    def __enter__(self) -> Self:
        for program in ("unshare", "ip", "nsenter"):
            if shutil.which(program) is None:
                raise UnavailableError(f"{program} isn't installed")
        self._keeper = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stderr=subprocess.PIPE)
        ours = Path("/proc/self/ns/net").readlink()
        while self._keeper.poll() is None and Path(f"/proc/{self._keeper.pid}/ns/net").readlink() == ours:
            time.sleep(0.005)
        try:
            if self._keeper.poll() is not None:
                assert self._keeper.stderr is not None
                raise UnavailableError(f"no network namespace can be made: {self._keeper.stderr.read().decode().strip()}")
            _ip("link", "add", self._cable, "type", "veth", "peer", "name", "cable", "netns", str(self._keeper.pid))
            _ip("address", "add", f"{self.shore}/28", "dev", self._cable)
            _ip("link", "set", self._cable, "up")
            # our end's address stays while the cable is pulled: who listens there goes on
            _ip("address", "add", f"{self.shore}/32", "dev", "lo")
            for command in (("address", "add", f"{self.host}/28", "dev", "cable"), ("link", "set", "cable", "up"), ("link", "set", "lo", "up")):
                _ip(*command, inside=self._keeper.pid)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(UnavailableError):
            _ip("address", "del", f"{self.shore}/32", "dev", "lo")
        with contextlib.suppress(UnavailableError):
            _ip("link", "del", self._cable)
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stderr is not None:
            self._keeper.stderr.close()

    @property
    def namespace(self) -> Path:
        """For `enter`; `nsenter --net=` takes it, too."""
        return Path(f"/proc/{self._keeper.pid}/ns/net")

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")


def enter(namespace: Path) -> None:
    """Have this thread, and those that it starts, live in another network; what is opened already stays in ours."""
    with namespace.open("rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str, inside: int | None = None) -> None:
    prefix = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*prefix, "ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
