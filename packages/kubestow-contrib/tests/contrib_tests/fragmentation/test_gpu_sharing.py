"""Pods get particular GPUs: those that fit, recorded in an annotation, and known again after a restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contrib_tests.fragmentation.gpu_objects import INDEX, TYPICAL, gpu_node, share, whole
from kubestow.errors import ConfigurationError
from kubestow.testing import PluginHarness, SchedulerHarness, check_plugin, in_virtual_time, pod
from kubestow_contrib.fragmentation import (
    BestFit,
    BestFitArgs,
    FragmentationArgs,
    FragmentationGradientDescent,
)
from kubestow_contrib.fragmentation.gpu_sharing import GpuSharingPlugin

Policy = tuple[type[GpuSharingPlugin], Any]

POLICIES: list[Policy] = [
    (BestFit, BestFitArgs()),
    (FragmentationGradientDescent, FragmentationArgs(typical_pods=TYPICAL)),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy[0].name)


def _profile(policy: Policy) -> dict[str, Any]:
    name, args = policy[0].name, msgspec.to_builtins(policy[1])
    plugins = {
        "multiPoint": {"enabled": [{"name": name}]},
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": name}]},
    }
    return {"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": [{"name": name, "args": args}]}


def _harness(policy: Policy, nodes: list[Any], pods: list[Any] | None = None) -> PluginHarness:
    return PluginHarness(nodes, pods or [], profile=_profile(policy), plugins=[policy[0]])


@every_policy
def test_the_contract_is_kept(policy: Policy) -> None:
    nodes = [gpu_node("two", 2), gpu_node("eight", 8, model="G2"), gpu_node("none", 0)]
    pods = [share("share", 300), whole("whole", 2), pod("cpu", cpu="2"), share("placed", 700, node="two", devices="1")]
    check_plugin(policy[0], args=policy[1], nodes=nodes, pods=pods)


@every_policy
def test_the_sum_of_idle_gpus_is_not_enough(policy: Policy) -> None:
    placed = [share("a", 600, node="two", devices="0"), share("b", 600, node="two", devices="1")]
    harness = _harness(policy, [gpu_node("two", 2), gpu_node("one", 1)], placed)
    assert harness.feasible(share("small", 400)) == {"two", "one"}
    assert harness.feasible(share("large", 500)) == {"one"}
    assert harness.feasible(whole("whole", 1)) == {"one"}
    rejections = harness.rejections(whole("pair", 2))
    assert rejections["one"] == (
        "NodeResourcesFit",
        ("Insufficient kubestow.dev/gpu-milli", "Insufficient nvidia.com/gpu"),
    )
    assert harness.rejections(share("large", 500))["two"][1] == ("node(s) had no GPU with enough idle capacity",)


@every_policy
def test_pods_that_were_placed_otherwise_are_taken_to_fill_gpus_up(policy: Policy) -> None:
    placed = [share("a", 500, node="two"), share("b", 500, node="two")]
    assert _harness(policy, [gpu_node("two", 2)], placed).feasible(whole("whole", 1)) == {"two"}


@pytest.mark.parametrize("devices", ["9" * 5000, "0", "0-0", "0-1-2", "0-4", "0-x"])
def test_an_annotation_that_does_not_fit_the_request_is_ignored(devices: str) -> None:
    harness = _harness(POLICIES[0], [gpu_node("four", 4)], [whole("pair", 2, node="four", devices=devices)])
    plugin = BestFit(BestFitArgs(), harness)
    assert plugin.devices.idle(harness.cluster.all_nodes()).each.tolist() == [[0, 0, 1000, 1000]]


@every_policy
def test_gpus_are_recorded_and_released(policy: Policy) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for arriving in (share("first", 600), share("second", 600), share("third", 400)):
            harness.cluster.put(arriving)
            await harness.settle()
        devices = {name: harness.cluster.pod(name).metadata.annotations[INDEX] for name in ("first", "second", "third")}
        assert devices["first"] != devices["second"]
        assert devices["third"] in ("0", "1")
        harness.cluster.put(whole("whole", 1))
        await harness.settle()
        assert harness.node_of("whole") == ""
        for name in ("first", "third") if devices["first"] == devices["third"] else ("second", "third"):
            harness.cluster.remove(harness.cluster.pod(name))
        await harness.advance(30)
        assert harness.node_of("whole") == "two"

    in_virtual_time(scenario, gpu_node("two", 2), plugins=[policy[0]], profiles=[_profile(policy)])


@every_policy
def test_gpus_need_not_be_recorded(policy: Policy) -> None:
    unrecorded = policy[0], msgspec.structs.replace(policy[1], index_annotation="")

    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("first", "second", "third"):
            harness.cluster.put(share(name, 600))
            await harness.settle()
        assert [harness.node_of(name) for name in ("first", "second", "third")] == ["two", "two", ""]
        assert not any(found.metadata.annotations for found in harness.cluster.pods())

    profiles = [_profile(unrecorded)]
    in_virtual_time(scenario, gpu_node("two", 2), plugins=[policy[0]], profiles=profiles)


@every_policy
def test_preemption_knows_which_gpus_become_idle(policy: Policy) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(whole("important", 1, node="", cpu="1"))
        await harness.settle()
        assert harness.node_of("important") == ""  # of the same priority as the others
        urgent = whole("urgent", 1)
        harness.cluster.put(msgspec.structs.replace(urgent, spec=msgspec.structs.replace(urgent.spec, priority=10)))
        await harness.advance(30)
        assert harness.node_of("urgent") == "two"
        left = {found.metadata.name for found in harness.cluster.pods() if found.spec.node_name}
        assert left == {"urgent", "a", "b"}  # evicting the one pod on its own GPU is enough

    placed = [
        share("a", 300, node="two", devices="0"),
        share("b", 300, node="two", devices="0"),
        share("c", 600, node="two", devices="1"),
    ]
    in_virtual_time(scenario, gpu_node("two", 2), *placed, plugins=[policy[0]], profiles=[_profile(policy)])


def test_best_fit_prefers_the_fullest_node_and_gpu() -> None:
    placed = [share("a", 300, node="used", devices="0"), share("b", 500, node="used", devices="1")]
    harness = _harness(POLICIES[0], [gpu_node("empty", 2), gpu_node("used", 2)], placed)
    assert harness.decide(share("p", 200)).node_name == "used"
    plugin = BestFit(BestFitArgs(), harness)
    info = harness.info(share("p", 200, node="used"))
    harness.cluster.put_pod(info)
    assert plugin.reserve(None, info, "used").ok  # type: ignore[arg-type]
    assert plugin.devices.reserved(info.uid) == (1,)


def test_fragmentation_is_descended() -> None:
    """A share beside a share leaves a whole GPU idle, which typical pods can use."""
    policy: Policy = (FragmentationGradientDescent, FragmentationArgs(typical_pods=(TYPICAL[0], TYPICAL[1])))
    placed = [share("a", 500, node="used", devices="0")]
    harness = _harness(policy, [gpu_node("empty", 1), gpu_node("used", 1)], placed)
    scores = harness.scores(share("p", 500), FragmentationGradientDescent.name)
    assert scores["used"] > scores["empty"]
    assert harness.scores(pod("cpu", cpu="1"), FragmentationGradientDescent.name) == {"empty": 50, "used": 50}


def test_the_typical_pods_are_required() -> None:
    profile = _profile(POLICIES[1])
    profile["pluginConfig"][0]["args"] = {"typicalPods": []}
    with pytest.raises(ConfigurationError, match="typicalPods must not be empty"):
        PluginHarness(profile=profile, plugins=[FragmentationGradientDescent])
    profile["pluginConfig"][0]["args"] = {}
    with pytest.raises(ConfigurationError, match="typicalPods"):
        PluginHarness(profile=profile, plugins=[FragmentationGradientDescent])
