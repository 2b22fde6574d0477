"""Status patches of pods: which changes are sent, how often they are retried, and which are dropped."""

from __future__ import annotations

import asyncio
import logging

import pytest

from core_tests.scheduling.api_calls.harness import (
    DispatcherHarness,
    Response,
    api_error,
    status_patch,
    unreachable,
    with_dispatcher,
)
from kubestow.errors import KubestowError
from kubestow.testing import pod

FALSE = {"type": "PodScheduled", "status": "False", "reason": "Because", "message": "as ever"}


def test_a_status_equal_to_the_current_one_is_not_patched() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        since = FALSE | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        p = harness.create_pod(pod("p", nominated="a", status={"conditions": [since]}))
        harness.patch_status(p, "as ever")
        harness.patch_status(p, nominated="a")
        assert harness.dispatcher.tasks == []

    with_dispatcher(scenario)


def test_only_changed_fields_are_patched() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p", nominated="a", status={"conditions": [FALSE]}))
        harness.patch_status(p, "as ever", nominated="b")
        await harness.drain()
        harness.patch_status(p, "changed", nominated=None)
        await harness.drain()
        assert harness.requests == ["nominated b", "changed"]

    with_dispatcher(scenario)


def test_a_pending_patch_that_was_reverted_is_not_sent() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, nominated="a")
        harness.patch_status(p, nominated="")
        await harness.drain()
        assert harness.requests == []

    with_dispatcher(scenario)


def test_a_status_that_equals_only_a_stale_watch_state_is_patched() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p", nominated="a"))
        harness.patch_status(p, nominated="")
        await harness.drain()
        harness.patch_status(p, "between")
        await harness.drain()
        harness.patch_status(p, nominated="a")
        await harness.drain()
        assert harness.requests == ["nominated", "between", "nominated a"]
        harness.sync_watch()
        assert harness.known[p.uid].status.nominated_node_name == "a"

    with_dispatcher(scenario)


def test_a_condition_that_was_replaced_meanwhile_is_patched_again() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p", status={"conditions": [FALSE]}))
        harness.patch_status(p, "changed")
        await harness.drain()
        harness.patch_status(p, "as ever")
        await harness.drain()
        assert harness.requests == ["changed", "as ever"]

    with_dispatcher(scenario)


def test_a_status_that_changes_while_another_is_sent_follows_it_at_once() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "first")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "second")
        await harness.drain()
        assert harness.server.received == [(0.0, "first"), (1.0, "second")]
        assert asyncio.get_running_loop().time() == 2.0

    with_dispatcher(scenario)


@pytest.mark.parametrize("outcome", ["bound", "deleted"])
def test_pending_patches_of_a_bound_or_deleted_pod_are_dropped(outcome: str) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.patch_status(p, "in flight")
        await asyncio.sleep(0.5)
        harness.patch_status(p, "pending")
        if outcome == "bound":
            harness.server.put(pod("p", node="elsewhere"))
        else:
            harness.server.remove(harness.server.pod("p"))
        harness.sync_watch()
        harness.patch_status(p, "later still")
        await harness.drain()
        assert harness.requests == ["in flight"]

    with_dispatcher(scenario)


def test_a_failed_patch_is_not_retried_once_the_pod_is_bound_or_deleted() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(api_error(409))
        harness.patch_status(p, "in flight")
        await asyncio.sleep(0.5)
        harness.server.remove(harness.server.pod("p"))
        harness.sync_watch()
        await harness.drain()
        assert harness.requests == ["in flight"]

    with_dispatcher(scenario)


def test_a_status_patch_is_given_up_after_four_attempts(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        harness.server.fail_next(api_error(409), api_error(500), unreachable(), api_error(503), api_error(503))
        harness.patch_status(harness.create_pod(pod("p")), "in vain")
        await harness.drain()
        assert harness.requests == ["in vain"] * 4

    with caplog.at_level(logging.WARNING):
        with_dispatcher(scenario)
    assert [record.getMessage() for record in caplog.records] == [
        "status of pod default/p not updated: rejected with 503"
    ]


def test_a_newer_status_replaces_the_one_being_retried_with_a_fresh_retry_budget() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(*[api_error()] * 6)
        harness.patch_status(p, "first", nominated="a")
        await asyncio.sleep(3.5)
        harness.patch_status(p, "second")
        await harness.drain()
        assert harness.requests == ["first, nominated a"] * 4 + ["second, nominated a"] * 3

    with_dispatcher(scenario)


@pytest.mark.parametrize(("failure", "logged"), [(api_error(404), 0), (api_error(403), 1)])
def test_a_patch_of_a_deleted_pod_is_dropped_silently(
    failure: KubestowError, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        harness.server.fail_next(failure)
        harness.patch_status(harness.create_pod(pod("p")), "once")
        await harness.drain()
        assert harness.requests == ["once"]

    with caplog.at_level(logging.WARNING):
        with_dispatcher(scenario)
    assert len(caplog.records) == logged


def test_a_patch_is_retried_after_the_servers_retry_after() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        harness.server.responses = [Response(seconds=0.0, failure=api_error(429, retry_after=30.0))]
        harness.patch_status(harness.create_pod(pod("p")), "waiting")
        await harness.drain()
        assert harness.server.received == [(0.0, "waiting"), (30.0, "waiting")]

    with_dispatcher(scenario)


def test_a_patch_that_lets_a_binding_go_first_is_sent_when_that_has_failed() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        *others, p = [harness.create_pod(pod(f"p{number}")) for number in range(17)]
        for other in others:
            harness.patch_status(other, "in a slot")
        harness.patch_status(p, "waits for a slot")
        await asyncio.sleep(0.5)
        harness.server.fail_next(api_error(403))
        binding = harness.start_binding(p)
        await harness.drain()
        assert not (await binding).ok
        assert harness.server.received[16:] == [(0.5, "bind to n"), (1.5, "waits for a slot")]

    with_dispatcher(scenario)


def test_patches_waiting_for_a_retry_do_not_delay_other_patches() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        pods = [harness.create_pod(pod(f"p{number}")) for number in range(32)]
        harness.server.fail_next(*[api_error(429, retry_after=60.0)] * 16)
        for p in pods:
            harness.patch_status(p, "pending")
        await asyncio.sleep(30)
        assert [second for second, _ in harness.server.received] == [0.0] * 16 + [1.0] * 16
        await harness.drain()
        assert len(harness.server.received) == 48

    with_dispatcher(scenario)


def test_a_patch_that_failed_for_good_is_sent_when_it_is_requested_again() -> None:
    async def scenario(harness: DispatcherHarness) -> None:
        p = harness.create_pod(pod("p"))
        harness.server.fail_next(api_error(403))
        harness.patch_status(p, "again")
        await harness.drain()
        harness.patch_status(p, "again")
        await harness.drain()
        assert harness.server.pod("p").status.conditions == list(status_patch("again").conditions)

    with_dispatcher(scenario)
