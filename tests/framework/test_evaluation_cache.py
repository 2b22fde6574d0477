"""The cache of evaluations is bounded, whatever pods tenants create."""

from __future__ import annotations

import gc

import pytest

from kubestow.framework.evaluation import evaluation_cache
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.testing import PluginHarness, node, pod


def results_alive() -> int:
    gc.collect()
    return sum(isinstance(each, PluginResults) for each in gc.get_objects())


def test_evaluations_and_plugin_results_are_dropped_with_the_least_recently_used_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation_cache, "_BUDGET", 0)
    harness = PluginHarness([node("a"), node("b")])
    evaluations = harness.profiles["default-scheduler"].evaluations
    before = results_alive()
    infos = [harness.info(pod(f"p{number}", cpu=f"{number + 1}m", labels={"n": str(number)})) for number in range(100)]
    first = evaluations.of(harness.cluster, infos[0])
    alive = []
    for start in (0, 50):
        for info in infos[start : start + 50]:
            evaluations.of(harness.cluster, info)
        alive.append(results_alive() - before)
    assert alive[0] == alive[1]
    assert evaluations.of(harness.cluster, infos[99]) is evaluations.of(harness.cluster, infos[99])
    assert evaluations.of(harness.cluster, infos[0]) is not first
