"""The simulated provisioner: creates volumes for claims of every storage class, whatever its provisioner.

Provisioning takes no time, or as long as the annotation ``kubestow.dev/provisioning`` of the storage class says.
Capacity is unlimited: CSIStorageCapacity objects affect scheduling but are neither published nor consumed here.

The node affinity of a volume is the selected node's values of the topology keys, which are those of the driver on that
node (CSINode), or else those of the class's ``allowedTopologies``. Without either the volume is accessible everywhere.
"""

from __future__ import annotations

import asyncio
import zlib

from kubestow.api.formats.duration import Duration
from kubestow.api.storage import SELECTED_NODE, WAIT_FOR_FIRST_CONSUMER
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.behaviour.annotations import PROVISIONING
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange
from kubestow_devcluster.controllers.storage.volume_binding import PROVISIONED_BY, STORAGE_PROVISIONER


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

    def reconcile(self, key: str) -> None:
        claim = self.get(key)
        if claim is None or claim["spec"].get("volumeName") or "deletionTimestamp" in claim["metadata"]:
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
                self._reschedule(claim, storage_class, str(error))

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

    def _reschedule(self, claim: Object, storage_class: Object, problem: str) -> None:
        """Remove the selected node, so that the scheduler selects another one."""
        message = f'failed to provision volume with StorageClass "{storage_class["metadata"]["name"]}": {problem}'
        self.record_warning(claim, "ProvisioningFailed", message)

        def remove_selected_node(metadata: Object) -> None:
            metadata["annotations"] = {
                key: value for key, value in metadata["annotations"].items() if key != SELECTED_NODE
            }

        metadata = claim["metadata"]
        self.update_metadata(self.kind, metadata["namespace"], metadata["name"], remove_selected_node)


def _seconds(duration: str) -> float:
    """A Go duration in seconds; 0 if it is empty or invalid."""
    try:
        return Duration.parse(duration).seconds
    except ValueError:
        return 0.0


def _in(key: str, value: str) -> Object:
    return {"key": key, "operator": "In", "values": [value]}
