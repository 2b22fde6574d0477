"""The barrier of a gang: who waits for whom, and how each wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.testing.virtual_time import run


class Gang:
    """A barrier with the members a, b and c on their way, and what has come of those that have arrived."""

    def __init__(self, minimum: int, *, bound: Iterable[str] = (), placed: Iterable[str] = "abc") -> None:
        self.placed, self.emptied = set(placed), 0
        self.barrier = GangBarrier(
            "g",
            min_count=minimum,
            bound=bound,
            timeout=60.0,
            placed_members=lambda: self.placed,
            on_empty=self._count,
        )
        for uid in "abc":
            self.barrier.expect(uid)
        self._arrivals: dict[str, asyncio.Task[Status]] = {}

    def _count(self) -> None:
        self.emptied += 1

    async def arrive(self, uid: str, *, seconds: float = 0.0, status: Status = SUCCESS) -> None:
        """Have a member arrive, whose preparation takes so long."""

        async def prepare() -> Status:
            await asyncio.sleep(seconds)
            return status

        self._arrivals[uid] = asyncio.create_task(self.barrier.arrive(uid, prepare()))
        await asyncio.sleep(0.01)

    def result(self, uid: str) -> str | None:
        """What has come of a member that has arrived: "ok", the reason of a failure, or None while it waits."""
        arrival = self._arrivals[uid]
        return (arrival.result().message or "ok") if arrival.done() else None


def scenario(of: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test that is a coroutine in virtual time."""

    def test() -> None:
        async def main() -> None:
            await of()

        run(main())

    return test


@scenario
async def test_members_wait_until_enough_have_arrived() -> None:
    gang = Gang(2)
    await gang.arrive("a")
    assert (gang.result("a"), gang.barrier.may_bind_part) == (None, False)
    await gang.arrive("b", seconds=5)
    assert gang.result("a") is None
    await asyncio.sleep(5)
    assert (gang.result("a"), gang.result("b"), gang.barrier.may_bind_part) == ("ok", "ok", True)
    await gang.arrive("c")
    assert gang.result("c") == "ok"


@scenario
async def test_members_that_are_bound_count() -> None:
    gang = Gang(3, bound="xy")
    assert gang.barrier.may_bind_part
    await gang.arrive("a")
    assert gang.result("a") == "ok"


@scenario
async def test_a_member_that_leaves_while_it_waits_waits_no_more() -> None:
    gang = Gang(2)
    await gang.arrive("a")
    gang.barrier.leave("a", "deleted")
    await asyncio.sleep(0.01)
    assert gang.result("a") == "deleted"
    assert not gang.barrier.expects("a")
    assert gang.barrier.failure is None
    await gang.arrive("a")
    assert gang.result("a") == "removed"


@scenario
async def test_all_members_fail_when_too_few_are_left() -> None:
    gang = Gang(3)
    await gang.arrive("a")
    await gang.arrive("b", seconds=30)
    gang.barrier.leave("c", "c was deleted")
    await asyncio.sleep(0.01)
    released = "pod group g released its reserved nodes: c was deleted"
    assert (gang.result("a"), gang.result("b"), gang.barrier.failure) == (released, released, released)


@scenario
async def test_a_barrier_that_is_closed_lets_preparations_end() -> None:
    gang = Gang(3)
    await gang.arrive("a")
    await gang.arrive("b", seconds=5)
    gang.barrier.close("shutting down")
    await asyncio.sleep(0.01)
    released = "pod group g released its reserved nodes: shutting down"
    assert (gang.result("a"), gang.result("b")) == (released, None)
    await asyncio.sleep(5)
    assert gang.result("b") == released


@scenario
async def test_a_member_that_cannot_be_prepared_fails_alone_until_it_leaves() -> None:
    gang = Gang(2)
    await gang.arrive("a", status=Status.unschedulable("no volume"))
    assert gang.result("a") == "no volume"
    await gang.arrive("b")
    assert gang.result("b") is None
    await gang.arrive("c")
    assert (gang.result("b"), gang.result("c")) == ("ok", "ok")


@scenario
async def test_a_member_that_arrives_once_the_barrier_is_open_is_prepared_first() -> None:
    gang = Gang(1)
    await gang.arrive("a")
    await gang.arrive("b", seconds=5, status=Status.unschedulable("no volume"))
    assert gang.result("b") is None
    await asyncio.sleep(5)
    assert gang.result("b") == "no volume"


@scenario
async def test_all_members_fail_at_the_timeout() -> None:
    gang = Gang(3)
    for uid in "ab":
        await gang.arrive(uid)
    await asyncio.sleep(60)
    assert gang.result("a") == (
        "pod group g released its reserved nodes: 2 of the 3 pods that it needs were ready to be bound after 1m0s"
    )


@scenario
async def test_no_member_is_bound_once_too_few_have_nodes() -> None:
    gang = Gang(2)
    for uid in "ab":
        await gang.arrive(uid)
    assert gang.barrier.rejection() is None
    gang.placed = {"a"}
    assert gang.barrier.rejection() is None, "as long as no member has left, all that arrived have nodes"
    gang.barrier.leave("b", "refused")
    rejection = gang.barrier.rejection()
    assert rejection is not None
    assert rejection.message.endswith("only 1 of the 2 pods that it needs have nodes")
    gang.placed = {"a", "d"}
    assert gang.barrier.rejection() is None


@scenario
async def test_a_member_that_was_bound_counts_whatever_becomes_of_it() -> None:
    gang = Gang(2)
    for uid in "ab":
        await gang.arrive(uid)
    gang.barrier.leave("a", "", is_bound=True)
    gang.barrier.leave("c", "deleted")
    gang.placed = {"b"}
    assert gang.barrier.rejection() is None


@scenario
async def test_the_barrier_is_done_when_the_last_member_has_left() -> None:
    gang = Gang(2)
    for uid in ("a", "a", "unknown", "b"):
        gang.barrier.leave(uid, "gone")
        assert gang.emptied == 0
    gang.barrier.leave("c", "gone")
    assert gang.emptied == 1
    await asyncio.sleep(100)
    assert gang.barrier.failure == "pod group g released its reserved nodes: gone"
