"""A scheduler on a cluster from files: what it knows, and what the input leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from core_tests.engine.input import manifests
from kubestow.api.core import Namespace
from kubestow.api.custom import CustomObject
from kubestow.api.meta import convert
from kubestow.cluster.changes.events import Action
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import (
    OfflineScheduler,
    SchedulerOptions,
    custom_kinds,
    find_pod,
    is_attempted,
    similar,
    unbound,
)
from kubestow.errors import InputError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Verdict
from kubestow.scheduling.decision.result import Scheduled
from kubestow.testing import builders, node, pod


class Quota(CustomObject, frozen=True):
    resource: ClassVar[str] = "quotas.v1.example.com"


class ReadsQuotas(FilterPlugin):
    """Reads objects of a custom kind."""

    name = "ReadsQuotas"
    events_to_register = (on(Quota, Action.ADD),)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Any) -> Verdict | None:
        return None


ENABLED = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "ReadsQuotas"}]}}}],
}
OPTIONS = SchedulerOptions(ENABLED, [ReadsQuotas])


def test_namespaces_have_their_labels() -> None:
    term = {"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}, "topologyKey": "zone"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    namespace = convert(Namespace, {"metadata": {"name": "other", "labels": {"team": "a"}}})
    nodes = [node(name, labels={"zone": name}) for name in "ab"]
    placed, probe = pod("placed", namespace="other", node="b"), pod("probe", affinity=affinity)
    scheduler = OfflineScheduler(ClusterObjects.of(nodes, [placed, probe], [namespace]), OPTIONS, without=probe)

    decision = scheduler.pipeline.decide_by_plugins(scheduler.cache.shapes.info(probe))

    assert isinstance(decision, Scheduled)
    assert decision.node_name == "b"


def cluster(**fields: Any) -> ClusterObjects:
    return ClusterObjects(nodes=[node("a")], **fields)


def test_a_kind_that_the_input_does_not_have_is_remarked_on(tmp_path: Path) -> None:
    decided = "ReadsQuotas decides as if there was none"
    assert custom_kinds(OfflineScheduler(cluster(), OPTIONS).profiles.values()) == {Quota: "ReadsQuotas"}
    assert OfflineScheduler(cluster(), OPTIONS).absent == ()
    quota = {"apiVersion": "example.com/v1", "kind": "Quota", "metadata": {"name": "q"}}
    assert OfflineScheduler(manifests.cluster(tmp_path, manifests.node("a"), quota), OPTIONS).absent == ()
    assert OfflineScheduler(manifests.cluster(tmp_path, manifests.node("a")), OPTIONS).absent == (
        f"the input has no Quota (quotas.v1.example.com): {decided}",
    )
    address = "/apis/example.com/v1/quotas"
    assert OfflineScheduler(cluster(listed={address: True}), OPTIONS).absent == ()
    assert OfflineScheduler(cluster(listed={address: False}), OPTIONS).absent == (
        f"the API server does not serve quotas.v1.example.com: {decided}",
    )


def test_a_kind_that_a_snapshot_leaves_out_is_refused() -> None:
    with pytest.raises(InputError) as error:
        OfflineScheduler(cluster(listed={}), OPTIONS)
    assert str(error.value) == (
        "the cluster: quotas.v1.example.com: left out, but ReadsQuotas decides by them; take the snapshot with the "
        "same --config and --plugin"
    )


def test_options_say_where_the_configuration_comes_from() -> None:
    assert repr(OPTIONS).startswith("<SchedulerOptions: given configuration, plugin ReadsQuotas, Kubernetes 1.")
    assert repr(SchedulerOptions("scheduler.yaml")).startswith("<SchedulerOptions: scheduler.yaml, Kubernetes 1.")
    assert repr(SchedulerOptions()).startswith("<SchedulerOptions: defaults, Kubernetes 1.")


def test_a_pod_is_found_by_name_or_similar_ones_are_named() -> None:
    found = ClusterObjects.of([node("a")], [pod("web-1"), pod("web-1", namespace="other"), pod("db")])
    assert [find_pod(found, name).key for name in ("web-1", "default/web-1", "other/web-1")] == [
        "default/web-1",
        "default/web-1",
        "other/web-1",
    ]
    with pytest.raises(InputError, match=r"pod default/web: no such pod in the cluster.*; similar: default/web-1$"):
        find_pod(found, "web")
    assert similar("ab", ["ab4", "ab3", "ab2", "ab1"]) == "; similar: ab1, ab2, ab3"
    assert similar("xyz", ["ab"]) == ""


def test_pods_with_gates_or_a_deletion_are_not_attempted() -> None:
    pods = [pod("a"), builders.pod("b", gates=["wait"]), builders.pod("c", deleting=True)]
    assert [is_attempted(each) for each in pods] == [True, False, False]


def test_an_unbound_pod_is_as_when_it_was_new() -> None:
    status: dict[str, Any] = {
        "nominatedNodeName": "b",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "phase": "Running",
    }
    status |= {"containerStatuses": [{"name": "c"}], "allocatedResources": {"cpu": "1"}}
    bound = pod("p", node="a", cpu="1", status=status)

    found = unbound(bound)

    assert found.spec == replace(bound.spec, node_name="")
    assert found.status == convert(type(found.status), {"phase": "Running"})
