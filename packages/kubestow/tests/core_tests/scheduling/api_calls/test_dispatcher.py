"""Order, concurrency and retries of the requests that the dispatcher sends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from core_tests.scheduling.api_calls.harness import (
    DispatcherHarness,
    Response,
    api_error,
    condition,
    unreachable,
    with_dispatcher,
)
from core_tests.scheduling.queue.test_minor_versions import around
from kubestow.errors import APIError
from kubestow.framework.status import SUCCESS, Status
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Call
from kubestow.testing import node, pod

# -- one object --------------------------------------------------------------------------------------------------------


def test_patches_queued_behind_one_in_flight_are_merged() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "first")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "second", "more", nominated="a")
        harness.patch_status(p, nominated="b")
        harness.patch_status(p, "third")
        await harness.drain()
        assert harness.server.received == [(0.0, "first"), (1.0, "more, third, nominated b")]

    with_dispatcher(scenario)


def test_patches_queued_at_once_are_merged() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "first", nominated="a")
        harness.patch_status(p, "second")
        await harness.drain()
        assert harness.requests == ["second, nominated a"]

    with_dispatcher(scenario)


def test_writes_to_one_object_are_sent_one_at_a_time_in_order() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        async def write(what: str) -> None:
            harness.server.received.append((asyncio.get_running_loop().time(), what))
            await asyncio.sleep(1)

        def to(uid: str, what: str) -> Awaitable[None]:
            return harness.dispatcher.write(uid, Call.OBJECT_WRITE, lambda: write(what))

        await asyncio.gather(*(to("same", what) for what in "abc"), *(to(what, what) for what in "xy"))
        assert harness.server.received == [(0.0, "a"), (0.0, "x"), (0.0, "y"), (1.0, "b"), (2.0, "c")]

    with_dispatcher(scenario)


def test_a_cancelled_write_releases_the_next_one() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        bound = harness.start_binding(p)
        await asyncio.sleep(0.5)
        evicted = harness.start_eviction(p)
        await asyncio.sleep(0.1)
        bound.cancel()
        await evicted
        assert harness.requests == ["bind to n", "evicted", "delete"]

    with_dispatcher(scenario)


# -- bindings ----------------------------------------------------------------------------------------------------------


def test_a_binding_waits_for_the_patch_in_flight_and_overtakes_the_pending_one() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "in flight")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "pending")
        assert (await harness.start_binding(p)).ok
        await harness.drain()
        assert harness.server.received == [(0.0, "in flight"), (1.0, "bind to n")]

    with_dispatcher(scenario)


def test_patches_requested_during_a_successful_binding_are_dropped() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        bound = harness.start_binding(p)
        await asyncio.sleep(0.5)
        harness.patch_status(p, "late")
        await bound
        await harness.drain()
        assert harness.requests == ["bind to n"]

    with_dispatcher(scenario)


def test_patches_are_sent_after_the_binding_has_failed() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.responses = [Response(), Response(failure=api_error(403))]
        harness.patch_status(p, "first")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "second", nominated="n")
        bound = harness.start_binding(p)
        await asyncio.sleep(1)
        harness.patch_status(p, "third")
        assert (await bound).message == "rejected with 403"
        await harness.drain()
        assert harness.requests == ["first", "bind to n", "third, nominated n"]

    with_dispatcher(scenario)


def test_a_patch_waiting_for_a_retry_does_not_delay_a_binding() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(api_error(429, retry_after=60.0))
        harness.patch_status(p, "first")
        await asyncio.sleep(2)
        await harness.start_binding(p)
        assert harness.server.received == [(0.0, "first"), (2.0, "bind to n")]

    with_dispatcher(scenario)


def test_no_patch_is_sent_while_an_extender_or_plugin_binds_the_pod() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "first")
        await asyncio.sleep(0.5)

        async def bind_otherwise() -> Status:
            began = asyncio.get_running_loop().time()
            harness.patch_status(p, "second")
            await asyncio.sleep(5)
            assert harness.server.received == [(0.0, "first")]
            assert began == 1.0
            return SUCCESS

        assert (await harness.dispatcher.run_in_binding_turn(p.uid, bind_otherwise)).ok

    with_dispatcher(scenario)


@pytest.mark.parametrize("failure", [api_error(409), api_error(500), api_error(503), unreachable()])
def test_a_binding_in_doubt_is_verified_by_reading_the_pod(failure: APIError) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.responses = [Response(failure=failure, has_effect=True), *[Response(failure=api_error(429))] * 2]
        assert (await harness.start_binding(p)).ok
        assert harness.requests == ["bind to n", "read", "read", "read"]

    with_dispatcher(scenario)


def test_a_binding_without_effect_fails_with_its_original_error() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(unreachable())
        assert (await harness.start_binding(p)).message == "server: no answer in time"
        assert harness.requests == ["bind to n", "read"]

    with_dispatcher(scenario)


@pytest.mark.parametrize("code", [403, 404, 429])
def test_a_rejected_binding_is_neither_retried_nor_verified(code: int) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(api_error(code))
        assert not (await harness.start_binding(p)).ok
        assert harness.requests == ["bind to n"]

    with_dispatcher(scenario)


@around(Behaviour.BINDINGS_ARE_RETRIED)
@pytest.mark.parametrize("failure", [api_error(409), api_error(429), api_error(500), api_error(503), unreachable()])
def test_a_binding_that_fails_for_the_moment_is_retried(failure: APIError, minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(failure)
        assert (await harness.start_binding(p)).ok is has_behaviour
        assert harness.requests.count("bind to n") == (2 if has_behaviour else 1)

    with_dispatcher(scenario, minor)


def test_a_binding_is_retried_three_times_and_not_if_it_is_refused() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(*[api_error(429)] * 9)
        assert not (await harness.start_binding(p)).ok
        assert harness.requests == ["bind to n"] * 4
        harness.server.responses.clear()
        harness.server.fail_next(api_error(403))
        assert not (await harness.start_binding(p)).ok
        assert harness.requests == ["bind to n"] * 5

    with_dispatcher(scenario, Behaviour.BINDINGS_ARE_RETRIED.since)


def test_a_pod_bound_to_another_node_fails_the_binding() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        await harness.server.bind(p, "m")
        assert (await harness.start_binding(p)).message == 'pod p is already assigned to node "m"'

    with_dispatcher(scenario)


def test_no_patch_is_sent_while_a_binding_is_in_doubt() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(unreachable(), *[unreachable()] * 3)
        bound = harness.start_binding(p)
        await asyncio.sleep(2.5)
        harness.patch_status(p, "late")
        await bound
        await harness.drain()
        assert harness.requests == ["bind to n", "read", "read", "read", "read", "late"]

    with_dispatcher(scenario)


# -- evictions ---------------------------------------------------------------------------------------------------------


def test_a_victim_gets_its_condition_before_its_deletion_and_no_later_patch() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "in flight")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "pending")
        await harness.start_eviction(p)
        await harness.drain()
        assert harness.requests == ["in flight", "evicted", "delete"]
        assert not harness.dispatcher.pending_calls()

    with_dispatcher(scenario)


def test_a_victim_that_has_the_condition_already_is_only_deleted() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        existing = condition("evicted", "DisruptionTarget")
        p = harness.create_pod(
            pod("p", node="n", status={"conditions": [{"type": existing.type, "message": existing.message}]})
        )
        harness.server.put(pod("p", node="n"))
        await harness.dispatcher.evict(harness.known[p.uid], harness.known[p.uid].status.conditions[0])
        assert harness.requests == ["delete"]

    with_dispatcher(scenario)


def test_an_eviction_is_retried_after_retriable_errors() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p", node="n"))
        harness.server.responses = [
            Response(failure=api_error(409)),
            Response(),
            Response(failure=unreachable(), has_effect=True),
        ]
        await harness.start_eviction(p)
        assert harness.requests == ["evicted", "evicted", "delete", "delete"]

    with_dispatcher(scenario)


@pytest.mark.parametrize("code", [403, 404])
def test_an_eviction_fails_with_the_first_final_error(code: int) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p", node="n"))
        harness.server.fail_next(api_error(code))
        with pytest.raises(APIError, match=f"rejected with {code}"):
            await harness.start_eviction(p)
        assert harness.requests == ["evicted"]

    with_dispatcher(scenario)


# -- concurrency and observation ---------------------------------------------------------------------------------------


def test_concurrent_patches_are_limited_and_do_not_delay_bindings() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        pods = [harness.create_pod(pod(f"p{number}")) for number in range(100)]
        for p in pods:
            harness.patch_status(p, "pending")
        await asyncio.sleep(0.5)
        assert harness.requests == ["pending"] * 16
        await harness.start_binding(pods[-1])
        assert harness.server.received[-1] != (0.5, "bind to n")
        assert (0.5, "bind to n") in harness.server.received
        await harness.drain()
        assert harness.requests.count("pending") == 99

    with_dispatcher(scenario)


def test_the_observer_sees_every_attempt_and_the_pending_calls_are_counted() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p, q = harness.create_pod(pod("p")), harness.create_pod(pod("q"))
        harness.server.fail_next(api_error())
        harness.patch_status(p, "first")
        bound = harness.start_binding(q)
        await asyncio.sleep(0.5)
        assert harness.dispatcher.pending_calls() == {Call.POD_STATUS_PATCH: 1, Call.POD_BINDING: 1}
        await bound
        await harness.drain()
        statuses = [succeeded for call, succeeded, _ in harness.observed_calls if call is Call.POD_STATUS_PATCH]
        assert statuses == [False, True]
        assert [round(seconds, 6) for _, _, seconds in harness.observed_calls] == [1.0] * 3

    with_dispatcher(scenario)


def test_a_closed_dispatcher_sends_nothing() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.dispatcher.close()
        harness.patch_status(p, "too late")
        await harness.drain()
        assert harness.requests == []

    with_dispatcher(scenario)


def test_an_object_patch_is_not_retried() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        n = node("n")
        harness.server.put(n)
        harness.server.fail_next(api_error())
        subject = ObjectReference("Node", "", "n", n.metadata.uid)
        with pytest.raises(APIError):
            await harness.dispatcher.write(
                subject.uid, Call.OBJECT_WRITE, lambda: harness.server.patch(NODES, subject, {"metadata": {}})
            )
        assert harness.requests == ["patch n"]

    with_dispatcher(scenario)
