"""Persistent volume claims: bound to a volume that is there, or handed to whoever provides volumes.

A claim that names a volume gets that one or none. Otherwise it gets a volume that is reserved for it, or, unless its
class waits for the first consumer, the smallest free one that suits; which volumes suit is the scheduler's own rule
(:mod:`kubestow.cluster.storage.available_volumes`). If there is none, the claim is marked for the provisioner of its class, at once
or when the scheduler has selected a node.
"""

from __future__ import annotations

from kubestow.api.meta import decode
from kubestow.api.quantity import nanos
from kubestow.api.storage import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolumeClaim,
)
from kubestow.cluster.storage.available_volumes import suits, want_of
from kubestow.devcluster.apiserver.registry.admission import DEFAULT_CLASS
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.storage.volume_index import VolumeIndex
from kubestow.devcluster.controllers.storage.volumes import PROVISIONED_BY
from kubestow.errors import InvalidObject

__all__ = ["NO_PROVISIONER", "STORAGE_PROVISIONER", "ClaimController"]

NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: Annotation of a claim: who is to provide its volume.
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
_CLASSES = "storageclasses.storage.k8s.io"
_WAITING = "waiting for first consumer to be created before binding"
_NOTHING = "no persistent volumes available for this claim and no storage class is set"


class ClaimController(Controller):
    resource = "persistentvolumeclaims"
    component = "persistentvolume-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._volume_kind = world.registry.catalog["persistentvolumes"]
        self._class_kind = world.registry.catalog[_CLASSES]
        self._volumes = VolumeIndex()
        #: Claims without a volume by the name of their class, for when a volume or the class turns up.
        self._unbound: dict[str, set[str]] = {}
        #: What was last said about a claim that cannot be bound; the same again is no news.
        self._told: dict[str, str] = {}

    def observe(self, happening: Happening) -> None:
        event = happening.event
        if happening.resource == "persistentvolumes":
            self._observe_volume(event)
        elif happening.resource == _CLASSES and event.type != "DELETED":
            # A class that has become the default is for claims that name none, too.
            for key in self._unbound.get(event.object.name, set()) | self._unbound.get("", set()):
                self.reconcile_soon(key)
        elif happening.resource == self.resource:
            self._observe_claim(happening.key, event)

    def _observe_claim(self, key: str, event: Event) -> None:
        if event.previous is not None:
            before = self.kind.decode(event.previous)["spec"].get("storageClassName", "")
            self._unbound.get(before, set()).discard(key)
        if event.type == "DELETED":
            self._told.pop(key, None)
            return
        claim = self.kind.decode(event.object)
        if BIND_COMPLETED not in (claim["metadata"].get("annotations") or {}):
            self._unbound.setdefault(claim["spec"].get("storageClassName", ""), set()).add(key)
        self.reconcile_soon(key)

    def _observe_volume(self, event: Event) -> None:
        volume = self._volumes.observe(event)
        reference = volume.spec.claim_ref
        if reference is not None:
            self.reconcile_soon(f"{reference.namespace}/{reference.name}")
        elif volume.status.phase == "Available" and not _waits(self.find(volume.storage_class, self._class_kind)):
            for key in self._unbound.get(volume.storage_class, ()):
                self.reconcile_soon(key)

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None:
            return
        claim = self.kind.decode(stored)
        try:
            known = decode(PersistentVolumeClaim, stored.data)
            if BIND_COMPLETED in known.metadata.annotations:
                self._check(claim)
            elif known.spec.volume_name:
                self._bind_named(claim, known)
            elif known.metadata.deletion_timestamp is None:
                self._bind_any(claim, known)
        except InvalidObject as invalid:
            self._say(claim, "FailedBinding", str(invalid), warning=True)

    # Claims that are bound

    def _check(self, claim: Object) -> None:
        """A bound claim keeps its volume, or is lost with it."""
        volume = self.find(claim["spec"].get("volumeName", ""), self._volume_kind)
        if volume is None:
            self._lose(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        elif not _refers(volume, claim):
            problem = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", problem)
        else:
            self._grow(claim, volume)
            self._bind(claim, volume)

    def _grow(self, claim: Object, volume: Object) -> None:
        """Let a provided volume become as large as its claim asks for by now, if its class allows it."""
        asked = claim["spec"]["resources"]["requests"]["storage"]
        if nanos(asked) <= nanos(volume["spec"]["capacity"]["storage"]):
            return
        class_ = self.find(claim["spec"].get("storageClassName", ""), self._class_kind) or {}
        if class_.get("allowVolumeExpansion") and PROVISIONED_BY in (volume["metadata"].get("annotations") or {}):
            volume["spec"]["capacity"] = {**volume["spec"]["capacity"], "storage": asked}
            self.registry.commit(self._volume_kind, volume)
            self.tell(claim, "VolumeResizeSuccessful", "Resize volume succeeded")

    def _lose(self, claim: Object, reason: str, message: str) -> None:
        if claim["status"].get("phase") != "Lost":
            self.set_status(claim, {**claim["status"], "phase": "Lost"})
            self.warn(claim, reason, message)

    # Claims that are not

    def _bind_named(self, claim: Object, known: PersistentVolumeClaim) -> None:
        name = known.spec.volume_name
        volume, offered = self.find(name, self._volume_kind), self._volumes.get(name)
        if volume is None or offered is None:
            return
        if volume["spec"].get("claimRef") and not _refers(volume, claim):
            self._say(claim, "FailedBinding", f'volume "{name}" already bound to a different claim.', warning=True)
        elif not volume["spec"].get("claimRef") and not (
            suits(offered, want_of(known)) and offered.storage_class == known.storage_class
        ):
            problem = "its class, size or modes are not what is asked for"
            self._say(claim, "VolumeMismatch", f'Cannot bind to requested volume "{name}": {problem}', warning=True)
        else:
            self._bind(claim, volume)

    def _bind_any(self, claim: Object, known: PersistentVolumeClaim) -> None:
        if "storageClassName" not in claim["spec"] and self._adopt_default_class(claim):
            return
        found = self.find(known.storage_class, self._class_kind)
        delayed = _waits(found) and SELECTED_NODE not in known.metadata.annotations
        offered = self._volumes.find(known, want_of(known), reserved_only=delayed)
        volume = None if offered is None else self.find(offered.metadata.name, self._volume_kind)
        if volume is not None:
            self._bind(claim, volume)
        elif delayed:
            self._say(claim, "WaitForFirstConsumer", _WAITING)
        elif not known.storage_class:
            self._say(claim, "FailedBinding", _NOTHING)
        elif found is None:
            missing = f'storageclass.storage.k8s.io "{known.storage_class}" not found'
            self._say(claim, "ProvisioningFailed", missing, warning=True)
        elif found["provisioner"] == NO_PROVISIONER:
            problem = f"no volume plugin matched name: {NO_PROVISIONER}"
            self._say(claim, "ProvisioningFailed", problem, warning=True)
        else:
            self._ask(claim, found["provisioner"])

    def _adopt_default_class(self, claim: Object) -> bool:
        """Give a claim without any class the default one, should there be one by now."""
        classes = [self._class_kind.decode(one) for one in self.registry.store.collection(_CLASSES).snapshot()]
        defaults = [
            one["metadata"]
            for one in classes
            if (one["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
        ]
        if not defaults:
            return False
        newest = max(defaults, key=lambda one: (one["creationTimestamp"], one["name"]))
        claim["spec"]["storageClassName"] = newest["name"]
        self.registry.commit(self.kind, claim)
        return True

    def _ask(self, claim: Object, provisioner: str) -> None:
        """Mark a claim for its provisioner."""
        annotations = claim["metadata"].get("annotations") or {}
        if annotations.get(STORAGE_PROVISIONER) != provisioner:
            asked = {STORAGE_PROVISIONER: provisioner, _BETA_STORAGE_PROVISIONER: provisioner}
            claim = self.update(claim, metadata={"annotations": annotations | asked})
        message = (
            f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the"
            " system administrator. If volume creation is delayed, please verify that the provisioner is running and"
            " correctly registered."
        )
        self._say(claim, "ExternalProvisioning", message)

    # Binding

    def _bind(self, claim: Object, volume: Object) -> None:
        """Write into volume and claim that they belong together, where it is not written yet."""
        now = self.registry.now()
        if _bind_volume(volume, self.kind.reference_to(claim), now):
            self.registry.commit(self._volume_kind, volume)
        if _bind_claim(claim, volume):
            self.registry.commit(self.kind, claim)
        self._told.pop(self.kind.key(claim["metadata"]["namespace"], claim["metadata"]["name"]), None)

    def _say(self, claim: Object, reason: str, message: str, *, warning: bool = False) -> None:
        key = self.kind.key(claim["metadata"]["namespace"], claim["metadata"]["name"])
        if self._told.get(key) != message:
            self._told[key] = message
            (self.warn if warning else self.tell)(claim, reason, message)


def _waits(class_: Object | None) -> bool:
    """Whether claims of a class are left alone until a pod that uses them has been given a node."""
    return class_ is not None and class_.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def _refers(volume: Object, claim: Object) -> bool:
    """Whether a volume is bound to, or reserved for, this very claim."""
    reference, identity = volume["spec"].get("claimRef") or {}, claim["metadata"]
    named = (reference.get("namespace"), reference.get("name")) == (identity["namespace"], identity["name"])
    return named and reference.get("uid") in (None, "", identity["uid"])


def _bind_volume(volume: Object, reference_to_claim: Object, now: str) -> bool:
    spec = volume["spec"]
    reference = spec.get("claimRef")
    changed = False
    if not reference:
        annotations = volume["metadata"].get("annotations") or {}
        volume["metadata"]["annotations"] = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    if not reference or reference.get("uid") != reference_to_claim["uid"]:
        spec["claimRef"] = reference_to_claim
        changed = True
    if volume["status"].get("phase") != "Bound":
        volume["status"] = {"phase": "Bound", "lastPhaseTransitionTime": now}
        changed = True
    return changed


def _bind_claim(claim: Object, volume: Object) -> bool:
    spec, before = claim["spec"], claim["metadata"].get("annotations") or {}
    annotations = {**before, BIND_COMPLETED: "yes"}
    if not spec.get("volumeName"):
        spec["volumeName"] = volume["metadata"]["name"]
        annotations[BOUND_BY_CONTROLLER] = "yes"
    status = {
        **claim["status"],
        "phase": "Bound",
        "accessModes": volume["spec"].get("accessModes") or [],
        "capacity": volume["spec"].get("capacity") or {},
    }
    if annotations == before and status == claim["status"]:
        return False
    claim["metadata"]["annotations"], claim["status"] = annotations, status
    return True
