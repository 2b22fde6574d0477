"""The collector: what becomes of samples when a source fails, hangs or returns nonsense."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from datetime import timedelta

import pytest

from kubestow.engine import virtual_time
from kubestow.errors import Unreachable
from kubestow.testing import PluginHarness, node
from kubestow_contrib.node_load.collector import Collector
from kubestow_contrib.node_load.usage import EXPIRATION, UsageSample


class Source:
    """Answers with samples, an error, or not at all."""

    def __init__(self, *answers: Mapping[str, UsageSample] | Exception | None) -> None:
        self.answers = list(answers)

    async def read(self) -> Mapping[str, UsageSample]:
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.get_running_loop().create_future()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer


def collect(harness: PluginHarness) -> None:
    async def work() -> None:
        for periodic in harness.periodic_work:
            await periodic()

    virtual_time.run(work())


def sample(harness: PluginHarness, cpu: float) -> UsageSample:
    return UsageSample(harness.time.timestamp(), cpu)


def test_samples_are_kept_while_the_source_fails_until_they_expire() -> None:
    harness = PluginHarness([node("a")])
    source = Source({"a": sample(harness, 20)}, Unreachable("http://p", "refused"), None, Unreachable("http://p", "x"))
    collector = Collector("Test", harness, source)
    collect(harness)
    assert collector.usage.columns.cpu.tolist() == [20]
    for _ in range(2):
        collect(harness)
        assert collector.usage.columns.cpu.tolist() == [20]
    harness.time += timedelta(seconds=EXPIRATION + 1)
    collect(harness)
    assert math.isnan(collector.usage.columns.cpu[0])


def test_a_source_that_hangs_is_given_up() -> None:
    harness = PluginHarness([node("a")])
    collector = Collector("Test", harness, Source(None))
    collect(harness)
    assert math.isnan(collector.usage.columns.cpu[0])


def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    harness = PluginHarness([node("a")])
    refused = Unreachable("http://p", "refused")
    collector = Collector("Test", harness, Source(refused, refused, None, {}, refused))
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            collect(harness)
    assert collector.usage.samples == {}
    assert [record.message for record in caplog.records] == [
        "plugin Test cannot read node metrics: http://p: refused",
        "plugin Test cannot read node metrics: no answer within 20 s",
        "plugin Test reads node metrics again",
        "plugin Test cannot read node metrics: http://p: refused",
    ]


def test_only_a_change_invalidates_results() -> None:
    harness = PluginHarness([node("a")])
    same = {"a": sample(harness, 20)}
    recent_pods_changed: list[bool] = [False, False, True]
    Collector("Test", harness, Source(same, dict(same), same), lambda: recent_pods_changed.pop(0))
    positions = [harness.cluster.journal.position]
    for _ in range(3):
        collect(harness)
        positions.append(harness.cluster.journal.position)
    assert positions[0] < positions[1] == positions[2] < positions[3]
