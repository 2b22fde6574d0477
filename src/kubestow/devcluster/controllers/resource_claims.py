"""Claims on devices: made from templates for the pods that name them, and given back when nobody uses them.

A claim made for a pod belongs to it and goes with it; the pod's status says which of its claims has which name. The
scheduler allocates devices and reserves claims for pods. A reservation for a pod that has ended is taken off here, and
with the last one the allocation. Pods that were never scheduled, because they came with a node, get no reservation.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.owners import controller_among, owner_reference, owners_of, uid_of

__all__ = ["ClaimTemplateController", "ResourceClaimController"]

_CLAIMS = "resourceclaims.resource.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
#: Annotation of a claim that was made for a pod: which of the pod's claims it is.
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
#: While devices are allocated, the claim cannot go.
_FINALIZER = "resource.kubernetes.io/delete-protection"
#: The phases of pods that have ended.
_OVER = ("Succeeded", "Failed")


class ClaimTemplateController(Controller):
    """Makes the claims that pods have templates for."""

    resource = "pods"
    component = "resource_claim"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._claim_kind = world.registry.catalog[_CLAIMS]
        self._template_kind = world.registry.catalog[_TEMPLATES]
        #: The claims that were made, by the pod's uid and which of its claims they are.
        self._made: dict[tuple[str, str], str] = {}

    def observe(self, happening: Happening) -> None:
        if happening.resource == _CLAIMS:
            self._observe_claim(happening)
        if happening.resource != self.resource or happening.event.type == "DELETED":
            return
        if b'"resourceClaimTemplateName":' in happening.event.object.data:
            self.reconcile_soon(happening.key)

    def _observe_claim(self, happening: Happening) -> None:
        owner, stored = controller_among(happening.owners), happening.event.object
        if owner is None or owner.kind != "Pod":
            return
        entry = (self._claim_kind.decode(stored)["metadata"].get("annotations") or {}).get(_POD_CLAIM_NAME, "")
        self._made[owner.uid, entry] = stored.name
        if happening.event.type == "DELETED":
            del self._made[owner.uid, entry]

    def reconcile(self, key: str) -> None:
        pod = self.find(key)
        if pod is None or "deletionTimestamp" in pod["metadata"] or _is_over(pod):
            return
        said: list[Object] = pod["status"].get("resourceClaimStatuses") or []
        names = {one["name"] for one in said}
        made = [
            {"name": entry["name"], "resourceClaimName": self._claim_for(pod, entry)}
            for entry in pod["spec"].get("resourceClaims") or ()
            if entry.get("resourceClaimTemplateName") and entry["name"] not in names
        ]
        if made:
            pod["status"]["resourceClaimStatuses"] = [*said, *made]
            self.registry.commit(self.kind, pod)

    def _claim_for(self, pod: Object, entry: Object) -> str:
        """The name of the claim for one of a pod's entries, made if need be. Raises Failure."""
        made = self._made.get((pod["metadata"]["uid"], entry["name"]))
        if made is not None:
            return made
        try:
            return self._create(pod, entry).name
        except statuses.Failure as refused:
            self.warn(pod, "FailedResourceClaimCreation", f"PodResourceClaim {entry['name']}: {refused.message}")
            raise

    def _create(self, pod: Object, entry: Object) -> Stored:
        namespace, name = pod["metadata"]["namespace"], entry["resourceClaimTemplateName"]
        template = self._template_kind.decode(self.registry.get(self._template_kind, namespace, name))["spec"]
        described = template.get("metadata") or {}
        identity = {
            "generateName": f"{pod['metadata']['name']}-{entry['name']}-",
            "annotations": {**(described.get("annotations") or {}), _POD_CLAIM_NAME: entry["name"]},
            "ownerReferences": [owner_reference(self.kind, pod)],
        }
        if described.get("labels"):
            identity["labels"] = described["labels"]
        new = self._claim_kind.struct.read({"metadata": identity, "spec": template.get("spec") or {}}, [])
        return self.registry.create(self._claim_kind, namespace, new)


class ResourceClaimController(Controller):
    """Gives back what nobody uses any more."""

    resource = _CLAIMS
    component = "resource_claim"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pod_kind = world.registry.catalog["pods"]
        self._pods = world.registry.store.collection("pods")

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        if happening.resource == "pods" and (event.type == "DELETED" or event.object.fields[5] in _OVER):
            for name in self._claims_of(event.object):
                self.reconcile_soon(f"{event.object.namespace}/{name}")

    def _claims_of(self, stored: Stored) -> Iterator[str]:
        """The names of the claims that a pod uses."""
        if b'"resourceClaims":' not in stored.data and b'"extendedResourceClaimStatus":' not in stored.data:
            return
        pod = self._pod_kind.decode(stored)
        status = pod["status"]
        entries = (*(pod["spec"].get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ()))
        for entry in (*entries, status.get("extendedResourceClaimStatus") or {}):
            if entry.get("resourceClaimName"):
                yield entry["resourceClaimName"]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(_CLAIMS).get(key)
        if stored is None:
            return
        claim, namespace = self.kind.decode(stored), stored.namespace
        reserved: list[Object] = claim["status"].get("reservedFor") or []
        valid = [one for one in reserved if self._is_using(namespace, one)]
        going = "deletionTimestamp" in claim["metadata"]
        if len(valid) < len(reserved) or (going and not valid):
            self._free(claim, valid)
        owner = controller_among(owners_of(stored))
        if not valid and not going and owner is not None and owner.kind == "Pod":
            consumer = {"resource": "pods", "name": owner.name, "uid": owner.uid}
            if not self._is_using(namespace, consumer):
                self.registry.delete(self.kind, namespace, stored.name, Deletion(uid=claim["metadata"]["uid"]))

    def _is_using(self, namespace: str, consumer: Object) -> bool:
        """Whether a consumer is, or may yet be, using a claim; of those that are no pods nobody here knows."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        stored = self._pods.get(f"{namespace}/{consumer['name']}")
        return stored is not None and stored.fields[5] not in _OVER and uid_of(stored) == consumer["uid"]

    def _free(self, claim: Object, valid: list[Object]) -> None:
        """Leave only the valid reservations; without any, the devices are free as well."""
        protected = _FINALIZER in (claim["metadata"].get("finalizers") or ())
        status = {**claim["status"], "reservedFor": valid}
        if not valid:
            del status["reservedFor"]
            if protected:
                status.pop("allocation", None)
                status.pop("devices", None)
        self.set_status(claim, status)
        if protected and not valid:
            self.change_metadata(self.kind, claim["metadata"]["namespace"], claim["metadata"]["name"], _unprotect)


def _is_over(pod: Object) -> bool:
    return pod["status"].get("phase") in _OVER


def _unprotect(metadata: Object) -> None:
    metadata["finalizers"] = [one for one in metadata["finalizers"] if one != _FINALIZER]
    if not metadata["finalizers"]:
        del metadata["finalizers"]
