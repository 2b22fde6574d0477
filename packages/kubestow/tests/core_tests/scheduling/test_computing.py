"""Long computations of plugins: beside the event loop, at once in virtual time, and as recorded in a replay."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubestow.scheduling.environment import ComputingAtOnce, ComputingInThreads
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


async def test_the_event_loop_goes_on_during_a_computation_in_a_thread() -> None:
    is_released, threads = threading.Event(), list[threading.Thread]()

    def computation() -> None:
        is_released.wait()
        threads.append(threading.current_thread())

    computing = asyncio.create_task(ComputingInThreads().run(computation))
    await asyncio.sleep(0)
    assert not computing.done()
    is_released.set()
    await computing

    [thread] = threads
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_a_computation_whose_task_is_cancelled_ends_by_itself() -> None:
    is_released, has_ended = threading.Event(), threading.Event()

    def computation() -> None:
        is_released.wait()
        has_ended.set()

    computing = asyncio.create_task(ComputingInThreads().run(computation))
    await asyncio.sleep(0)
    computing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await computing
    is_released.set()
    await asyncio.get_running_loop().run_in_executor(None, has_ended.wait)


async def test_a_computation_at_once_has_ended_before_anything_else_runs() -> None:
    events: list[str] = []
    asyncio.get_running_loop().call_soon(events.append, "turn")
    await ComputingAtOnce().run(lambda: events.append("computation"))
    events.append("continued")
    await asyncio.sleep(0)

    assert events == ["computation", "continued", "turn"]


@pytest.mark.parametrize("error", [ValueError("too large"), SystemExit(3)])
def test_a_plugin_gets_what_its_computation_returns_or_raises(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def scenario(harness: SchedulerHarness) -> None:
        handle = next(iter(harness.scheduler.profiles.values())).plugins[0].handle
        assert await handle.compute(lambda: 6 * 7) == 42
        with pytest.raises(type(error)) as raised:
            await handle.compute(fail)
        assert raised.value is error

    in_virtual_time(scenario)
