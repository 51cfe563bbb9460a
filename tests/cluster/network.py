"""
A network that can be cut: a relay between a client and servers, and a network of its own for a process, with one cable
to ours.

The relay stops passing bytes, while both ends' systems go on acknowledging them; of a pulled cable's packets nothing
arrives.
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

_NUMBERS = itertools.count(os.getpid())


class Relay:
    """
    Passes bytes between one port of its own and a server's; once cut it passes nothing, in either direction, and nobody
    is told.

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
        self._answering = threading.Event()
        self._answering.set()
        self._sockets: list[socket.socket] = []
        self._ended = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def mute(self) -> None:
        """From now on servers hear their clients and clients hear no answer, until their server is gone."""
        self._answering.clear()

    def turn(self, target: int) -> None:
        """Lead new connections to another server, whose answers pass; those that there are stay as they are."""
        self._target = target
        self._answering = threading.Event()
        self._answering.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        for one, other, answering in ((client, server, None), (server, client, self._answering)):
            threading.Thread(target=self._pass, args=(one, other, answering), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, answering: threading.Event | None) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self._open.wait()
                if answering is None or answering.is_set():
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

    def __init__(self) -> None:
        self._cable = self.shore = self.host = ""

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
                raise UnavailableError(
                    f"no network namespace can be made: {self._keeper.stderr.read().decode().strip()}"
                )
            self._cable, self.shore, self.host = _laid("cable", self.process)
            # our end's address stays while the cable is pulled: who listens there goes on
            _ip("address", "add", f"{self.shore}/32", "dev", "lo")
            _ip("link", "set", "lo", "up", inside=self.process)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(UnavailableError):
            _ip("address", "del", f"{self.shore}/32", "dev", "lo")
        with contextlib.suppress(UnavailableError):
            _ip("link", "del", self._cable)
        self._keeper.kill()
        self._keeper.wait()
        if self._keeper.stderr is not None:
            self._keeper.stderr.close()

    @property
    def process(self) -> int:
        """The id of one that lives there."""
        return self._keeper.pid

    @property
    def namespace(self) -> Path:
        """For `enter`; `nsenter --net=` takes it, too."""
        return Path(f"/proc/{self.process}/ns/net")

    def cut(self) -> None:
        _ip("link", "set", self._cable, "down")

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")


class SecondCable:
    """
    Another cable of an island: what listens on our 127.0.0.1 is reached from there by the same address, through this
    cable alone. Over there nothing can listen on it.

    Raises:
        UnavailableError: this machine's settings of the network can't be changed.
    """

    def __init__(self, island: Island) -> None:
        self._inside = island.process

    def __enter__(self) -> Self:
        inside = self._inside
        self._cable, self._peer, _ = _laid("second", inside)
        try:
            _ip("address", "del", "127.0.0.1/8", "dev", "lo", inside=inside)
            for name, where in ((self._cable, None), ("second", inside)):
                _run("sh", "-c", f"echo 1 > /proc/sys/net/ipv4/conf/{name}/route_localnet", inside=where)
            # known for good: otherwise the system would soon say by itself that there is no way, and packets wouldn't
            # be lost without a word
            ours = Path(f"/sys/class/net/{self._cable}/address").read_text(encoding="ascii").strip()
            _ip("neighbour", "replace", self._peer, "lladdr", ours, "dev", "second", "nud", "permanent", inside=inside)
            self.mend()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(UnavailableError):
            _ip("link", "del", self._cable)

    def cut(self) -> None:
        """Packets are lost from now on."""
        _ip("link", "set", self._cable, "down")

    def refuse(self) -> None:
        """Whoever sends something is told at once that there is no way."""
        _ip("route", "replace", "unreachable", "127.0.0.1", inside=self._inside)

    def mend(self) -> None:
        _ip("link", "set", self._cable, "up")
        _ip("route", "replace", "127.0.0.1", "via", self._peer, "dev", "second", inside=self._inside)


def enter(namespace: Path) -> None:
    """Have this thread, and those that it starts, live in another network; what is opened already stays in ours."""
    with namespace.open("rb") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def _laid(end: str, inside: int) -> tuple[str, str, str]:
    """
    A new cable into another network, where it is called `end`: its name here, and the addresses of our end and of the
    other. Processes beside us lay some, too.
    """
    while True:
        number = next(_NUMBERS) % 4096
        name = f"cmpct{number}"
        try:
            _ip("link", "add", name, "type", "veth", "peer", "name", end, "netns", str(inside))
        except UnavailableError as error:
            if "File exists" not in str(error):
                raise
        else:
            block = f"10.{200 + number // 1024}.{number // 16 % 64}"
            ours, theirs = (f"{block}.{number % 16 * 16 + one}" for one in (1, 2))
            for address, device, where in ((ours, name, None), (theirs, end, inside)):
                _ip("address", "add", f"{address}/28", "dev", device, inside=where)
                _ip("link", "set", device, "up", inside=where)
            return name, ours, theirs


def _ip(*arguments: str, inside: int | None = None) -> None:
    _run("ip", *arguments, inside=inside)


def _run(*command: str, inside: int | None = None) -> None:
    prefix = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"{' '.join(command)}: {done.stderr.strip()}")
