"""The open connections of the secure port, and which of them is closed for a new one.

A connection is idle while no request of it is in progress: during the TLS handshake, before its first request, and
between requests. Idle connections give way: when the port or the address of a peer has reached its maximum, its
connection that has been idle the longest is closed. If none is idle, the new connection is *reserved*: it may send
one health check and nothing else, so that slow requests cannot hide whether the process lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Connection", "ConnectionTable"]


@dataclass(eq=False, slots=True)
class Connection:
    """One connection. ``close`` closes it at once; ``is_reserved`` connections are for health checks only."""

    peer: str
    close: Callable[[], None]
    is_reserved: bool = False


class ConnectionTable:
    """At most ``maximum`` connections, ``per_peer`` of them of one address, and ``reserved`` more for health checks."""

    def __init__(self, *, maximum: int, per_peer: int, reserved: int) -> None:
        self._maximum, self._per_peer, self._max_reserved = maximum, per_peer, reserved
        self._open: set[Connection] = set()
        #: The number of connections by peer address, without the reserved ones.
        self._by_peer: Counter[str] = Counter()
        #: The idle connections, the longest idle first.
        self._idle: dict[Connection, None] = {}
        #: The reserved connections, the oldest first.
        self._reserved: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self._reserved)

    def add(self, peer: str, close: Callable[[], None]) -> Connection:
        """Add a connection, for which others may be closed."""
        connection = Connection(peer, close)
        if self._by_peer[peer] >= self._per_peer:
            connection.is_reserved = not self._close_idle(peer)
        elif len(self._open) >= self._maximum:
            connection.is_reserved = not self._close_idle()
        if connection.is_reserved:
            while len(self._reserved) >= self._max_reserved:
                self._close(next(iter(self._reserved)))
            self._reserved[connection] = None
        else:
            self._open.add(connection)
            self._by_peer[peer] += 1
            self._idle[connection] = None
        return connection

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed; without effect if it has been removed."""
        self._idle.pop(connection, None)
        self._reserved.pop(connection, None)
        if connection in self._open:
            self._open.remove(connection)
            self._by_peer[connection.peer] -= 1
            if not self._by_peer[connection.peer]:
                del self._by_peer[connection.peer]

    def set_busy(self, connection: Connection) -> None:
        """A request of this connection is in progress."""
        self._idle.pop(connection, None)

    def set_idle(self, connection: Connection) -> None:
        """The request has ended."""
        if connection in self._open:
            self._idle[connection] = None

    def close_longest_idle(self) -> bool:
        """Close the connection that has been idle the longest; False if none is idle."""
        return self._close_idle()

    def _close_idle(self, peer: str | None = None) -> bool:
        found = next((one for one in self._idle if peer is None or one.peer == peer), None)
        if found is None:
            return False
        self._close(found)
        return True

    def _close(self, connection: Connection) -> None:
        self.remove(connection)
        connection.close()
