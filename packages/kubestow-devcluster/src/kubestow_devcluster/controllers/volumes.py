"""The controllers of volumes and claims: binding, the simulated provisioner, protection, and ephemeral volumes.

A claim with a volumeName is bound to that volume or stays pending. Any other claim is bound to a volume reserved for
it, or, unless its class has WaitForFirstConsumer, to the smallest matching volume (:mod:`kubestow.rules.volumes`).
Without a match the claim is annotated for the provisioner of its class; with WaitForFirstConsumer only after the
scheduler has selected a node.

Volumes have the phases Available, Bound and Released. A released volume is deleted if its reclaim policy is Delete and
a provisioner created it. Released volumes that were created by hand are kept, because there is no volume plugin that
could delete or recycle them.

The provisioner creates volumes for claims of every storage class, whatever its provisioner, at once or in the time that
the annotation ``kubestow.dev/provisioning`` of the class says. Capacity is unlimited: CSIStorageCapacity objects affect
scheduling but are neither published nor consumed here. The node affinity of a volume is the selected node's values of
the topology keys, which are those of the driver on that node (CSINode), or else those of the class's
``allowedTopologies``. Without either the volume is accessible everywhere.

Terminating volumes and claims keep a finalizer while they are in use: a claim while a bound pod that has not finished
refers to it, a volume while it is bound. The claims of generic ephemeral volumes are owned by their pod.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, ClassVar

import msgspec

from kubestow.api.formats.duration import Duration
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
from kubestow.rules.claims import ephemeral_claim, ephemeral_claim_name, ownership_problem
from kubestow.rules.volumes import (
    VolumeIndex,
    bound_claim,
    bound_volume,
    default_storage_class,
    is_bound_to,
    may_bind_by_name,
)
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject, WatchEvent
from kubestow_devcluster.behaviour.pod_behaviour import PROVISIONING
from kubestow_devcluster.component_base.stored_objects import is_pod_finished, is_terminating, node_name_of
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

    def sync(self, key: str, volume: Object) -> None:
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
            # Annotate the claim with its provisioner.
            provisioner = storage_class["provisioner"]
            annotations = claim["metadata"].get("annotations") or {}
            if annotations.get(STORAGE_PROVISIONER) != provisioner:
                added = {STORAGE_PROVISIONER: provisioner, _BETA_STORAGE_PROVISIONER: provisioner}
                claim = self.patch(claim, metadata={"annotations": annotations | added})
            message = (
                f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by"
                " the system administrator. If volume creation is delayed, please verify that the provisioner is"
                " running and correctly registered."
            )
            self._record_once(claim, "ExternalProvisioning", message)

    def _assign_default_class(self, claim: Object) -> bool:
        """Set the default class on a claim without a class. Returns whether there is a default class."""
        stored = self.registry.store.collection(_CLASSES).snapshot()
        name = default_storage_class(convert(StorageClass, self._class_kind.decode(one)) for one in stored)
        if name is None:
            return False
        claim["spec"]["storageClassName"] = name
        self.registry.commit(self.kind, claim)
        return True

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


class _TopologyError(Exception):
    """No volume is accessible from the selected node."""


class Provisioner(Controller):
    """Reconciles claims."""

    resource = "persistentvolumeclaims"
    component = "kubestow.dev/provisioner"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        scheme = context.registry.scheme
        self._volume_kind, self._class_kind = scheme["persistentvolumes"], scheme["storageclasses.storage.k8s.io"]
        self._node_kind, self._csi_node_kind = scheme["nodes"], scheme["csinodes.storage.k8s.io"]
        #: When provisioning for a claim started, by its uid, in the loop's time.
        self._started: dict[str, float] = {}

    def handle_change(self, change: ObjectChange) -> None:
        if not change.is_deletion and STORAGE_PROVISIONER.encode() in change.event.object.data:
            self.enqueue(change.key)

    def sync(self, key: str, claim: Object) -> None:
        if claim["spec"].get("volumeName") or "deletionTimestamp" in claim["metadata"]:
            return
        annotations = claim["metadata"].get("annotations") or {}
        storage_class = self.get(claim["spec"].get("storageClassName", ""), self._class_kind)
        if storage_class is None or annotations.get(STORAGE_PROVISIONER) != storage_class["provisioner"]:
            return
        selected_node = annotations.get(SELECTED_NODE, "")
        if storage_class["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER and not selected_node:
            return
        if self._wait_out_delay(key, claim, storage_class):
            try:
                self._provision(claim, storage_class, selected_node)
            except _TopologyError as error:
                # Remove the selected node, so that the scheduler selects another one.
                message = (
                    f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {error!s}'
                )
                self.record_warning(claim, "ProvisioningFailed", message)

                def remove_selected_node(metadata: Object) -> None:
                    metadata["annotations"] = {
                        key: value for key, value in metadata["annotations"].items() if key != SELECTED_NODE
                    }

                metadata = claim["metadata"]
                self.update_metadata(self.kind, metadata["namespace"], metadata["name"], remove_selected_node)

    def _wait_out_delay(self, key: str, claim: Object, storage_class: Object) -> bool:
        """Let the provisioning time of the class pass, by enqueueing the claim for its end; whether it has passed."""
        uid = claim["metadata"]["uid"]
        now = asyncio.get_running_loop().time()
        if uid not in self._started:
            self._started[uid] = now
            message = f'External provisioner is provisioning volume for claim "{key}"'
            self.record_event(claim, "Provisioning", message)
        duration = (storage_class["metadata"].get("annotations") or {}).get(PROVISIONING, "")
        if duration == "never":
            return False
        remaining = self._started[uid] + _seconds(duration) - now
        if remaining > 0:
            self.enqueue_after(key, remaining)
            return False
        del self._started[uid]
        return True

    def _provision(self, claim: Object, storage_class: Object, selected_node: str) -> None:
        """Create the claim's volume unless it exists. Raises _TopologyError."""
        claim_spec = claim["spec"]
        name = f"pvc-{claim['metadata']['uid']}"
        spec: Object = {
            "capacity": {"storage": claim_spec["resources"]["requests"]["storage"]},
            "accessModes": claim_spec["accessModes"],
            "claimRef": self.kind.object_reference(claim),
            "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": claim_spec["volumeMode"],
            "csi": {"driver": storage_class["provisioner"], "volumeHandle": name},
        }
        for field in ("mountOptions", "volumeAttributesClassName"):
            source = storage_class if field == "mountOptions" else claim_spec
            if source.get(field):
                spec[field] = source[field]
        if expressions := self._topology_requirements(claim, storage_class, selected_node):
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        metadata = {"name": name, "annotations": {PROVISIONED_BY: storage_class["provisioner"]}}
        if self.registry.store.collection("persistentvolumes").get(name) is None:
            new = self._volume_kind.struct.read({"metadata": metadata, "spec": spec}, [])
            self.registry.create(self._volume_kind, "", new)
            self.record_event(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")

    def _topology_requirements(self, claim: Object, storage_class: Object, selected_node: str) -> list[Object]:
        """The node selector requirements of the new volume. Raises _TopologyError."""
        terms = [
            {requirement["key"]: requirement["values"] for requirement in term.get("matchLabelExpressions") or ()}
            for term in storage_class.get("allowedTopologies") or ()
        ]
        if not selected_node:
            # Spread claims over the allowed topologies, deterministically by uid.
            number = zlib.crc32(claim["metadata"]["uid"].encode())
            chosen = terms[number % len(terms)] if terms else {}
            return [_in(key, values[number % len(values)]) for key, values in chosen.items()]
        node = self.get(selected_node, self._node_kind)
        if node is None:
            raise _TopologyError(f'node "{selected_node}" not found')
        labels = node["metadata"].get("labels") or {}
        allowed = [term for term in terms if all(labels.get(key) in values for key, values in term.items())]
        if terms and not allowed:
            raise _TopologyError(f'selected node "{selected_node}" is in none of the topologies that the class allows')
        keys = self._driver_topology_keys(storage_class["provisioner"], selected_node)
        keys = keys or list(allowed[0] if allowed else ())
        return [_in(key, labels[key]) for key in keys if key in labels]

    def _driver_topology_keys(self, driver: str, node: str) -> list[str]:
        csi_node = self.get(node, self._csi_node_kind)
        drivers = csi_node["spec"].get("drivers") or () if csi_node is not None else ()
        return next((list(entry.get("topologyKeys") or ()) for entry in drivers if entry["name"] == driver), [])


def _seconds(duration: str) -> float:
    """A Go duration in seconds; 0 if it is empty or invalid."""
    try:
        return Duration.parse(duration).seconds
    except ValueError:
        return 0.0


def _in(key: str, value: str) -> Object:
    return {"key": key, "operator": "In", "values": [value]}


class _ClaimVolumeSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _PodVolume(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    volumes: tuple[_PodVolume, ...] | None = ()


class _PodVolumes(msgspec.Struct, frozen=True):
    spec: _PodSpec


def _claim_keys(pod: StoredObject) -> set[str]:
    if b'"persistentVolumeClaim":' not in pod.data and b'"ephemeral":' not in pod.data:
        return set()
    keys = set()
    for volume in msgspec.json.decode(pod.data, type=_PodVolumes).spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            keys.add(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            keys.add(f"{pod.namespace}/{ephemeral_claim_name(pod.name, volume.name)}")
    return keys


def _uses_volumes(pod: StoredObject) -> bool:
    return bool(node_name_of(pod)) and not is_pod_finished(pod)


class _ProtectionController(Controller):
    """Removes ``finalizer`` from terminating objects that are not in use."""

    finalizer: ClassVar[str]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None or not is_terminating(stored):
            return
        current = self.kind.decode(stored)
        if self.finalizer in (current["metadata"].get("finalizers") or ()) and not self.is_in_use(key, current):
            self.remove_finalizer(self.kind, stored.namespace, stored.name, self.finalizer)

    def is_in_use(self, key: str, current: Object) -> bool:
        raise NotImplementedError


class PVCProtectionController(_ProtectionController):
    resource = "persistentvolumeclaims"
    watched = frozenset({"pods"})
    component = "pvc-protection-controller"
    finalizer = "kubernetes.io/pvc-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.registry.store.collection("pods")
        #: The keys of the pods that refer to a claim, by the claim's key.
        self._users: dict[str, set[str]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource != "pods" or (event.type == "MODIFIED" and _uses_volumes(event.object)):
            return
        for claim in _claim_keys(event.object):
            users = self._users.setdefault(claim, set())
            (users.discard if change.is_deletion else users.add)(change.key)
            if not users:
                del self._users[claim]
            self.enqueue(claim)

    def is_in_use(self, key: str, current: Object) -> bool:
        pods = [self._pods.get(user) for user in self._users.get(key, ())]
        return any(pod is not None and _uses_volumes(pod) for pod in pods)


class PVProtectionController(_ProtectionController):
    resource = "persistentvolumes"
    component = "pv-protection-controller"
    finalizer = "kubernetes.io/pv-protection"

    def is_in_use(self, key: str, current: Object) -> bool:
        return bool(current["status"].get("phase") == "Bound")


class EphemeralVolumeController(Controller):
    resource = "pods"
    component = "ephemeral_volume"

    def handle_change(self, change: ObjectChange) -> None:
        event = change.event
        if event.type == "ADDED" and b'"volumeClaimTemplate":' in event.object.data:
            self.enqueue(change.key)

    def sync(self, key: str, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            return
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral", {}).get("volumeClaimTemplate") is not None:
                self._ensure_claim(pod, ephemeral_claim(pod["metadata"], volume))

    def _ensure_claim(self, pod: Object, claim: Object) -> None:
        namespace, kind = pod["metadata"]["namespace"], self.registry.scheme[_CLAIMS]
        key = f"{namespace}/{claim['metadata']['name']}"
        existing = self.registry.store.collection(_CLAIMS).get(key)
        if existing is None:
            self.registry.create(kind, namespace, kind.struct.read(claim, []))
            return
        found = decode(PersistentVolumeClaim, existing.data)
        problem = ownership_problem(found, pod=key_of(pod), pod_uid=pod["metadata"]["uid"])
        if problem is not None:
            self.record_warning(pod, "WarningVolumeConflict", problem)
