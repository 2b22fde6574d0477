"""The number of attached volumes equals a recount after any sequence of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from kubestow.cluster.cache import Cluster
from kubestow.testing import node, pod
from kubestow.testing.storage import DRIVER, attachment, claim, csi_node, mounting, storage_class, volume

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
