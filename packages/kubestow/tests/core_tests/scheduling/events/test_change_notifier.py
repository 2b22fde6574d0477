"""Conditions on the cluster are evaluated again after a change, and only then."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.scheduling.background_work import ChangeNotifier
from kubestow.testing.virtual_time import run


def test_a_condition_that_holds_already_is_returned_without_waiting() -> None:
    assert run(ChangeNotifier().wait_for(lambda: "yes", 0)) == "yes"


def test_changes_in_one_iteration_of_the_loop_are_one_notification() -> None:
    calls = []

    def evaluate() -> int | None:
        calls.append(1)
        return len(calls) if len(calls) > 2 else None

    async def scenario() -> int | None:
        notifier = ChangeNotifier()
        waiting = asyncio.create_task(notifier.wait_for(evaluate, 10))
        await asyncio.sleep(0)
        for _ in range(2):
            for _ in range(5):
                notifier.changed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await waiting

    assert run(scenario()) == 3


def test_waiting_ends_at_the_timeout() -> None:
    assert run(ChangeNotifier().wait_for(lambda: None, 60)) is None


def test_an_exception_in_the_condition_propagates_to_the_waiter() -> None:
    state = {"broken": False}

    def evaluate() -> str | None:
        if state["broken"]:
            raise ValueError("broken")
        return None

    async def scenario() -> None:
        notifier = ChangeNotifier()
        waiting = asyncio.create_task(notifier.wait_for(evaluate, 10))
        await asyncio.sleep(0)
        state["broken"] = True
        notifier.changed()
        await waiting

    with pytest.raises(ValueError, match="broken"):
        run(scenario())
