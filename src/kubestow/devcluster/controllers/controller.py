"""The contract of a controller, and what those that make pods have in common.

A controller is told every change (:meth:`Controller.observe`) and says which of its objects are concerned; later, and
once however often they were named, it is asked to reconcile each. Reconciling reads the present state, makes what is
missing and may be repeated at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.owners import Owner, controller_among, owner_reference
from kubestow.devcluster.controllers.pods import Pod, Pods
from kubestow.devcluster.controllers.work_queue import Work
from kubestow.devcluster.event_recorder import Recorder

__all__ = ["Controller", "Happening", "Item", "PodController", "World", "key_of"]

Item = tuple["Controller", str]
"""A controller, and the key of an object that it has to reconcile."""

#: Seconds of rest for each pod that was looked at, of objects with more than a few pods.
REST, FEW = 0.0002, 100


@dataclass(frozen=True, slots=True)
class Happening:
    """A change of one object of ``resource``, with its owners before and after."""

    resource: str
    event: Event
    owners: tuple[Owner, ...]
    previous_owners: tuple[Owner, ...]

    @property
    def key(self) -> str:
        return self.event.object.key

    def controllers(self, kind: str) -> list[str]:
        """The keys of the objects of ``kind`` that control or controlled the object."""
        namespace = self.event.object.namespace
        found = {controller_among(self.owners), controller_among(self.previous_owners)}
        return [f"{namespace}/{owner.name}" for owner in found if owner is not None and owner.kind == kind]


@dataclass(frozen=True, slots=True)
class World:
    """What controllers work on and with."""

    registry: Registry
    pods: Pods
    work: Work[Item]
    recorder: Recorder
    #: Seconds after which a node that has not been heard of is taken to be lost.
    node_grace_period: float


def key_of(whole: Object) -> str:
    """The key of a namespaced object."""
    return f"{whole['metadata']['namespace']}/{whole['metadata']['name']}"


class Controller:
    """Keeps the objects of one resource as they should be."""

    #: The resource it looks after, such as ``replicasets.apps``.
    resource: ClassVar[str]
    #: What events say they come from.
    component: ClassVar[str] = ""

    def __init__(self, world: World) -> None:
        self.registry, self.pods, self.recorder = world.registry, world.pods, world.recorder
        self._work = world.work
        self.kind: Kind = world.registry.catalog[self.resource]

    def observe(self, happening: Happening) -> None:
        """Say what has to be reconciled because of a change."""
        if happening.resource == self.resource:
            self.reconcile_soon(happening.key)

    def reconcile(self, key: str) -> None:
        """Bring one object, if it is still there, closer to its spec. Raises Failure: to be tried again."""
        raise NotImplementedError

    def reconcile_soon(self, key: str) -> None:
        self._work.add((self, key))

    def reconcile_after(self, key: str, seconds: float) -> None:
        self._work.later((self, key), seconds)

    def rest_after(self, key: str, pods: int) -> None:
        """Take note of how much there was to look at: an object with many pods is looked at less often."""
        if pods > FEW:
            self._work.rest((self, key), pods * REST)

    def find(self, key: str, kind: Kind | None = None) -> Object | None:
        """The object of this key, of the controller's own kind or another; None when there is none."""
        kind = kind or self.kind
        stored = self.registry.store.collection(kind.storage).get(key)
        return None if stored is None else kind.decode(stored)

    def set_status(self, current: Object, status: Object) -> None:
        """Write the status if it says anything new."""
        if current.get("status") == status:
            return

        def change(old: Object) -> Object:
            return {**old, "metadata": dict(old["metadata"]), "status": status}

        identity = current["metadata"]
        self.registry.update(self.kind, identity["namespace"], identity["name"], change, subresource="status")

    def update(self, current: Object, *, spec: Object | None = None, metadata: Object | None = None) -> Object:
        """Merge fields into spec and metadata of an object of this controller; the object as it is then."""
        return self.change(self.kind, current, spec=spec, metadata=metadata)

    def change(
        self, kind: Kind, current: Object, *, spec: Object | None = None, metadata: Object | None = None
    ) -> Object:
        """The same for an object of another kind."""

        def changed(old: Object) -> Object:
            new = {**old, "metadata": {**old["metadata"], **(metadata or {})}}
            if spec:
                new["spec"] = {**old["spec"], **spec}
            return new

        identity = current["metadata"]
        return kind.decode(self.registry.update(kind, identity["namespace"], identity["name"], changed))

    def change_metadata(self, kind: Kind, namespace: str, name: str, change: Callable[[Object], None]) -> None:
        """Let ``change`` alter the metadata of any object in place."""

        def changed(old: Object) -> Object:
            new = {**old, "metadata": dict(old["metadata"])}
            change(new["metadata"])
            return new

        self.registry.update(kind, namespace, name, changed)

    def tell(self, about: Object, reason: str, message: str) -> None:
        self.recorder.normal(self.component, self.kind, about, reason, message)

    def warn(self, about: Object, reason: str, message: str) -> None:
        self.recorder.warning(self.component, self.kind, about, reason, message)


class PodController(Controller):
    """A controller whose objects make pods."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.pod_kind: Kind = world.registry.catalog["pods"]

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        if happening.resource == "pods":
            for key in happening.controllers(self.kind.name):
                self.reconcile_soon(key)

    def is_available(self, owner: Object, pod: Pod) -> bool:
        """Whether a pod has been ready for the owner's minReadySeconds; if not yet, it is looked at again in time."""
        least = owner["spec"].get("minReadySeconds", 0)
        if not least or not pod.is_ready:
            return pod.is_ready
        ahead = least - pod.ready_for(self.registry.moment())
        if ahead > 0:
            self.reconcile_after(key_of(owner), ahead)
        return bool(ahead <= 0)

    def create_pods(
        self,
        owner: Object,
        count: int,
        *,
        template: Object | None = None,
        finish: Callable[[Object, int], None] | None = None,
    ) -> None:
        """Make pods from the owner's template, or another; ``finish`` completes each, given its number.

        Raises Failure, having told of it, for the first that is refused.
        """
        template = owner["spec"]["template"] if template is None else template
        described = template.get("metadata") or {}
        identity: Object = {"generateName": f"{owner['metadata']['name']}-"[-58:]}
        for field in ("labels", "annotations", "finalizers"):
            if described.get(field):
                identity[field] = described[field]
        identity["ownerReferences"] = [owner_reference(self.kind, owner)]
        draft = msgspec.json.encode({"metadata": identity, "spec": template["spec"]})
        for number in range(count):
            pod = msgspec.json.decode(draft)
            if finish is not None:
                finish(pod, number)
            self._create_pod(owner, pod)

    def _create_pod(self, owner: Object, pod: Object) -> None:
        namespace = owner["metadata"]["namespace"]
        try:
            made = self.registry.create(self.pod_kind, namespace, self.pod_kind.struct.read(pod, []))
        except statuses.Failure as refused:
            self.tell_refused(owner, pod["metadata"].get("name", ""), refused)
            raise
        self.tell_created(owner, made.name)

    def delete_pod(self, owner: Object, pod: Pod) -> None:
        self.registry.delete(self.pod_kind, pod.metadata.namespace, pod.name, Deletion(uid=pod.metadata.uid))
        self.tell_deleted(owner, pod.name)

    def tell_created(self, owner: Object, pod: str) -> None:
        self.tell(owner, "SuccessfulCreate", f"Created pod: {pod}")

    def tell_refused(self, owner: Object, pod: str, refused: statuses.Failure) -> None:
        self.warn(owner, "FailedCreate", f"Error creating: {refused.message}")

    def tell_deleted(self, owner: Object, pod: str) -> None:
        self.tell(owner, "SuccessfulDelete", f"Deleted pod: {pod}")

    def change_pod(self, pod: Pod, change: Callable[[Object], None]) -> None:
        self.change_metadata(self.pod_kind, pod.metadata.namespace, pod.name, change)
