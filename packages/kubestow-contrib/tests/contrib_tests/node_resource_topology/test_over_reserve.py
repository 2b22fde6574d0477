"""The over-reserving cache of NodeResourceTopologyMatch (cacheResyncPeriodSeconds), in a running scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from contrib_tests.node_resource_topology.topologies import NAME, topology, zone
from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Pod
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.node_resource_topology.agent_reports import fingerprint, xxh64
from kubestow_contrib.node_resource_topology.node_resource_topology_match import NodeResourceTopologyMatch
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # The test vectors of xxHash's specification and of its reference implementations.
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"abc", 0, 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0, 0xFBCEA83C8A378BF1),
        (b"xxhash", 20141025, 0xB559B98D844E0635),
    ],
)
def test_the_hash_is_xxh64(data: bytes, seed: int, expected: int) -> None:
    assert xxh64(data, seed) == expected


def test_a_fingerprint_does_not_depend_on_the_order_of_pods() -> None:
    pods = [("default", "a"), ("default", "b"), ("kube-system", "a")]
    assert fingerprint(pods) == fingerprint(reversed(pods)) != fingerprint(pods[:2])
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"


def sized(name: str, cpu: int = 2, on: str = "", phase: str = "") -> Pod:
    """A Guaranteed pod."""
    resources = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": resources, "limits": resources}}
    return pod(name, node=on, spec={"containers": [container]}, status={"phase": phase} if phase else {})


def report(cpus: Sequence[int], pods: Sequence[str] = (), *, version: int = 1) -> NodeResourceTopology:
    """A report that accounts for some pods."""
    attributes = {
        "topologyManagerPolicy": "single-numa-node",
        "nodeTopologyPodsFingerprint": fingerprint(("default", name) for name in pods),
    }
    zones = [zone(number, {"cpu": cpu, "memory": "8Gi"}) for number, cpu in enumerate(cpus)]
    return topology("n", zones, attributes=attributes, version=version)


def run(scenario: Any, *objects: Any, cache: dict[str, str] | None = None) -> None:
    profile = profile_of(NAME)
    arguments = {"cacheResyncPeriodSeconds": 5, "cache": cache or {}}
    profile["pluginConfig"] = [{"name": NAME, "args": arguments}]
    profile["plugins"]["reserve"] = {"enabled": [{"name": NAME}]}
    profiles = [{"schedulerName": "default-scheduler", **profile}]
    in_virtual_time(scenario, node("n", cpu="8"), *objects, plugins=[NodeResourceTopologyMatch], profiles=profiles)


def started(harness: SchedulerHarness, name: str) -> None:
    found = harness.cluster.pod(name)
    harness.cluster.put(msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, phase="Running")))


def test_a_pod_counts_in_all_zones_until_a_report_accounts_for_it() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(sized("a", 3))
        harness.cluster.put(sized("b", 3))
        await harness.advance(20)
        # Either zone may be the one of pod a, so there are 1 CPUs in both as far as is known.
        assert (harness.node_of("a"), harness.node_of("b")) == ("n", "")
        harness.cluster.put(report([4, 4], version=2))  # an old report
        started(harness, "a")
        await harness.advance(20)
        assert harness.node_of("b") == ""
        harness.cluster.put(report([1, 4], ["a"], version=3))
        await harness.advance(30)
        assert harness.node_of("b") == "n"

    run(scenario, report([4, 4]))


def test_a_pod_that_has_not_started_is_in_no_report() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(sized("a", 3))
        await harness.advance(20)
        # The fingerprint is right, because pod a is starting, and does not count yet.
        harness.cluster.put(report([4, 4], version=2))
        await harness.advance(20)
        harness.cluster.put(sized("b", 3))
        await harness.advance(20)
        assert (harness.node_of("a"), harness.node_of("b")) == ("n", "")

    run(scenario, report([4, 4]))


def test_a_pod_that_ends_before_a_report_accounts_for_it_keeps_no_reservation() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(sized("a", 3))
        await harness.advance(20)
        started(harness, "a")
        await harness.advance(1)
        harness.cluster.remove(harness.cluster.pod("a"))
        harness.cluster.put(sized("b", 3))
        await harness.advance(30)
        assert harness.node_of("b") == "n"

    run(scenario, report([4, 4]))


@pytest.mark.parametrize(
    ("mode", "cpu", "expected"), [("All", 1, ""), ("OnlyExclusiveResources", 1, ""), ("None", 1, "n")]
)
def test_a_node_is_not_used_while_pods_of_others_are_not_accounted_for(mode: str, cpu: int, expected: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(6)
        harness.cluster.put(sized("other", cpu, on="n", phase="Running"))
        await harness.advance(1)
        harness.cluster.put(sized("a", 1))
        await harness.advance(20)
        assert harness.node_of("a") == expected
        harness.cluster.put(report([3, 4], ["other"], version=2))
        await harness.advance(30)
        assert harness.node_of("a") == "n"

    run(scenario, report([4, 4]), cache={"foreignPodsDetect": mode})


def test_a_reservation_ends_with_a_failed_attempt() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        (plugin,) = (
            each
            for each in harness.scheduler.profiles["default-scheduler"].plugins
            if isinstance(each, NodeResourceTopologyMatch)
        )
        info = harness.scheduler.cluster.shapes.info(sized("a", 4))
        plugin.reserve(None, info, "n")  # type: ignore[arg-type]
        plugin.unreserve(None, info, "n")  # type: ignore[arg-type]
        harness.cluster.put(sized("b", 4))
        await harness.advance(5)
        assert harness.node_of("b") == "n"

    run(scenario, report([4, 4]))


def test_a_change_of_the_policy_counts_at_once() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(sized("a", 3))
        harness.cluster.put(sized("b", 3))
        await harness.advance(20)
        assert harness.node_of("b") == ""
        zones = [zone(number, {"cpu": 4, "memory": "8Gi"}) for number in range(2)]
        harness.cluster.put(topology("n", zones, attributes={"topologyManagerPolicy": "none"}, version=2))
        await harness.advance(30)
        assert harness.node_of("b") == "n"

    run(scenario, report([4, 4]))
