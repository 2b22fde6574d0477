"""Explanations of pods whose decisions were recorded from kube-scheduler: the same message, statuses and scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.explanation.test_counterfactuals import changed
from kubestow import config
from kubestow.api.core import Namespace, Node, Pod
from kubestow.api.meta import convert
from kubestow.engine.explanation.explain import explain
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.scheduling.events.resources import CATALOGUED
from kubestow_lab.conformance.recorded_cases import Case, read_cases

CORPUS = Path(__file__).parents[6] / "tests" / "conformance" / "corpus"
#: Every so many-th case of a file is explained.
STRIDE = 9


def cases(name: str) -> Iterator[Case]:
    for case in itertools.islice(read_cases(CORPUS / name), 0, None, STRIDE):
        assert isinstance(case, Case)
        if case.config_error is None and case.pods and case.expect:
            yield case


def cluster_of(case: Case) -> ClusterObjects:
    """The cluster with the first pod of the case."""
    existing = [pod for pod in case.cluster.get("pods", ()) if (pod.get("status") or {}).get("phase") not in FINISHED]
    objects: list[Any] = [
        convert(resource.type, obj)
        for resource in CATALOGUED
        for obj in case.cluster.get(resource.plural, ())
        if obj.get("apiVersion", resource.api_version) == resource.api_version
    ]
    objects += [convert(Namespace, namespace) for namespace in case.cluster.get("namespaces", ())]
    pods = [convert(Pod, pod) for pod in (*existing, case.pods[0])]
    return ClusterObjects.of([convert(Node, node) for node in case.cluster.get("nodes", ())], pods, objects)


FINISHED = ("Succeeded", "Failed")


FILES = [
    f"{name}.jsonl.gz"
    for name in (
        "dynamicresources",
        "interpodaffinity",
        "mixed",
        "nodeaffinity",
        "noderesourcesfit",
        "nodeports",
        "nodevolumelimits",
        "nominated",
        "podtopologyspread",
        "preemption",
        "profiles",
        "tainttoleration",
        "volumebinding",
    )
]


def options_of(case: Case) -> SchedulerOptions:
    return SchedulerOptions(case.config, gates=config.FeatureGates(case.feature_gates, subject=case.name))


def key_of(case: Case) -> str:
    metadata = case.pods[0]["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


@pytest.mark.parametrize("name", FILES)
def test_explanations_agree_with_recorded_decisions(name: str) -> None:
    compared = 0
    for case in cases(name):
        recorded = case.expect[0]
        if recorded["result"] not in ("scheduled", "unschedulable") or not case.cluster.get("nodes"):
            continue
        found = explain(cluster_of(case), key_of(case), options_of(case), counterfactuals=False)
        compared += 1
        assert found.message == recorded.get("message", ""), case.name
        if "prefilter" not in recorded:
            for node, status in (recorded.get("filter") or {}).items():
                first = found.node(node).rejections[0].status
                assert (first.code.value, list(first.reasons)) == (status["code"], status["reasons"]), (case.name, node)
        for node, total in (recorded.get("total") or {}).items():
            assert found.node(node).total == total, (case.name, node)
    assert compared


@pytest.mark.parametrize("name", FILES)
def test_counterfactuals_of_recorded_cases_hold_in_a_cluster_built_anew(name: str) -> None:
    for case in cases(name):
        if case.expect[0]["result"] != "unschedulable" or not case.cluster.get("nodes"):
            continue
        cluster, key = cluster_of(case), key_of(case)
        for counterfactual in explain(cluster, key, options_of(case)).counterfactuals:
            if counterfactual.feasible:
                again = changed(cluster, cluster.pods[-1], counterfactual.change)
                fresh = explain(again, key, options_of(case), counterfactuals=False)
                assert fresh.feasible == counterfactual.feasible, (case.name, counterfactual.text)
                assert fresh.node(counterfactual.node).feasible, (case.name, counterfactual.text)
