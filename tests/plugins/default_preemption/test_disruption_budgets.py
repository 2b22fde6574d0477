"""Disruption budgets: which evictions violate one."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.pods.table import PodChanges
from kubestow.plugins.default_preemption.disruption_budgets import DisruptionBudgets
from kubestow.testing import PluginHarness, pod

APP = {"matchLabels": {"app": "db"}}


def db(name: str, **more: Any) -> Pod:
    """A pod that the budget's selector matches."""
    return pod(name, labels={"app": "db"}, **more)


def violated(
    *rows: list[Pod], selector: Any = APP, allowed: int = 0, namespace: str = "default", disrupted: tuple[str, ...] = ()
) -> list[str]:
    """The names of the pods whose eviction violates one budget."""
    harness = PluginHarness()
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")}
    metadata = {"name": "budget", "namespace": namespace}
    manifest = {"metadata": metadata, "spec": {"selector": selector}, "status": status}
    harness.cluster.catalog(PodDisruptionBudget).put(convert(PodDisruptionBudget, manifest))
    deltas = PodChanges.of([[harness.info(each) for each in row] for row in rows], -1)
    violating = DisruptionBudgets(harness.cluster.catalog(PodDisruptionBudget)).violated(deltas)
    return [info.name for info, violates in zip(deltas.infos, violating.tolist(), strict=True) if violates]


def test_a_budget_allows_its_disruptions_on_each_node_separately() -> None:
    assert violated([db("a"), db("b")], [db("c")], allowed=1) == ["b"]


def test_a_negative_budget_allows_no_disruption() -> None:
    assert violated([db("a")], allowed=-1) == ["a"]


def test_a_disrupted_pod_does_not_use_up_the_budget() -> None:
    assert violated([db("a"), db("b"), db("c")], allowed=1, disrupted=("a",)) == ["c"]


def test_other_namespaces_are_not_covered() -> None:
    assert not violated([db("a")], namespace="elsewhere")


@pytest.mark.parametrize("selector", [None, {}, {"matchExpressions": [{"key": "app", "operator": "Like"}]}])
def test_a_selector_that_is_missing_empty_or_invalid_covers_nothing(selector: Any) -> None:
    assert not violated([db("a")], selector=selector)


def test_pods_without_labels_are_not_covered() -> None:
    absent = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert not violated([pod("a")], selector=absent)


def test_a_changed_budget_takes_effect() -> None:
    harness = PluginHarness()
    catalog = harness.cluster.catalog(PodDisruptionBudget)
    budgets = DisruptionBudgets(catalog)
    deltas = PodChanges.of([[harness.info(db("a"))]], -1)
    metadata = {"name": "budget", "namespace": "default"}
    for allowed, expected in ((0, [True]), (1, [False])):
        manifest = {"metadata": metadata, "spec": {"selector": APP}, "status": {"disruptionsAllowed": allowed}}
        catalog.put(convert(PodDisruptionBudget, manifest))
        assert budgets.violated(deltas).tolist() == expected
