"""Disruption budgets: which evictions violate one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.pods.table import PodChanges
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets
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


@st.composite
def budgets(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": f"budget-{number}", "namespace": draw(st.sampled_from(("default", "other")))},
            "spec": {"selector": {"matchLabels": {draw(st.sampled_from("xy")): draw(st.sampled_from("12"))}}},
            "status": {
                "disruptionsAllowed": draw(st.integers(-1, 3)),
                "disruptedPods": dict.fromkeys(
                    draw(st.sets(st.sampled_from(("pod-0-0", "pod-0-2", "pod-1-1")))), "2026-01-01T00:00:00Z"
                ),
            },
        }
        for number in range(draw(st.integers(0, 5)))
    ]


LABELS = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"))


@settings(max_examples=200)
@given(budgets(), st.lists(st.lists(LABELS, max_size=6), max_size=4))
def test_several_budgets_are_used_up_as_if_the_pods_were_evicted_one_after_the_other(
    manifests: list[dict[str, Any]], rows: list[list[dict[str, str]]]
) -> None:
    harness = PluginHarness()
    catalog = harness.cluster.catalog(PodDisruptionBudget)
    for manifest in manifests:
        catalog.put(convert(PodDisruptionBudget, manifest))
    pods = [
        [harness.info(pod(f"pod-{row}-{place}", labels=labels)) for place, labels in enumerate(each)]
        for row, each in enumerate(rows)
    ]
    changes = PodChanges.of(pods, -1)
    assert DisruptionBudgets(catalog).violated(changes).tolist() == list(_violated_one_by_one(manifests, rows))


def _violated_one_by_one(manifests: list[dict[str, Any]], rows: list[list[dict[str, str]]]) -> Iterator[bool]:
    for row, each in enumerate(rows):
        left = [manifest["status"]["disruptionsAllowed"] for manifest in manifests]
        for place, labels in enumerate(each):
            violates = False
            for number, manifest in enumerate(manifests):
                selected = manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()
                disrupted = f"pod-{row}-{place}" in manifest["status"]["disruptedPods"]
                if manifest["metadata"]["namespace"] == "default" and selected and not disrupted:
                    left[number] -= 1
                    violates |= left[number] < 0
            yield violates
