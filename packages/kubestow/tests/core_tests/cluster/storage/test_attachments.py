"""The number of attached volumes equals a recount after any sequence of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.attachments import CSIVolume
from kubestow.testing import node, pod
from kubestow.testing.storage import (
    DRIVER,
    attachment,
    claim,
    csi_node,
    ephemeral_claim,
    mounting,
    storage_class,
    volume,
)

NAMES = st.sampled_from(["x", "y", "z"])
NODES = st.sampled_from(["a", "b"])


class AttachmentsMachine(RuleBasedStateMachine):
    """Pods, claims, volumes and attachments are added, changed and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.cluster.catalog(type(storage_class())).put(storage_class("fast", provisioner=DRIVER))
        self.cluster.volumes.attached.count(self.cluster.all_nodes(), DRIVER)

    @rule(name=NODES)
    def node_is_added(self, name: str) -> None:
        if name not in self.cluster.nodes.rows:
            self.cluster.add_node(node(name))
            self.cluster.catalog(type(csi_node("a"))).put(csi_node(name, csi_example_com=1))

    @rule(name=NODES)
    def node_is_removed(self, name: str) -> None:
        if name in self.cluster.nodes.rows:
            self.cluster.remove_node(name)

    @rule(number=st.integers(0, 4), where=NODES, claims=st.lists(NAMES, max_size=2))
    def pod_is_placed(self, number: int, where: str, claims: list[str]) -> None:
        info = self.cluster.shapes.info(pod(f"p{number}", node=where, spec=mounting(*claims)))
        self.cluster.put_pod(info)

    @rule(number=st.integers(0, 4))
    def pod_is_removed(self, number: int) -> None:
        self.cluster.remove_pod(f"uid-default-p{number}")

    @rule(name=NAMES, bound=st.booleans())
    def claim_is_added_or_changed(self, name: str, bound: bool) -> None:
        observed = claim(name, volume=f"pv-{name}" if bound else "", storage_class="fast")
        self.cluster.catalog(PersistentVolumeClaim).put(observed)

    @rule(name=NAMES)
    def claim_is_removed(self, name: str) -> None:
        self.cluster.catalog(PersistentVolumeClaim).remove("default", name)

    @rule(name=NAMES, shared=st.booleans())
    def volume_is_added_or_changed(self, name: str, shared: bool) -> None:
        handle = {"csi": {"driver": DRIVER, "volumeHandle": "shared" if shared else name}}
        self.cluster.catalog(PersistentVolume).put(volume(f"pv-{name}", source=handle))

    @rule(name=NAMES)
    def volume_is_removed(self, name: str) -> None:
        self.cluster.catalog(PersistentVolume).remove("", f"pv-{name}")

    @rule(name=NAMES, where=NODES)
    def attachment_is_added_or_moved(self, name: str, where: str) -> None:
        self.cluster.catalog(VolumeAttachment).put(attachment(f"at-{name}", node=where, volume=f"pv-{name}"))

    @rule(name=NAMES)
    def attachment_is_removed(self, name: str) -> None:
        self.cluster.catalog(VolumeAttachment).remove("", f"at-{name}")

    def _recount(self, row: int) -> int:
        cluster, handles = self.cluster, set()
        for info in cluster.nodes.pods[row].values():
            for mounted in info.spec.volumes:
                assert mounted.persistent_volume_claim is not None
                wanted = cluster.catalog(PersistentVolumeClaim).get(
                    "default", mounted.persistent_volume_claim.claim_name
                )
                if wanted is not None:
                    pv = cluster.catalog(PersistentVolume).get("", wanted.spec.volume_name)
                    csi = pv.spec.csi if pv is not None else None
                    handles.add(csi.volume_handle if csi is not None else f"claim of {wanted.metadata.name}")
        for attached in cluster.catalog(VolumeAttachment):
            pv = cluster.catalog(PersistentVolume).get("", attached.spec.source.persistent_volume_name or "")
            if attached.spec.node_name == cluster.nodes.names[row] and pv is not None and pv.spec.csi is not None:
                handles.add(pv.spec.csi.volume_handle)
        return len(handles)

    @invariant()
    def counts_equal_a_recount(self) -> None:
        counted = self.cluster.volumes.attached.count(self.cluster.all_nodes(), DRIVER).tolist()
        assert counted == [self._recount(row) for row in range(len(self.cluster.nodes))]


AttachmentsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestAttachmentsMachine = AttachmentsMachine.TestCase


CHANGES = st.lists(
    st.tuples(st.sampled_from(["x", "y", "z", "e", "f"]), st.sampled_from(["absent", "unowned", "unbound", "bound"])),
    max_size=12,
)


@given(st.permutations(["x", "y", "z", "y", "e", "f"]), CHANGES)
def test_changes_of_single_claims_have_the_result_of_resolving_all(
    order: list[str], changes: list[tuple[str, str]]
) -> None:
    """``e`` and ``f`` are ephemeral volumes, whose claims are a problem unless the pod owns them."""
    spec: dict[str, object] = {
        "volumes": [
            {"name": name, "ephemeral": {}} if name in "ef" else {"name": f"v{number}", **_naming(name)}
            for number, name in enumerate(order)
        ]
    }
    changed = _cluster_with(spec)
    for step, (name, state) in enumerate(changes):
        fresh = _cluster_with(None)
        for cluster, history in ((changed, [(name, state)]), (fresh, changes[: step + 1])):
            for of_claim, as_state in history:
                _change_claim(cluster, of_claim, as_state)
        fresh.put_pod(fresh.shapes.info(pod("p", node="a", spec=spec)))
        both = [cluster.volumes.attached for cluster in (changed, fresh)]
        counted, recounted = (
            (each.count(cluster.all_nodes(), DRIVER).tolist(), list(each.problems(cluster.all_nodes())))
            for cluster, each in zip((changed, fresh), both, strict=True)
        )
        assert counted == recounted
    changed.remove_pod("uid-default-p")
    assert changed.volumes.attached.count(changed.all_nodes(), DRIVER).tolist() == [0]


def _naming(name: str) -> dict[str, object]:
    return {"persistentVolumeClaim": {"claimName": name}}


def _cluster_with(spec: dict[str, object] | None) -> Cluster:
    cluster = Cluster()
    cluster.add_node(node("a"))
    cluster.catalog(type(storage_class())).put(storage_class("fast", provisioner=DRIVER))
    for name in "xyzef":
        cluster.catalog(PersistentVolume).put(volume(f"pv-{name}"))
    if spec is not None:
        cluster.put_pod(cluster.shapes.info(pod("p", node="a", spec=spec)))
    return cluster


def _change_claim(cluster: Cluster, name: str, state: str) -> None:
    claims = cluster.catalog(PersistentVolumeClaim)
    full_name = f"p-{name}" if name in "ef" else name
    bound: dict[str, Any] = {"volume": f"pv-{name}" if state == "bound" else "", "storage_class": "fast"}
    if state == "absent":
        claims.remove("default", full_name)
    elif name in "ef" and state != "unowned":
        claims.put(ephemeral_claim("p", name, **bound))
    else:
        claims.put(claim(full_name, **bound))


# -- what counts ---------------------------------------------------------------------------------------------------


def cluster_of(*names: str, **volumes: PersistentVolume) -> Cluster:
    """Nodes, and volumes with a claim for each, by the name of the claim."""
    cluster = Cluster()
    for name in names:
        cluster.add_node(node(name))
        cluster.catalog(CSINode).put(csi_node(name, migrated=["kubernetes.io/cinder"], csi_example_com=9))
    for claim_name, pv in volumes.items():
        cluster.catalog(PersistentVolume).put(pv)
        cluster.catalog(PersistentVolumeClaim).put(claim(claim_name, volume=pv.metadata.name))
    return cluster


def csi(handle: str, driver: str = DRIVER) -> PersistentVolume:
    return volume(f"pv-{handle}-{driver}", source={"csi": {"driver": driver, "volumeHandle": handle}})


def using(cluster: Cluster, name: str, *claims: str, on: str = "") -> PodInfo:
    """A pod that mounts claims; placed if it is on a node."""
    info = cluster.shapes.info(pod(name, node=on, spec=mounting(*claims)))
    if on:
        cluster.put_pod(info)
    return info


def counts(cluster: Cluster, driver: str = DRIVER) -> list[int]:
    numbers: list[int] = cluster.volumes.attached.count(cluster.all_nodes(), driver).tolist()
    return numbers


def test_an_unbound_claim_counts_for_the_driver_of_its_class_while_there_is_one() -> None:
    cluster = cluster_of("a")
    classes = cluster.catalog(StorageClass)
    for name, bound in (("new", ""), ("lost", "pv-that-is-gone")):
        cluster.catalog(PersistentVolumeClaim).put(claim(name, volume=bound, storage_class="fast"))
    using(cluster, "p", "new", "lost", on="a")
    found = [counts(cluster)]
    for provisioner in (DRIVER, "other.example.com", DRIVER):
        classes.put(storage_class("fast", provisioner=provisioner))
        found.append(counts(cluster))
    classes.remove("", "fast")
    found.append(counts(cluster))
    assert found == [[0], [2], [0], [2], [0]]


def test_a_volume_of_a_migrated_plugin_counts_for_its_driver_if_it_has_a_handle() -> None:
    sources = {"with": {"cinder": {"volumeID": "v"}}, "without": {"cinder": {"volumeID": ""}}}
    cluster = cluster_of("a", **{name: volume(f"pv-{name}", source=source) for name, source in sources.items()})
    using(cluster, "p", "with", "without", on="a")
    assert counts(cluster, "cinder.csi.openstack.org") == [1]


def test_the_volumes_of_a_pod_are_those_that_are_ever_attached() -> None:
    cluster = cluster_of("a", x=csi("x"), local=volume("pv-local", source={"local": {"path": "/data"}}))
    info = using(cluster, "p", "local", "x")
    found = list(cluster.volumes.resolver.resolve(info))
    assert [resolved.volume for resolved in found] == [CSIVolume(DRIVER, "x")]


@pytest.mark.parametrize("handle", ["", "v"])
@pytest.mark.parametrize("driver", ["", DRIVER])
def test_a_csi_volume_counts_if_it_has_a_driver_and_a_handle(driver: str, handle: str) -> None:
    cluster = cluster_of("a", x=csi(handle, driver))
    using(cluster, "p", "x", on="a")
    assert counts(cluster, driver) == [int(bool(driver and handle))]


def test_a_pod_uses_a_volume_once_however_many_of_its_claims_are_bound_to_it() -> None:
    cluster = cluster_of("a", x=csi("same"), y=csi("same"))
    volumes, claims = cluster.catalog(PersistentVolume), cluster.catalog(PersistentVolumeClaim)
    info = using(cluster, "p", "x", "y", on="a")
    shared = CSIVolume(DRIVER, "same")
    assert counts(cluster) == [1]
    volumes.put(volume("pv-2", source={"csi": {"driver": DRIVER, "volumeHandle": "same"}}))
    claims.put(claim("y", volume="pv-2"))
    assert counts(cluster) == [1]
    volumes.put(volume("pv-2", source={"csi": {"driver": DRIVER, "volumeHandle": "another"}}))
    assert counts(cluster) == [2]
    claims.put(claim("x", volume="pv-2"))
    assert (counts(cluster), cluster.volumes.attached.mounted(cluster.all_nodes(), shared)) == ([1], None)
    volumes.put(volume("pv-2", source={"csi": {"driver": DRIVER, "volumeHandle": "same"}}))
    cluster.remove_pod(info.uid)
    assert (counts(cluster), cluster.volumes.attached.mounted(cluster.all_nodes(), shared)) == ([0], None)


def test_the_volumes_of_a_pod_that_has_left_do_not_follow_their_claims() -> None:
    cluster = cluster_of("a", x=csi("x"), y=csi("y"))
    left, stays = using(cluster, "left", "x", on="a"), using(cluster, "stays", "y", on="a")
    cluster.remove_pod(left.uid)
    cluster.catalog(PersistentVolume).put(csi("z"))
    cluster.catalog(PersistentVolumeClaim).put(claim("x", volume=f"pv-z-{DRIVER}"))
    assert counts(cluster) == [1]
    cluster.catalog(PersistentVolumeClaim).put(claim("y", volume=f"pv-z-{DRIVER}"))
    assert counts(cluster) == [1]
    cluster.remove_pod(stays.uid)
    assert counts(cluster) == [0]


def test_each_of_several_attachments_of_a_volume_follows_it(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of("a", "b", x=csi("x"))
    name, attachments = f"pv-x-{DRIVER}", cluster.catalog(VolumeAttachment)
    for where in "ab":
        attachments.put(attachment(f"at-{where}", node=where, volume=name))
    assert counts(cluster) == [1, 1]
    attachments.remove("", "at-a")
    assert counts(cluster) == [0, 1]
    cluster.catalog(PersistentVolume).remove("", name)
    assert counts(cluster) == [0, 0]
    cluster.catalog(PersistentVolume).put(csi("x"))
    assert counts(cluster) == [0, 1]
    attachments.put(attachment("at-b", node="a", volume=name))
    assert counts(cluster) == [1, 0]
    attachments.remove("", "at-b")
    assert counts(cluster) == [0, 0]
    assert caplog.messages == []


def test_a_volume_that_is_attached_and_mounted_counts_until_it_is_neither() -> None:
    cluster = cluster_of("a", x=csi("x"))
    info = using(cluster, "p", "x", on="a")
    cluster.catalog(VolumeAttachment).put(attachment("at", node="a", volume=f"pv-x-{DRIVER}"))
    assert counts(cluster) == [1]
    cluster.remove_pod(info.uid)
    assert counts(cluster) == [1]
    assert cluster.volumes.attached.mounted(cluster.all_nodes(), CSIVolume(DRIVER, "x")) is None
    cluster.catalog(VolumeAttachment).remove("", "at")
    assert counts(cluster) == [0]


# -- hypothetical nodes --------------------------------------------------------------------------------------------


def hypothetical(cluster: Cluster, *changes: NodeChange) -> HypotheticalNodes:
    """All nodes with changes of the first ones."""
    unchanged = [NodeChange()] * (len(cluster.nodes) - len(changes))
    return HypotheticalNodes(cluster.nodes, np.arange(len(cluster.nodes)), [*changes, *unchanged])


def test_hypothetical_changes_of_pods_change_what_is_attached() -> None:
    cluster = cluster_of("a", "b", x=csi("x"), y=csi("y"), z=csi("z"), other=csi("x", "other.example.com"))
    first, second = using(cluster, "first", "x", "y", on="a"), using(cluster, "second", "x", on="a")
    cluster.catalog(VolumeAttachment).put(attachment("at", node="a", volume=f"pv-z-{DRIVER}"))
    attached = cluster.volumes.attached
    coming = [using(cluster, name, *claims) for name, claims in (("p", "x"), ("q", "yz"), ("r", ["other"]))]
    changed = {
        "nothing": NodeChange(),
        "one of two that use x leaves": NodeChange(removed=(second,)),
        "the one that uses y leaves": NodeChange(removed=(first,)),
        "both leave": NodeChange(removed=(first, second)),
        "another for x": NodeChange(added=(coming[0],)),
        "z is attached already": NodeChange(added=(coming[1],)),
        "another driver": NodeChange(added=(coming[2],)),
        "one for another": NodeChange(removed=(first, second), added=(coming[0],)),
    }
    found = {
        what: (
            attached.count(hypothetical(cluster, change, change), DRIVER).tolist(),
            *(_mounted(cluster, hypothetical(cluster, change, change), handle) for handle in "xyz"),
        )
        for what, change in changed.items()
        if what not in ("one of two that use x leaves", "the one that uses y leaves", "both leave", "one for another")
    }
    assert found == {
        "nothing": ([3, 0], [True, False], [True, False], [False, False]),
        "another for x": ([3, 1], [True, True], [True, False], [False, False]),
        "z is attached already": ([3, 2], [True, False], [True, True], [True, True]),
        "another driver": ([3, 0], [True, False], [True, False], [False, False]),
    }
    leaving = {
        what: (
            attached.count(hypothetical(cluster, change), DRIVER).tolist(),
            *(_mounted(cluster, hypothetical(cluster, change), handle)[0] for handle in "xyz"),
        )
        for what, change in changed.items()
        if what not in found
    }
    assert leaving == {
        "one of two that use x leaves": ([3, 0], True, True, False),
        "the one that uses y leaves": ([2, 0], True, False, False),
        "both leave": ([1, 0], False, False, False),
        "one for another": ([2, 0], True, False, False),
    }
    assert attached.count(hypothetical(cluster, NodeChange(added=(coming[2],))), "other.example.com").tolist() == [1, 0]
    assert counts(cluster) == [3, 0], "nothing has happened"


def _mounted(cluster: Cluster, nodes: HypotheticalNodes, handle: str) -> list[bool]:
    mounted = cluster.volumes.attached.mounted(nodes, CSIVolume(DRIVER, handle))
    assert mounted is not None
    where: list[bool] = mounted.tolist()
    return where


def test_the_first_problem_with_the_volumes_of_a_node_is_that_of_its_pods_after_the_change() -> None:
    cluster = cluster_of("a", "b", "c", x=csi("x"))
    for name in ("p", "q", "r"):
        cluster.catalog(PersistentVolumeClaim).put(claim(f"{name}-e"))  # which the pod does not own
    ephemeral = {
        name: cluster.shapes.info(pod(name, node=where, spec=mounting(ephemeral=["e"])))
        for name, where in (("p", "a"), ("q", "a"), ("r", ""))
    }
    for name in ("p", "q"):
        cluster.put_pod(ephemeral[name])
    fine = using(cluster, "fine", "x")

    def problems(*changes: NodeChange) -> dict[int, str]:
        found = cluster.volumes.attached.problems(hypothetical(cluster, *changes) if changes else cluster.all_nodes())
        return {position: problem.partition("pod ")[2].split()[0] for position, problem in found}

    assert [counts(cluster), problems()] == [[0, 0, 0], {0: "default/p"}]
    p, q, r = (ephemeral[name] for name in "pqr")
    assert problems(NodeChange(added=(fine,)), NodeChange(added=(fine,))) == {0: "default/p"}
    assert problems(NodeChange(removed=(p,)), NodeChange(added=(fine, r))) == {0: "default/q", 1: "default/r"}
    assert problems(NodeChange(removed=(p, q)), NodeChange(added=(fine,))) == {}
    assert problems(NodeChange(removed=(p, q), added=(r,))) == {0: "default/r"}
    cluster.remove_pod(p.uid)
    assert problems() == {0: "default/q"}
    cluster.catalog(PersistentVolumeClaim).put(ephemeral_claim("q", "e"))
    assert problems() == {}
