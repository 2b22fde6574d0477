"""Questions about the cluster are asked again when there is news, and only then."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.scheduling.events.change_notifier import ChangeNotifier
from kubestow.testing.virtual_time import run


def test_a_condition_that_holds_already_is_returned_without_waiting() -> None:
    assert run(ChangeNotifier().wait_for(lambda: "yes", 0)) == "yes"


def test_changes_in_one_iteration_of_the_loop_are_one_notification() -> None:
    asked = []

    def answer() -> int | None:
        asked.append(1)
        return len(asked) if len(asked) > 2 else None

    async def scenario() -> int | None:
        news = ChangeNotifier()
        waiting = asyncio.create_task(news.wait_for(answer, 10))
        await asyncio.sleep(0)
        for _ in range(2):
            for _ in range(5):
                news.changed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await waiting

    assert run(scenario()) == 3


def test_waiting_ends_at_the_timeout() -> None:
    assert run(ChangeNotifier().wait_for(lambda: None, 60)) is None


def test_an_exception_in_the_condition_propagates_to_the_waiter() -> None:
    state = {"broken": False}

    def answer() -> str | None:
        if state["broken"]:
            raise ValueError("broken")
        return None

    async def scenario() -> None:
        news = ChangeNotifier()
        waiting = asyncio.create_task(news.wait_for(answer, 10))
        await asyncio.sleep(0)
        state["broken"] = True
        news.changed()
        await waiting

    with pytest.raises(ValueError, match="broken"):
        run(scenario())
