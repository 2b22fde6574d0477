"""The event loop of long-running processes: uvloop's where that is installed, else asyncio's."""

from __future__ import annotations

import asyncio
import sys
from types import ModuleType

import pytest

from kubestow import process


class _Loop(asyncio.SelectorEventLoop):
    """Stands for uvloop's."""


def test_without_uvloop_it_is_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = process.new_event_loop()
    loop.close()
    assert isinstance(loop, asyncio.SelectorEventLoop) and not isinstance(loop, _Loop)


def test_uvloop_is_used_if_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = ModuleType("uvloop")
    uvloop.new_event_loop = _Loop  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)

    async def program() -> type[asyncio.AbstractEventLoop]:
        return type(asyncio.get_running_loop())

    assert process.run(program()) is _Loop
