"""Plugins of third parties: strategies, filters and orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from core_tests.descheduling.objects import evicted, loop, node, pod, policy
from kubestow.descheduling.cluster_state import AssignedPod, ClusterState
from kubestow.descheduling.interface import (
    ArgumentProblem,
    DeschedulePlugin,
    DeschedulingPlugin,
    Evictor,
    FilterPlugin,
    PreSortPlugin,
    SortPlugin,
)
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import ConfigurationError, InputError

NODES = [node("n1"), node("n2")]


class RetiredRegistryArgs(msgspec.Struct, frozen=True, rename="camel"):
    """Where images must not come from."""

    registry_name: str = ""


class RetiredRegistry(DeschedulePlugin):
    """Evicts pods with images of a registry."""

    name = "RetiredRegistry"
    Args = RetiredRegistryArgs

    @classmethod
    def validate(cls, args: RetiredRegistryArgs) -> list[ArgumentProblem]:
        return [] if args.registry_name else [ArgumentProblem("registryName", "must be set")]

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        for candidate in evictor.in_order([p for p in cluster.pods() if evictor.may_evict(p)]):
            if any(c.image.startswith(self.args.registry_name) for c in candidate.spec.containers):
                evictor.evict(candidate, "its registry is retired", reason="Retired")


class YoungestFirst(PreSortPlugin, SortPlugin):
    """Sorts by a rank that it assigns to all candidates at once."""

    name = "YoungestFirst"

    def pre_sort(self, pods: Sequence[AssignedPod], cluster: ClusterState) -> None:
        by_age = sorted(pods, key=lambda candidate: candidate.created, reverse=True)
        self.rank = {candidate.uid: rank for rank, candidate in enumerate(by_age)}

    def sort_key(self, pod: AssignedPod, cluster: ClusterState) -> int:
        return self.rank[pod.uid]


class Keep(FilterPlugin):
    """Protects pods of a name."""

    name = "Keep"

    def filter(self, pod: AssignedPod, cluster: ClusterState) -> bool:
        return pod.name != "a"


class Broken(DeschedulePlugin):
    """Fails."""

    name = "Broken"

    def deschedule(self, cluster: ClusterState, evictor: Evictor) -> None:
        raise ZeroDivisionError("oops")


def pods() -> list[dict[str, Any]]:
    ages = {"a": "2026-06-28T00:00:00Z", "b": "2026-06-30T00:00:00Z", "c": "2026-06-29T00:00:00Z"}
    return [pod(name, "n1", metadata={"creationTimestamp": created}) for name, created in ages.items()]


def test_a_strategy_is_configured_like_any_other() -> None:
    document = policy("RetiredRegistry", {"registryName": "app"})
    result = loop(document, NODES, pods(), plugins=[RetiredRegistry])
    assert evicted(result) == ["a", "b", "c"]
    assert {(e.reason, e.message) for e in result.evicted} == {("Retired", "its registry is retired")}
    with pytest.raises(ConfigurationError, match=r"args.registryName: must be set"):
        loop(policy("RetiredRegistry"), NODES, pods(), plugins=[RetiredRegistry])


def test_sort_plugins_order_the_candidates_of_every_strategy() -> None:
    document = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 60})
    assert evicted(loop(document, NODES, pods())) == ["a", "c", "b"]
    profile = document["profiles"][0]
    profile["pluginConfig"].append({"name": "YoungestFirst"})
    profile["plugins"] |= {"presort": {"enabled": ["YoungestFirst"]}, "sort": {"enabled": ["YoungestFirst"]}}
    assert evicted(loop(document, NODES, pods(), plugins=[YoungestFirst])) == ["b", "c", "a"]


def test_filters_protect_beside_the_default_evictor() -> None:
    document = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 60})
    document["profiles"][0]["pluginConfig"].append({"name": "Keep"})
    document["profiles"][0]["plugins"]["filter"] = {"enabled": ["Keep"]}
    assert evicted(loop(document, NODES, pods(), plugins=[Keep])) == ["c", "b"]


def test_a_plugin_that_fails_does_not_keep_others_from_running() -> None:
    document = policy("Broken")
    document["profiles"][0]["pluginConfig"].append({"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 60}})
    document["profiles"][0]["plugins"]["deschedule"]["enabled"].append("PodLifeTime")
    result = loop(document, NODES, pods(), plugins=[Broken])
    assert [str(error) for error in result.errors] == ["plugin 'Broken' failed at deschedule: ZeroDivisionError: oops"]
    assert len(result.evicted) == 3


def test_what_is_no_plugin_is_refused() -> None:
    with pytest.raises(InputError, match="expected module:Class"):
        find_plugins(["nothing"])
    with pytest.raises(InputError, match="cannot be imported"):
        find_plugins(["no.such.module:Plugin"])
    with pytest.raises(InputError, match="is not a class derived from"):
        find_plugins(["json:JSONDecoder"])
    with pytest.raises(InputError, match="does not implement deschedule"):
        find_plugins(classes=[type("Half", (DeschedulePlugin,), {"name": "Half"})])
    with pytest.raises(InputError, match="is taken by"):
        find_plugins(classes=[type("Other", (DeschedulingPlugin,), {"name": "PodLifeTime"})])
