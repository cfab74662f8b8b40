"""Reading from and writing to clients that may be slow, silent or gone."""

from __future__ import annotations

import io
import select
import socket
import time
from typing import Any


class Disconnected(ConnectionError):
    """The client has closed the connection."""


class Deadlined(io.RawIOBase):
    """A socket to read from, until a deadline that is set for each request.

    The timeout of a socket applies to each call. A client that sends one byte at a time could
    otherwise keep a thread for any length of time.
    """

    def __init__(self, connection: socket.socket, seconds: float):
        self._connection, self._seconds = connection, seconds
        self._end = 0.0
        self.restart()

    def restart(self, seconds: float | None = None) -> None:
        """Start the time for the next request."""
        self._end = time.monotonic() + (self._seconds if seconds is None else seconds)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


def is_open(connection: socket.socket) -> bool:
    """Whether the client has not closed its side of the connection."""
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return not readable or bool(connection.recv(1, socket.MSG_PEEK))
    except (OSError, ValueError):
        return False
