"""The number of attached volumes equals a recount after any sequence of events."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from kubestow.cluster.cache import Cluster
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
