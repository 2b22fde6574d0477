"""Questions about the cluster are asked again when there is news, and only then."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.scheduling.events.change_notifier import ChangeNotifier
from kubestow.testing.virtual_time import run


def test_an_answer_that_is_there_is_not_waited_for() -> None:
    assert run(ChangeNotifier().wait_for(lambda: "yes", 0)) == "yes"


def test_many_events_are_one_piece_of_news() -> None:
    asked = []

    def answer() -> int | None:
        asked.append(1)
        return len(asked) if len(asked) > 2 else None

    async def story() -> int | None:
        news = ChangeNotifier()
        waiting = asyncio.create_task(news.wait_for(answer, 10))
        await asyncio.sleep(0)
        for _ in range(2):
            for _ in range(5):
                news.changed()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return await waiting

    assert run(story()) == 3


def test_without_an_answer_the_time_runs_out() -> None:
    assert run(ChangeNotifier().wait_for(lambda: None, 60)) is None


def test_what_the_question_raises_reaches_whoever_asked() -> None:
    state = {"broken": False}

    def answer() -> str | None:
        if state["broken"]:
            raise ValueError("broken")
        return None

    async def story() -> None:
        news = ChangeNotifier()
        waiting = asyncio.create_task(news.wait_for(answer, 10))
        await asyncio.sleep(0)
        state["broken"] = True
        news.changed()
        await waiting

    with pytest.raises(ValueError, match="broken"):
        run(story())
