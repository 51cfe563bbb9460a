"""
Delegation tokens: how tasks in a cluster with Kerberos reach HDFS without a keytab or a ticket.

A NameNode gives tokens to users that it knows by Kerberos; they are valid for some days. hdfs-native looks for tokens
in the file that HADOOP_TOKEN_FILE_LOCATION names, each time it connects, and takes a token only if it names the
NameNode as the location does. Hadoop names the NameNode by its IP address, unless
`hadoop.security.token.service.use_ip` is false. The tokens that this process holds are in such a file, under both
names. The file is in memory, never on a disk, and goes with the process.
Source: Hadoop's Credentials, Token, WritableUtils, SecurityUtil.buildTokenService.
"""

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Final

from compactor.storage.hdfs.connections import Address, resolved

VARIABLE: Final = "HADOOP_TOKEN_FILE_LOCATION"
_KIND: Final = b"HDFS_DELEGATION_TOKEN"
_BEGIN: Final = b"HDTS\0"
_ONE_BYTE: Final = 127
_LENGTHS: Final = 112
"""A first byte of -112 - n says that a positive number follows in n bytes."""
_LONGEST: Final = 8


@dataclass(frozen=True, slots=True)
class Token:
    """
    The token of one NameNode or one name service.

    Args:
        service: `host:port`, or `ha-hdfs:<name service>`.
    """

    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    service: str


def parse(data: bytes) -> tuple[Token, ...]:
    """
    The HDFS tokens in Hadoop's credentials, in the format that Hadoop writes by default; none in any other format.

    Raises:
        ValueError: the credentials are cut off or malformed.
    """
    if not data.startswith(_BEGIN):
        return ()
    reader = BytesIO(data[len(_BEGIN) :])
    found = []
    for _ in range(_number(reader)):
        _, identifier, password, kind, service = (_text(reader) for _ in range(5))
        if kind == _KIND:
            found.append(Token(identifier, password, service.decode()))
    return tuple(found)


def written(tokens: Iterable[Token]) -> bytes:
    """Hadoop's credentials with these tokens, and without other secrets."""
    listed = list(tokens)
    fields = [
        text
        for token in listed
        for text in (token.service.encode(), token.identifier, token.password, _KIND, token.service.encode())
    ]
    return _BEGIN + _length(len(listed)) + b"".join(_length(len(text)) + text for text in fields) + _length(0)


def also_as(tokens: Iterable[Token], names: Iterable[Address]) -> tuple[Token, ...]:
    """The tokens, and copies of them under those of these names that lead to the NameNode of a token."""
    found = {token.service: token for token in tokens}
    at = [(resolved([address]), token) for token in found.values() if (address := _address(token.service)) is not None]
    for host, port in names:
        if f"{host}:{port}" not in found and (here := resolved([(host, port)])):
            found |= {f"{host}:{port}": replace(token, service=f"{host}:{port}") for there, token in at if here & there}
    return tuple(found.values())


class HeldToken:
    """
    The tokens that this process holds. Safe in any number of threads; a forked process keeps those held at the fork.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given: tuple[Token, ...] = ()
        self._names: frozenset[Address] = frozenset()
        self._file: int | None = None
        self._content = b""

    def take(self, data: bytes) -> bool:
        """
        Hold the HDFS tokens of these credentials from now on, instead of earlier ones. Returns False, and changes
        nothing, when there are none.
        """
        tokens = parse(data)
        if tokens:
            with self._lock:
                self._given = tokens
                self._write()
        return bool(tokens)

    def services(self, names: Iterable[Address]) -> frozenset[str]:
        """
        The NameNodes and name services for which a token is held; empty when none is held.

        Args:
            names: further names by which NameNodes may be asked from now on.
        """
        with self._lock:
            if not self._given:
                return frozenset()
            self._names |= frozenset(names)
            return frozenset(token.service for token in self._write())

    def _write(self) -> tuple[Token, ...]:
        tokens = also_as(self._given, sorted(self._names))
        content = written(tokens)
        if content != self._content:
            made = os.memfd_create("hdfs-tokens")
            os.write(made, content)
            if self._file is None:
                self._file = made
                os.environ[VARIABLE] = f"/proc/self/fd/{made}"
            else:
                os.dup2(made, self._file, inheritable=False)  # in one step: another thread may be connecting
                os.close(made)
            self._content = content
        return tokens


HELD: Final = HeldToken()


def _address(service: str) -> Address | None:
    host, _, port = service.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() else None


def _text(reader: BytesIO) -> bytes:
    return _exactly(reader, _number(reader))


def _number(reader: BytesIO) -> int:
    first = int.from_bytes(_exactly(reader, 1), signed=True)
    if first >= -_LENGTHS:
        return first
    length = -_LENGTHS - first
    if length > _LONGEST:
        raise ValueError("the credentials hold a negative length")
    return int.from_bytes(_exactly(reader, length))


def _exactly(reader: BytesIO, length: int) -> bytes:
    found = reader.read(length)
    if len(found) < length:
        raise ValueError("the credentials are cut off")
    return found


def _length(number: int) -> bytes:
    if number <= _ONE_BYTE:
        return bytes([number])
    length = (number.bit_length() + 7) // 8
    return (-_LENGTHS - length).to_bytes(1, signed=True) + number.to_bytes(length)
