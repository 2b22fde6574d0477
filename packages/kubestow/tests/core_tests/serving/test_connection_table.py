"""Which connection is closed for a new one: the longest idle first, and never more than the maxima stay open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubestow.http.listener import ClientConnection, ConnectionTable


class Port:
    """A table, and its open connections."""

    def __init__(self, *, maximum: int = 3, per_peer: int = 2, reserved: int = 1) -> None:
        self.table = ConnectionTable(maximum=maximum, per_peer=per_peer, reserved=reserved)
        self.open: list[ClientConnection] = []

    def connect(self, peer: str) -> ClientConnection:
        connection = self.table.add(peer, lambda: self.open.remove(connection))
        self.open.append(connection)
        return connection


def test_the_longest_idle_connection_is_closed_for_a_new_one() -> None:
    port = Port()
    first, second, third = (port.connect(peer) for peer in "abc")
    port.table.set_busy(first)
    port.table.set_idle(first)
    fourth = port.connect("d")
    assert port.open == [first, third, fourth] and second not in port.open


def test_a_peer_at_its_maximum_closes_only_its_own_connections() -> None:
    port = Port()
    other, first, second = port.connect("other"), port.connect("a"), port.connect("a")
    third = port.connect("a")
    assert port.open == [other, second, third] and first not in port.open


def test_a_connection_is_reserved_for_health_checks_when_none_is_idle() -> None:
    port = Port()
    for peer in "abc":
        port.table.set_busy(port.connect(peer))
    reserved = port.connect("d")
    assert reserved.is_reserved and len(port.table) == 4
    newer = port.connect("e")
    assert newer.is_reserved and reserved not in port.open and len(port.table) == 4


@given(st.lists(st.tuples(st.sampled_from(["connect", "busy", "idle", "close"]), st.integers(0, 9)), max_size=60))
def test_the_maxima_hold_after_any_sequence(steps: list[tuple[str, int]]) -> None:
    port = Port(maximum=4, per_peer=3, reserved=2)
    for step, number in steps:
        if step == "connect":
            port.connect(f"peer {number % 3}")
        elif port.open:
            connection = port.open[number % len(port.open)]
            if step == "busy":
                port.table.set_busy(connection)
            elif step == "idle":
                port.table.set_idle(connection)
            else:
                port.table.remove(connection)
                port.open.remove(connection)
        ordinary = [one for one in port.open if not one.is_reserved]
        assert len(port.table) == len(port.open)
        assert len(ordinary) <= 4 and len(port.open) - len(ordinary) <= 2
        assert all(sum(one.peer == peer for one in ordinary) <= 3 for peer in ("peer 0", "peer 1", "peer 2"))
