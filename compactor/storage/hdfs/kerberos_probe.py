"""
Asks a NameNode whether it wants Kerberos, before the client connects.

Without Kerberos hdfs-native doesn't understand a NameNode that wants it, and tries for minutes. The question is the
first message of every SASL client. The NameNode answers it with the ways to log in that it accepts.
Source: Hadoop's RpcHeader.proto, Server.Connection.buildSaslNegotiateResponse.
"""

import contextlib
import socket
from collections.abc import Iterable
from typing import Final

from compactor.storage.hdfs.connections import Address

SECONDS: Final = 2.0
"""Time limit for one NameNode. A silent NameNode is left to the client."""
_HELLO: Final = b"hrpc\x09\x00\xdf"
"""Version 9, any service class, SASL."""
_HEADER: Final = b"\x08\x02\x10\x00\x18\x41\x22\x00\x28\x01"
"""RpcRequestHeaderProto: protocol buffers, a final packet, call -33, no client id, no retry."""
_NEGOTIATE: Final = b"\x10\x01"
"""RpcSaslProto: state NEGOTIATE."""
_SIZE_BYTES: Final = 4
_LARGEST: Final = 1 << 16


def wants_kerberos(names: Iterable[Address], seconds: float = SECONDS) -> Address | None:
    """
    The first NameNode that answers, when it wants Kerberos; None when it doesn't, or when none answers.

    Args:
        seconds: time limit for each NameNode.
    """
    for name in names:
        with contextlib.suppress(OSError, UnicodeError):  # UnicodeError: a name that no host can have
            answer = _ask(name, seconds)
            return name if b"KERBEROS" in answer and b"SIMPLE" not in answer else None
    return None


def _ask(name: Address, seconds: float) -> bytes:
    """The NameNode's answer. Raises OSError when there is none."""
    message = bytes([len(_HEADER)]) + _HEADER + bytes([len(_NEGOTIATE)]) + _NEGOTIATE
    with socket.create_connection(name, seconds) as connection:
        connection.settimeout(seconds)
        connection.sendall(_HELLO + len(message).to_bytes(_SIZE_BYTES) + message)
        size = int.from_bytes(_exactly(connection, _SIZE_BYTES))
        return _exactly(connection, min(size, _LARGEST))


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = bytearray()
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise ConnectionError("closed before its answer was whole")
        found += part
    return bytes(found)
