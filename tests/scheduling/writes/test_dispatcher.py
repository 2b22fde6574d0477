"""When, in which order and how often writes go out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kubestow.errors import APIError
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.observer import Call
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import node, pod
from tests.scheduling.harness import Answer, Desk, at_a_desk, busy, condition, silence

# -- one object --------------------------------------------------------------------------------------------------------


def test_while_a_status_is_on_its_way_newer_ones_become_one() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "first")
        await asyncio.sleep(0.5)
        desk.says(p, "second", "more", nominated="a")
        desk.says(p, nominated="b")
        desk.says(p, "third")
        await desk.done()
        assert desk.requests == ["first", "more, third, nominated b"]

    at_a_desk(story)


def test_statuses_that_come_together_become_one() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "first", nominated="a")
        desk.says(p, "second")
        await desk.done()
        assert desk.requests == ["second, nominated a"]

    at_a_desk(story)


def test_writes_to_one_object_go_out_one_by_one_and_in_order() -> None:
    async def story(desk: Desk) -> None:
        async def write(what: str) -> None:
            desk.server.asked.append((asyncio.get_running_loop().time(), what))
            await asyncio.sleep(1)

        def to(uid: str, what: str) -> Awaitable[None]:
            return desk.dispatcher.write(uid, Call.OBJECT_WRITE, lambda: write(what))

        await asyncio.gather(*(to("same", what) for what in "abc"), *(to(what, what) for what in "xy"))
        assert desk.server.asked == [(0.0, "a"), (0.0, "x"), (0.0, "y"), (1.0, "b"), (2.0, "c")]

    at_a_desk(story)


def test_a_write_that_is_given_up_lets_the_next_one_pass() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        bound = desk.binds(p)
        await asyncio.sleep(0.5)
        evicted = desk.evicts(p)
        await asyncio.sleep(0.1)
        bound.cancel()
        await evicted
        assert desk.requests == ["bind to n", "evicted", "delete"]

    at_a_desk(story)


# -- bindings ----------------------------------------------------------------------------------------------------------


def test_a_binding_waits_for_the_status_under_way_and_overtakes_the_pending_one() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "under way")
        await asyncio.sleep(0.5)
        desk.says(p, "pending")
        assert (await desk.binds(p)).ok
        await desk.done()
        assert desk.server.asked == [(0.0, "under way"), (1.0, "bind to n")]

    at_a_desk(story)


def test_statuses_asked_for_while_a_pod_is_being_bound_are_pointless() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        bound = desk.binds(p)
        await asyncio.sleep(0.5)
        desk.says(p, "late")
        await bound
        await desk.done()
        assert desk.requests == ["bind to n"]

    at_a_desk(story)


def test_statuses_go_out_when_the_binding_has_failed() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.answers = [Answer(), Answer(failure=busy(403))]
        desk.says(p, "first")
        await asyncio.sleep(0.5)
        desk.says(p, "second", nominated="n")
        bound = desk.binds(p)
        await asyncio.sleep(1)
        desk.says(p, "third")
        assert (await bound).message == "refused with 403"
        await desk.done()
        assert desk.requests == ["first", "bind to n", "third, nominated n"]

    at_a_desk(story)


def test_a_status_that_waits_for_its_next_try_does_not_hold_a_binding_back() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(busy(429, retry_after=60.0))
        desk.says(p, "first")
        await asyncio.sleep(2)
        await desk.binds(p)
        assert desk.server.asked == [(0.0, "first"), (2.0, "bind to n")]

    at_a_desk(story)


def test_while_somebody_else_binds_a_pod_no_status_of_it_is_on_its_way() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "first")
        await asyncio.sleep(0.5)

        async with desk.dispatcher.binding_turn(p.uid) as turn:
            began = asyncio.get_running_loop().time()
            desk.says(p, "second")
            await asyncio.sleep(5)
            assert desk.server.asked == [(0.0, "first")]
            assert began == 1.0
            turn.succeeded()

    at_a_desk(story)


@pytest.mark.parametrize("failure", [busy(409), busy(500), busy(503), silence()])
def test_a_binding_in_doubt_is_not_repeated_but_asked_about(failure: APIError) -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.answers = [Answer(failure=failure, has_effect=True), *[Answer(failure=busy(429))] * 2]
        assert (await desk.binds(p)).ok
        assert desk.requests == ["bind to n", "read", "read", "read"]

    at_a_desk(story)


def test_a_binding_that_was_not_made_has_failed_with_its_own_error() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(silence())
        assert (await desk.binds(p)).message == "server: no answer in time"
        assert desk.requests == ["bind to n", "read"]

    at_a_desk(story)


@pytest.mark.parametrize("code", [403, 404, 429])
def test_a_binding_that_is_refused_is_neither_repeated_nor_in_doubt(code: int) -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(busy(code))
        assert not (await desk.binds(p)).ok
        assert desk.requests == ["bind to n"]

    at_a_desk(story)


def test_a_binding_to_one_node_does_not_stand_for_one_to_another() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        await desk.server.bind(p, "m")
        assert (await desk.binds(p)).message == 'pod p is already assigned to node "m"'

    at_a_desk(story)


def test_no_status_goes_out_before_it_is_known_what_became_of_a_binding() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(silence(), *[silence()] * 3)
        bound = desk.binds(p)
        await asyncio.sleep(2.5)
        desk.says(p, "late")
        await bound
        await desk.done()
        assert desk.requests == ["bind to n", "read", "read", "read", "read", "late"]

    at_a_desk(story)


# -- evictions ---------------------------------------------------------------------------------------------------------


def test_a_victim_is_told_why_before_it_is_deleted_and_nothing_after() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "under way")
        await asyncio.sleep(0.5)
        desk.says(p, "pending")
        await desk.evicts(p)
        await desk.done()
        assert desk.requests == ["under way", "evicted", "delete"]

    at_a_desk(story)


def test_a_victim_that_was_told_already_is_not_told_again() -> None:
    async def story(desk: Desk) -> None:
        told = condition("evicted", "DisruptionTarget")
        p = desk.puts(pod("p", node="n", status={"conditions": [{"type": told.type, "message": told.message}]}))
        desk.server.put(pod("p", node="n"))
        await desk.dispatcher.evict(desk.known[p.uid], desk.known[p.uid].status.conditions[0])
        assert desk.requests == ["delete"]

    at_a_desk(story)


def test_an_eviction_is_tried_again_where_that_may_help() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p", node="n"))
        desk.server.answers = [
            Answer(failure=busy(409)),
            Answer(),
            Answer(failure=silence(), has_effect=True),
        ]
        await desk.evicts(p)
        assert desk.requests == ["evicted", "evicted", "delete", "delete"]

    at_a_desk(story)


@pytest.mark.parametrize("code", [403, 404])
def test_an_eviction_ends_with_the_refusal_that_is_final(code: int) -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p", node="n"))
        desk.server.fails(busy(code))
        with pytest.raises(APIError, match=f"refused with {code}"):
            await desk.evicts(p)
        assert desk.requests == ["evicted"]

    at_a_desk(story)


# -- how many at once, and who is told ---------------------------------------------------------------------------------


def test_many_statuses_wait_for_each_other_but_no_binding_waits_for_them() -> None:
    async def story(desk: Desk) -> None:
        pods = [desk.puts(pod(f"p{number}")) for number in range(100)]
        for p in pods:
            desk.says(p, "pending")
        await asyncio.sleep(0.5)
        assert desk.requests == ["pending"] * 16
        await desk.binds(pods[-1])
        assert desk.server.asked[-1] != (0.5, "bind to n")
        assert (0.5, "bind to n") in desk.server.asked
        await desk.done()
        assert desk.requests.count("pending") == 99

    at_a_desk(story)


def test_whoever_watches_is_told_of_every_try_and_may_see_what_is_pending() -> None:
    async def story(desk: Desk) -> None:
        p, q = desk.puts(pod("p")), desk.puts(pod("q"))
        desk.server.fails(busy())
        desk.says(p, "first")
        bound = desk.binds(q)
        await asyncio.sleep(0.5)
        assert desk.dispatcher.pending_calls() == {Call.POD_STATUS_PATCH: 1, Call.POD_BINDING: 1}
        await bound
        await desk.done()
        statuses = [succeeded for call, succeeded, _ in desk.told if call is Call.POD_STATUS_PATCH]
        assert statuses == [False, True]
        assert [round(seconds, 6) for _, _, seconds in desk.told] == [1.0] * 3

    at_a_desk(story)


def test_a_dispatcher_that_is_closed_begins_nothing() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.dispatcher.close()
        desk.says(p, "too late")
        await desk.done()
        assert desk.requests == []

    at_a_desk(story)


def test_an_object_is_patched_once_whatever_comes_of_it() -> None:
    async def story(desk: Desk) -> None:
        n = node("n")
        desk.server.put(n)
        desk.server.fails(busy())
        subject = ObjectReference("Node", "", "n", n.metadata.uid)
        with pytest.raises(APIError):
            await desk.dispatcher.write(
                subject.uid, Call.OBJECT_WRITE, lambda: desk.server.patch(NODES, subject, {"metadata": {}})
            )
        assert desk.requests == ["patch n"]

    at_a_desk(story)
