"""The persistent volume controller: binds claims to volumes, or hands them to a provisioner.

A claim with a volumeName is bound to that volume or stays pending. Any other claim is bound to a volume reserved for
it, or, unless its class has WaitForFirstConsumer, to the smallest matching volume (:mod:`kubestow.rules.volumes`).
Without a match the claim is annotated for the provisioner of its class; with WaitForFirstConsumer only after the
scheduler has selected a node.

Volumes have the phases Available, Bound and Released. A released volume is deleted if its reclaim policy is Delete and
a provisioner created it. Released volumes that were created by hand are kept, because there is no volume plugin that
could delete or recycle them.
"""

from __future__ import annotations

from kubestow.api.formats.quantity import nanos
from kubestow.api.meta import ObjectMeta, convert, decode
from kubestow.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.errors import InvalidObject
from kubestow.rules.volumes import (
    VolumeIndex,
    bound_claim,
    bound_volume,
    default_storage_class,
    is_bound_to,
    may_bind_by_name,
)
from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange, key_of

#: Annotation of a volume: the provisioner that created it.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

_CLAIMS = "persistentvolumeclaims"


class PersistentVolumeController(Controller):
    resource = "persistentvolumes"
    watched = frozenset({_CLAIMS})
    component = "persistentvolume-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claim_kind = context.registry.scheme[_CLAIMS]
        #: The volumes whose claimRef names a claim, by the claim's key.
        self._volumes_of: dict[str, set[str]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource == _CLAIMS:
            volume = self._claim_kind.decode(event.object)["spec"].get("volumeName")
            for name in self._volumes_of.get(change.key, set()) | ({volume} if volume else set()):
                self.enqueue(name)
        elif change.resource == self.resource:
            if event.previous is not None:
                self._volumes_of.get(self._claim_key(event.previous), set()).discard(event.object.name)
            if not change.is_deletion and (claim := self._claim_key(event.object)):
                self._volumes_of.setdefault(claim, set()).add(event.object.name)

    def _claim_key(self, volume: StoredObject) -> str:
        """The key of the claim in the volume's claimRef; empty without one."""
        reference = self.kind.decode(volume)["spec"].get("claimRef")
        return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""

    def reconcile(self, key: str) -> None:
        volume = self.get(key)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            self._set_phase(volume, "Available")
            return
        claim = self.get(f"{reference['namespace']}/{reference['name']}", self._claim_kind)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif claim["spec"].get("volumeName", key) != key:
            # The claim is bound to another volume.
            annotations = volume["metadata"].get("annotations") or {}
            if _is_reclaimed_by_deletion(volume):
                self._release(volume)
            elif annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
                del volume["spec"]["claimRef"]
                volume["status"]["phase"] = ""
                self._set_phase(volume, "Available")

    def _set_phase(self, volume: Object, phase: str) -> Object:
        if volume["status"].get("phase") != phase:
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": self.registry.now()}
            volume = self.kind.decode(self.registry.commit(self.kind, volume))
        return volume

    def _release(self, volume: Object) -> None:
        volume = self._set_phase(volume, "Released")
        if _is_reclaimed_by_deletion(volume) and "deletionTimestamp" not in volume["metadata"]:
            deletion = DeleteOptions(uid=volume["metadata"]["uid"])
            self.registry.delete(self.kind, "", volume["metadata"]["name"], deletion)


def _is_reclaimed_by_deletion(volume: Object) -> bool:
    annotations = volume["metadata"].get("annotations") or {}
    return PROVISIONED_BY in annotations and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"


#: Annotation of a claim: the provisioner that is to create its volume.
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
#: The provisioner of classes whose volumes are created by hand.
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CLASSES = "storageclasses.storage.k8s.io"


class PersistentVolumeClaimController(Controller):
    resource = "persistentvolumeclaims"
    watched = frozenset({"persistentvolumes", _CLASSES})
    component = "persistentvolume-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._volume_kind = context.registry.scheme["persistentvolumes"]
        self._class_kind = context.registry.scheme[_CLASSES]
        self._volumes = VolumeIndex()
        #: The keys of unbound claims by storage class; a new volume or class enqueues them.
        self._unbound: dict[str, set[str]] = {}
        #: The message of the last event about each claim that cannot be bound, which is not recorded again.
        self._last_message: dict[str, str] = {}

    def handle_change(self, change: ObjectChange) -> None:
        event = change.event
        if change.resource == "persistentvolumes":
            self._handle_volume(event)
        elif change.resource == _CLASSES and not change.is_deletion:
            # The class may have become the default, which applies to claims without a class.
            for key in self._unbound.get(event.object.name, set()) | self._unbound.get("", set()):
                self.enqueue(key)
        elif change.resource == self.resource:
            self._handle_claim(change.key, event)

    def _handle_claim(self, key: str, event: WatchEvent) -> None:
        if event.previous is not None:
            previous_class = self.kind.decode(event.previous)["spec"].get("storageClassName", "")
            self._unbound.get(previous_class, set()).discard(key)
        if event.type == "DELETED":
            self._last_message.pop(key, None)
            return
        claim = self.kind.decode(event.object)
        if BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
            self._unbound.setdefault(claim["spec"].get("storageClassName", ""), set()).add(key)
        self.enqueue(key)

    def _handle_volume(self, event: WatchEvent) -> None:
        volume = _decode_volume(event.object)
        if event.type == "DELETED":
            self._volumes.remove(event.object.name)
        else:
            self._volumes.put(volume)
        reference = volume.spec.claim_ref
        if reference is not None:
            self.enqueue(f"{reference.namespace}/{reference.name}")
        elif volume.status.phase == "Available" and not _is_delayed(self.get(volume.storage_class, self._class_kind)):
            for key in self._unbound.get(volume.storage_class, ()):
                self.enqueue(key)

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None:
            return
        claim = self.kind.decode(stored)
        try:
            typed = decode(PersistentVolumeClaim, stored.data)
            if BIND_COMPLETED in typed.metadata.annotations:
                # Check that the claim's volume exists and refers to it; if not, the claim is lost.
                volume = self.get(claim["spec"].get("volumeName", ""), self._volume_kind)
                if volume is None:
                    message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
                    self._mark_lost(claim, "ClaimLost", message)
                elif not is_bound_to(convert(PersistentVolume, volume), typed):
                    message = "Two claims are bound to the same volume, this one is bound incorrectly"
                    self._mark_lost(claim, "ClaimMisbound", message)
                else:
                    self._expand(claim, volume)
                    self._bind(claim, volume)
            elif typed.spec.volume_name:
                self._sync_prebound_claim(claim, typed)
            elif typed.metadata.deletion_timestamp is None:
                self._sync_unbound_claim(claim, typed)
        except InvalidObject as invalid:
            self._record_once(claim, "FailedBinding", str(invalid), is_warning=True)

    # Bound claims

    def _expand(self, claim: Object, volume: Object) -> None:
        """Expand a provisioned volume to the size that its claim requests, if its class allows it."""
        requested = claim["spec"]["resources"]["requests"]["storage"]
        if nanos(requested) <= nanos(volume["spec"]["capacity"]["storage"]):
            return
        storage_class = self.get(claim["spec"].get("storageClassName", ""), self._class_kind) or {}
        is_provisioned = PROVISIONED_BY in (volume["metadata"].get("annotations") or {})
        if storage_class.get("allowVolumeExpansion") and is_provisioned:
            volume["spec"]["capacity"] = {**volume["spec"]["capacity"], "storage": requested}
            self.registry.commit(self._volume_kind, volume)
            self.record_event(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    def _mark_lost(self, claim: Object, reason: str, message: str) -> None:
        if claim["status"].get("phase") != "Lost":
            self.update_status(claim, {**claim["status"], "phase": "Lost"})
            self.record_warning(claim, reason, message)

    # Unbound claims

    def _sync_prebound_claim(self, claim: Object, typed: PersistentVolumeClaim) -> None:
        """Bind the claim to the volume it names, if that is free or reserved for it."""
        name = typed.spec.volume_name
        volume, typed_volume = self.get(name, self._volume_kind), self._volumes.get(name)
        if volume is None or typed_volume is None:
            return
        if typed_volume.spec.claim_ref is not None and not is_bound_to(typed_volume, typed):
            message = f'volume "{name}" already bound to a different claim.'
            self._record_once(claim, "FailedBinding", message, is_warning=True)
        elif not may_bind_by_name(typed_volume, typed):
            problem = "storage class, size, access modes or volume mode do not match"
            message = f'Cannot bind to requested volume "{name}": {problem}'
            self._record_once(claim, "VolumeMismatch", message, is_warning=True)
        else:
            self._bind(claim, volume)

    def _sync_unbound_claim(self, claim: Object, typed: PersistentVolumeClaim) -> None:
        """Bind the claim to a matching volume, or have one provisioned."""
        if "storageClassName" not in claim["spec"] and self._assign_default_class(claim):
            return
        storage_class = self.get(typed.storage_class, self._class_kind)
        is_delayed = _is_delayed(storage_class)
        match = self._volumes.find_match(typed, reserved_only=is_delayed)
        volume = None if match is None else self.get(match.metadata.name, self._volume_kind)
        if volume is not None:
            self._bind(claim, volume)
        elif is_delayed and SELECTED_NODE not in typed.metadata.annotations:
            message = "waiting for first consumer to be created before binding"
            self._record_once(claim, "WaitForFirstConsumer", message)
        elif not typed.storage_class:
            message = "no persistent volumes available for this claim and no storage class is set"
            self._record_once(claim, "FailedBinding", message)
        elif storage_class is None:
            message = f'storageclass.storage.k8s.io "{typed.storage_class}" not found'
            self._record_once(claim, "ProvisioningFailed", message, is_warning=True)
        elif storage_class["provisioner"] == _NO_PROVISIONER:
            message = f"no volume plugin matched name: {_NO_PROVISIONER}"
            self._record_once(claim, "ProvisioningFailed", message, is_warning=True)
        else:
            self._request_provisioning(claim, storage_class["provisioner"])

    def _assign_default_class(self, claim: Object) -> bool:
        """Set the default class on a claim without a class. Returns whether there is a default class."""
        stored = self.registry.store.collection(_CLASSES).snapshot()
        name = default_storage_class(convert(StorageClass, self._class_kind.decode(one)) for one in stored)
        if name is None:
            return False
        claim["spec"]["storageClassName"] = name
        self.registry.commit(self.kind, claim)
        return True

    def _request_provisioning(self, claim: Object, provisioner: str) -> None:
        """Annotate the claim with its provisioner."""
        annotations = claim["metadata"].get("annotations") or {}
        if annotations.get(STORAGE_PROVISIONER) != provisioner:
            added = {STORAGE_PROVISIONER: provisioner, _BETA_STORAGE_PROVISIONER: provisioner}
            claim = self.patch(claim, metadata={"annotations": annotations | added})
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the"
            " system administrator. If volume creation is delayed, please verify that the provisioner is running and"
            " correctly registered."
        )
        self._record_once(claim, "ExternalProvisioning", message)

    # Binding

    def _bind(self, claim: Object, volume: Object) -> None:
        """Bind volume and claim to each other; writes only what differs."""
        written_volume = bound_volume(volume, self.kind.object_reference(claim), self.registry.now())
        if written_volume != volume:
            self.registry.commit(self._volume_kind, written_volume)
        written_claim = bound_claim(claim, volume)
        if written_claim != claim:
            self.registry.commit(self.kind, written_claim)
        self._last_message.pop(key_of(claim), None)

    def _record_once(self, claim: Object, reason: str, message: str, *, is_warning: bool = False) -> None:
        """Record an event unless the last one about the claim had the same message."""
        key = key_of(claim)
        if self._last_message.get(key) != message:
            self._last_message[key] = message
            (self.record_warning if is_warning else self.record_event)(claim, reason, message)


def _is_delayed(storage_class: Object | None) -> bool:
    """Whether claims of the class are bound only after a node has been selected for a pod that uses them."""
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def _decode_volume(stored: StoredObject) -> PersistentVolume:
    try:
        return decode(PersistentVolume, stored.data)
    except InvalidObject:
        # A volume without capacity satisfies no claim.
        return PersistentVolume(metadata=ObjectMeta(name=stored.name))
