"""The simulated provisioner: volumes for claims that were marked for one, whatever its name.

What a driver would ask of its storage is done at once, or after the time that the annotation
``kubestow.dev/provisioning`` of the storage class says (a Go duration; ``never``: not at all). Storage has no end:
CSIStorageCapacity objects steer the scheduler as they stand, and are neither published nor used up here.

A volume can be reached from where its topology says: the selected node's values of the keys that the driver has on
that node (CSINode) or that the class names (``allowedTopologies``); without either, from everywhere.
"""

from __future__ import annotations

import asyncio
import zlib

from kubestow.api.duration import Duration
from kubestow.api.storage import SELECTED_NODE, WAIT_FOR_FIRST_CONSUMER
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.storage.claims import STORAGE_PROVISIONER
from kubestow.devcluster.controllers.storage.volumes import PROVISIONED_BY

__all__ = ["PROVISIONING", "Provisioner"]

#: Annotation of a storage class: how long it takes to provide a volume.
PROVISIONING = "kubestow.dev/provisioning"


class _Unreachable(Exception):
    """No volume can be provided for the selected node."""


class Provisioner(Controller):
    """Reconciles claims."""

    resource = "persistentvolumeclaims"
    component = "kubestow.dev/provisioner"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        catalog = world.registry.catalog
        self._volume_kind, self._class_kind = catalog["persistentvolumes"], catalog["storageclasses.storage.k8s.io"]
        self._node_kind, self._driver_kind = catalog["nodes"], catalog["csinodes.storage.k8s.io"]
        #: When provisioning for a claim began, by its uid, in the loop's time.
        self._begun: dict[str, float] = {}

    def observe(self, happening: Happening) -> None:
        if happening.resource != self.resource:
            return
        if happening.event.type != "DELETED" and STORAGE_PROVISIONER.encode() in happening.event.object.data:
            self.reconcile_soon(happening.key)

    def reconcile(self, key: str) -> None:
        claim = self.find(key)
        if claim is None or claim["spec"].get("volumeName") or "deletionTimestamp" in claim["metadata"]:
            return
        annotations = claim["metadata"].get("annotations") or {}
        class_ = self.find(claim["spec"].get("storageClassName", ""), self._class_kind)
        if class_ is None or annotations.get(STORAGE_PROVISIONER) != class_["provisioner"]:
            return
        selected = annotations.get(SELECTED_NODE, "")
        if class_["volumeBindingMode"] == WAIT_FOR_FIRST_CONSUMER and not selected:
            return
        if self._has_waited(key, claim, class_):
            try:
                self._provide(claim, class_, selected)
            except _Unreachable as problem:
                self._give_up(claim, class_, str(problem))

    def _has_waited(self, key: str, claim: Object, class_: Object) -> bool:
        """Whether the storage has taken its time; if not, the claim is looked at again when it has."""
        uid = claim["metadata"]["uid"]
        now = asyncio.get_running_loop().time()
        if uid not in self._begun:
            self._begun[uid] = now
            message = f'External provisioner is provisioning volume for claim "{key}"'
            self.tell(claim, "Provisioning", message)
        asked = (class_["metadata"].get("annotations") or {}).get(PROVISIONING, "")
        if asked == "never":
            return False
        left = self._begun[uid] + _seconds(asked) - now
        if left > 0:
            self.reconcile_after(key, left)
            return False
        del self._begun[uid]
        return True

    def _provide(self, claim: Object, class_: Object, selected: str) -> None:
        spec = claim["spec"]
        name = f"pvc-{claim['metadata']['uid']}"
        made: Object = {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "claimRef": self.kind.reference_to(claim),
            "persistentVolumeReclaimPolicy": class_["reclaimPolicy"],
            "storageClassName": class_["metadata"]["name"],
            "volumeMode": spec["volumeMode"],
            "csi": {"driver": class_["provisioner"], "volumeHandle": name},
        }
        for field in ("mountOptions", "volumeAttributesClassName"):
            source = class_ if field == "mountOptions" else spec
            if source.get(field):
                made[field] = source[field]
        if expressions := self._topology(claim, class_, selected):
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
        metadata = {"name": name, "annotations": {PROVISIONED_BY: class_["provisioner"]}}
        if self.registry.store.collection("persistentvolumes").get(name) is None:
            new = self._volume_kind.struct.read({"metadata": metadata, "spec": made}, [])
            self.registry.create(self._volume_kind, "", new)
            self.tell(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")

    def _topology(self, claim: Object, class_: Object, selected: str) -> list[Object]:
        """The requirements on nodes that reach the new volume. Raises _Unreachable."""
        terms = [
            {one["key"]: one["values"] for one in term.get("matchLabelExpressions") or ()}
            for term in class_.get("allowedTopologies") or ()
        ]
        if not selected:
            # One of the places that are allowed, always the same for the same claim.
            number = zlib.crc32(claim["metadata"]["uid"].encode())
            chosen = terms[number % len(terms)] if terms else {}
            return [_is(key, values[number % len(values)]) for key, values in chosen.items()]
        node = self.find(selected, self._node_kind)
        if node is None:
            raise _Unreachable(f'node "{selected}" not found')
        labels = node["metadata"].get("labels") or {}
        allowed = [term for term in terms if all(labels.get(key) in values for key, values in term.items())]
        if terms and not allowed:
            raise _Unreachable(f'selected node "{selected}" is in none of the topologies that the class allows')
        keys = self._driver_keys(class_["provisioner"], selected) or list(allowed[0] if allowed else ())
        return [_is(key, labels[key]) for key in keys if key in labels]

    def _driver_keys(self, driver: str, node: str) -> list[str]:
        found = self.find(node, self._driver_kind)
        drivers = found["spec"].get("drivers") or () if found is not None else ()
        return next((list(one.get("topologyKeys") or ()) for one in drivers if one["name"] == driver), [])

    def _give_up(self, claim: Object, class_: Object, problem: str) -> None:
        """Have the scheduler select another node."""
        message = f'failed to provision volume with StorageClass "{class_["metadata"]["name"]}": {problem}'
        self.warn(claim, "ProvisioningFailed", message)

        def forget(metadata: Object) -> None:
            metadata["annotations"] = {
                key: value for key, value in metadata["annotations"].items() if key != SELECTED_NODE
            }

        self.change_metadata(self.kind, claim["metadata"]["namespace"], claim["metadata"]["name"], forget)


def _seconds(asked: str) -> float:
    """The time that a class asks for; none where that cannot be read."""
    try:
        return Duration.parse(asked).seconds
    except ValueError:
        return 0.0


def _is(key: str, value: str) -> Object:
    return {"key": key, "operator": "In", "values": [value]}
