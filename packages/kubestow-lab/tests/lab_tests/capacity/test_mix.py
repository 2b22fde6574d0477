"""Several templates share a cluster; gangs are placed as a whole, and preemption makes room by priority."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import cluster, node, pod
from kubestow import config
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow_lab.capacity.capacity_report import mix_document, mix_text
from kubestow_lab.capacity.estimate import CapacityOptions
from kubestow_lab.capacity.mix import CapacityMix, MixOptions, estimate_mix
from kubestow_lab.capacity.pod_template import PodTemplate
from lab_tests.capacity.test_capacity import Object, template_manifest


def mix(within: ClusterObjects, *manifests: Object, max_limit: int = 0, **options: Any) -> CapacityMix:
    return estimate_mix(
        within,
        [PodTemplate(manifest, "pod.yaml") for manifest in manifests],
        config.default_configuration(config.FeatureGates()),
        registry=in_tree_registry(),
        options=MixOptions(CapacityOptions(ties=FirstByName(), max_limit=max_limit), **options),
    )


def replicas(found: CapacityMix) -> dict[str, int]:
    return {capacity.template.name: capacity.replicas for capacity in found.capacities}


def test_templates_take_turns_until_the_last_drops_out(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="3500m"))
    found = mix(within, template_manifest("large", cpu="1"), template_manifest("small", cpu="500m"))
    assert replicas(found) == {"large": 2, "small": 3}
    assert found.last.template.name == "small"
    assert all(capacity.reason.type == "Unschedulable" for capacity in found.capacities)


def test_in_sequence_the_first_template_takes_all_it_can(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="3500m"))
    templates = template_manifest("large", cpu="1"), template_manifest("small", cpu="500m")
    assert replicas(mix(within, *templates, order="sequence")) == {"large": 3, "small": 1}
    assert replicas(mix(within, *templates, order="sequence", max_limit=2)) == {"large": 2, "small": 0}


def test_gangs_are_placed_as_a_whole(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="2"), node("b", cpu="3"))
    found = mix(within, template_manifest("member", cpu="1"), gang_size=3)
    assert replicas(found) == {"member": 3}
    assert replicas(mix(within, template_manifest("member", cpu="1"), gang_size=3, max_limit=2)) == {"member": 0}


def test_instances_evict_pods_of_lower_priority(tmp_path: Path) -> None:
    within = cluster(
        tmp_path,
        node("a", cpu="2"),
        pod("low", cpu="1500m", nodeName="a", priority=1),
        pod("high", cpu="500m", nodeName="a", priority=100),
    )
    found = mix(within, template_manifest("urgent", cpu="1", priority=10), preemption=True)
    assert replicas(found) == {"urgent": 1}
    assert [(each.pod.name, each.node_name, each.preemptor.name) for each in found.evictions] == [
        ("low", "a", "urgent-0")
    ]
    assert mix_text(found, verbose=False).splitlines() == ["urgent: 1", "evicted pods: 1"]
    assert "\t- default/low on a, for urgent-0" in mix_text(found, verbose=True).splitlines()
    status = mix_document(found, "now")["status"]
    assert status["evictions"] == [{"pod": "default/low", "nodeName": "a", "preemptor": "default/urgent-0"}]
    assert replicas(mix(within, template_manifest("urgent", cpu="1", priority=10))) == {"urgent": 0}


def test_an_incomplete_gang_evicts_nothing(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="2"), pod("low", cpu="2", nodeName="a", priority=1))
    urgent, small = template_manifest("urgent", cpu="1", priority=10), template_manifest("small", cpu="1m", priority=0)
    found = mix(within, urgent, small, preemption=True, gang_size=3)
    assert (replicas(found), found.evictions) == ({"urgent": 0, "small": 0}, ())


def test_an_evicted_instance_does_not_count(tmp_path: Path) -> None:
    within = cluster(tmp_path, node("a", cpu="2"))
    low, high = template_manifest("low", cpu="1", priority=1), template_manifest("high", cpu="1", priority=10)
    found = mix(within, low, high, order="sequence", preemption=True)
    assert (replicas(found), found.evictions) == ({"low": 0, "high": 2}, ())


def test_the_priority_is_that_of_the_class(tmp_path: Path) -> None:
    priority_class = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 50,
    }
    within = cluster(tmp_path, node("a", cpu="1"), pod("low", cpu="1", nodeName="a", priority=1), priority_class)
    found = mix(within, template_manifest("p", cpu="1", priorityClassName="urgent"), preemption=True)
    assert replicas(found) == {"p": 1}
    with pytest.raises(InputError, match='no PriorityClass with name "other"'):
        mix(within, template_manifest("p", priorityClassName="other"), preemption=True)


def test_names_must_differ(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="two templates have the name default/small"):
        mix(cluster(tmp_path), template_manifest(), template_manifest())
