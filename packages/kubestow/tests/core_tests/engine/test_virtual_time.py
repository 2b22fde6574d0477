"""The event loop with virtual time."""

from __future__ import annotations

import asyncio

import pytest

from kubestow.engine.virtual_time import Deadlock, VirtualTimeLoop, run


@pytest.mark.parametrize("seconds", [0.5, 90_000.0, 1.6e7, 2e7, 3e9])
def test_a_sleep_ends_at_its_time(seconds: float) -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(seconds)
        first = loop.time()
        await asyncio.sleep(0.25)
        return first, loop.time()

    assert list(run(main())) == pytest.approx([seconds, seconds + 0.25])


def test_work_for_a_thread_is_done_at_once() -> None:
    def fails() -> None:
        raise ValueError("of the work")

    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with pytest.raises(ValueError, match="of the work"):
            await loop.run_in_executor(None, fails)
        result = await loop.run_in_executor(None, len, "abc")
        assert loop.time() == 0.0
        return result

    assert run(main()) == 3


def test_a_loop_without_a_timer_does_not_block() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="all tasks wait and no timer is scheduled"):
        run(main())


def test_there_is_no_network() -> None:
    async def main() -> None:
        await asyncio.open_connection("example.com", 80)

    with pytest.raises(OSError, match="there is no network in virtual time"):
        run(main())
