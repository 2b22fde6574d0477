"""Statuses of pods: what is written of them, how often it is tried, and what is not worth a request."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubestow.errors import KubestowError
from kubestow.testing import pod
from tests.scheduling.harness import Answer, Desk, at_a_desk, busy, said, silence

FALSE = {"type": "PodScheduled", "status": "False", "reason": "Because", "message": "as ever"}


def test_a_status_that_is_there_already_is_not_written() -> None:
    async def story(desk: Desk) -> None:
        since = FALSE | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        p = desk.puts(pod("p", nominated="a", status={"conditions": [since]}))
        desk.says(p, "as ever")
        desk.says(p, nominated="a")
        assert desk.dispatcher.tasks == []

    at_a_desk(story)


def test_only_what_changes_is_written() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p", nominated="a", status={"conditions": [FALSE]}))
        desk.says(p, "as ever", nominated="b")
        await desk.done()
        desk.says(p, "changed", nominated=None)
        await desk.done()
        assert desk.requests == ["nominated b", "changed"]

    at_a_desk(story)


def test_what_has_been_taken_back_before_it_went_out_is_not_written() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, nominated="a")
        desk.says(p, nominated="")
        await desk.done()
        assert desk.requests == []

    at_a_desk(story)


def test_what_the_watch_shows_only_because_it_is_late_is_written_again() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p", nominated="a"))
        desk.says(p, nominated="")
        await desk.done()
        desk.says(p, "meanwhile")
        await desk.done()
        desk.says(p, nominated="a")
        await desk.done()
        assert desk.requests == ["nominated", "meanwhile", "nominated a"]
        desk.watch_catches_up()
        assert desk.known[p.uid].status.nominated_node_name == "a"

    at_a_desk(story)


def test_a_condition_that_another_one_replaced_meanwhile_is_written_again() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p", status={"conditions": [FALSE]}))
        desk.says(p, "changed")
        await desk.done()
        desk.says(p, "as ever")
        await desk.done()
        assert desk.requests == ["changed", "as ever"]

    at_a_desk(story)


@pytest.mark.parametrize("outcome", ["bound", "gone"])
def test_what_is_pending_of_a_pod_that_is_settled_is_pointless(outcome: str) -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.says(p, "under way")
        await asyncio.sleep(0.5)
        desk.says(p, "pending")
        if outcome == "bound":
            desk.server.put(pod("p", node="elsewhere"))
        else:
            desk.server.remove(desk.server.pod("p"))
        desk.watch_catches_up()
        desk.says(p, "later still")
        await desk.done()
        assert desk.requests == ["under way"]

    at_a_desk(story)


def test_a_status_that_fails_is_not_tried_again_once_the_pod_is_settled() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(busy(409))
        desk.says(p, "under way")
        await asyncio.sleep(0.5)
        desk.server.remove(desk.server.pod("p"))
        desk.watch_catches_up()
        await desk.done()
        assert desk.requests == ["under way"]

    at_a_desk(story)


def test_a_status_is_tried_four_times_and_then_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def story(desk: Desk) -> None:
        desk.server.fails(busy(409), busy(500), silence(), busy(503), busy(503))
        desk.says(desk.puts(pod("p")), "in vain")
        await desk.done()
        assert desk.requests == ["in vain"] * 4

    with caplog.at_level(logging.WARNING):
        at_a_desk(story)
    assert [record.getMessage() for record in caplog.records] == [
        "status of pod default/p not updated: refused with 503"
    ]


def test_between_two_tries_a_newer_status_takes_over_with_all_its_tries() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(*[busy()] * 6)
        desk.says(p, "first", nominated="a")
        await asyncio.sleep(3.5)
        desk.says(p, "second")
        await desk.done()
        assert desk.requests == ["first, nominated a"] * 4 + ["second, nominated a"] * 3

    at_a_desk(story)


@pytest.mark.parametrize(("failure", "logged"), [(busy(404), 0), (busy(403), 1)])
def test_a_status_of_a_pod_that_is_gone_is_let_go_without_a_word(
    failure: KubestowError, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(desk: Desk) -> None:
        desk.server.fails(failure)
        desk.says(desk.puts(pod("p")), "once")
        await desk.done()
        assert desk.requests == ["once"]

    with caplog.at_level(logging.WARNING):
        at_a_desk(story)
    assert len(caplog.records) == logged


def test_a_status_waits_as_long_as_the_server_asks_it_to() -> None:
    async def story(desk: Desk) -> None:
        desk.server.answers = [Answer(seconds=0.0, failure=busy(429, retry_after=30.0))]
        desk.says(desk.puts(pod("p")), "patient")
        await desk.done()
        assert desk.server.asked == [(0.0, "patient"), (30.0, "patient")]

    at_a_desk(story)


def test_statuses_that_wait_for_their_next_try_hold_no_others_up() -> None:
    async def story(desk: Desk) -> None:
        pods = [desk.puts(pod(f"p{number}")) for number in range(32)]
        desk.server.fails(*[busy(429, retry_after=60.0)] * 16)
        for p in pods:
            desk.says(p, "pending")
        await asyncio.sleep(30)
        assert [second for second, _ in desk.server.asked] == [0.0] * 16 + [1.0] * 16
        await desk.done()
        assert len(desk.server.asked) == 48

    at_a_desk(story)


def test_a_status_that_was_lost_in_vain_is_written_when_it_is_asked_for_again() -> None:
    async def story(desk: Desk) -> None:
        p = desk.puts(pod("p"))
        desk.server.fails(busy(403))
        desk.says(p, "again")
        await desk.done()
        desk.says(p, "again")
        await desk.done()
        assert desk.server.pod("p").status.conditions == list(said("again").conditions)

    at_a_desk(story)
