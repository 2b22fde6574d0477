"""Plugins that raise or return nonsense in an extender: the request fails, and the server goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from core_tests.extender.test_server import POD, extending, go_node, serving
from core_tests.scheduling.test_hostile_plugins import BEHAVIOURS, METHODS, close_coroutines, misbehaving

#: A coroutine that a plugin returns where none is expected is never awaited.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of logged tracebacks take longer than the tests. No later test is warned of coroutines of this one."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    close_coroutines()


#: What an extender calls. The others are not served.
SERVED = ["applies_to", "signature", "pre_filter", "filter", "pre_score", "score", "normalize"]


@pytest.mark.parametrize("at", SERVED)
async def test_the_extender_goes_on(at: str) -> None:
    assert at in METHODS
    for behave in BEHAVIOURS:
        async with serving(extending(misbehaving(at, behave), node_cache_capable=False)) as client:
            for verb in ("filter", "prioritize"):
                status, text = await client.post(verb, {"Pod": POD, "Nodes": {"items": [go_node("a"), go_node("b")]}})
                assert status in (200, 500) and "Traceback" not in text
            assert await client.get("healthz") == 200
