"""The members of pod groups, and which of them are ready, gated and on nodes."""

from __future__ import annotations

import pytest

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.pod_groups import KUBERNETES, WORKLOADS, PodGroupAPI, PodGroupName
from kubestow.config import FeatureGates
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod

NAME = PodGroupName(KUBERNETES.name, "default", "g")


def member(name: str, *, group: str = "g", gates: tuple[str, ...] = (), deleting: bool = False) -> Pod:
    return pod(name, gates=gates, deleting=deleting, spec={"schedulingGroup": {"podGroupName": group}})


@pytest.mark.parametrize(("policy", "min_count"), [({"gang": {"minCount": 3}}, 3), ({"basic": {}}, 0)])
def test_only_a_gang_needs_several_pods_at_the_same_time(policy: dict[str, object], min_count: int) -> None:
    group = convert(PodGroup, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
    assert KUBERNETES.gang_policy(group) == (min_count, None)


def test_members_are_ready_gated_or_terminating() -> None:
    cluster = Cluster()
    infos = [
        cluster.shapes.info(one)
        for one in (member("ready"), member("gated", gates=("wait",)), member("terminating", deleting=True))
    ]
    assert [cluster.observe_pod(info) for info in infos] == [True, False, False]
    members = cluster.pod_groups.members(NAME)
    assert list(members.pods) == [info.uid for info in infos]
    assert (list(members.ready), members.gated) == ([infos[0].uid], {infos[1].uid})
    assert cluster.observe_pod(cluster.shapes.info(member("gated")))
    assert not cluster.observe_pod(cluster.shapes.info(member("gated")))
    assert members.gated == set()


def test_members_on_nodes_are_those_that_are_placed_now() -> None:
    cluster = Cluster()
    cluster.add_node(node("n"))
    info = cluster.shapes.info(member("a"))
    cluster.observe_pod(info)
    members = cluster.pod_groups.members(NAME)
    assert (members.has_placed, members.placed, members.on_nodes) == (False, frozenset(), frozenset())
    cluster.assume(info, "n")
    assert (members.has_placed, members.placed, members.on_nodes) == (
        True,
        frozenset({info.uid}),
        frozenset({info.uid}),
    )
    cluster.forget(info.uid)
    assert not members.has_placed


def test_a_group_without_members_is_forgotten() -> None:
    cluster = Cluster()
    info = cluster.shapes.info(member("a"))
    cluster.observe_pod(info)
    cluster.observe_pod(cluster.shapes.info(member("a", group="other")))
    assert list(cluster.pod_groups) == [PodGroupName(KUBERNETES.name, "default", "other")]
    cluster.observe_pod(cluster.shapes.info(pod("a")))
    assert len(cluster.pod_groups) == 0


@pytest.mark.parametrize(("minor", "api"), [(34, WORKLOADS), (35, WORKLOADS), (36, KUBERNETES), (37, KUBERNETES)])
def test_the_groups_of_kubernetes_are_those_of_the_version(minor: int, api: PodGroupAPI) -> None:
    cluster = Cluster(gates=FeatureGates(minor=Minor(minor)))
    assert cluster.pod_groups.apis == (api,)
    reference = {"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"}
    spec = {"workloadRef": reference, "schedulingGroup": {"podGroupName": "g"}}
    cluster.observe_pod(cluster.shapes.info(pod("p", spec=spec)))
    name = "g" if api is KUBERNETES else "w/g/0"
    assert list(cluster.pod_groups) == [PodGroupName(api.name, "default", name)]


def test_a_pod_in_no_group_joins_none() -> None:
    cluster = Cluster()
    assert cluster.observe_pod(cluster.shapes.info(pod("p"))) is False
    assert cluster.observe_pod(cluster.shapes.info(member("p"))) is True
    assert cluster.observe_pod(cluster.shapes.info(pod("p"))) is False
    assert cluster.observe_pod(cluster.shapes.info(member("p"))) is True
    cluster.end_pod("uid-default-p")
    assert len(cluster.pod_groups) == 0


def test_a_member_that_begins_to_terminate_is_not_ready_any_more() -> None:
    cluster = Cluster()
    for deleting in (False, True):
        cluster.observe_pod(cluster.shapes.info(member("a", deleting=deleting)))
    members = cluster.pod_groups.members(NAME)
    assert (list(members.pods), list(members.ready)) == (["uid-default-a"], [])
