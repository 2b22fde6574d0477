"""Stateful sets: pods with names and claims of their own, made, updated and taken away in order.

Pods are numbered. ``OrderedReady`` makes the next one only when all before it are available, and takes away the highest
only when all others are; ``Parallel`` does not wait. An update replaces pods from the highest number down to the
partition, no more at a time than may be unavailable. Each reconciliation takes the steps that the present state allows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.int_or_percent import scaled
from kubestow.devcluster.controllers.controller import Happening, World
from kubestow.devcluster.controllers.pods import Pod
from kubestow.devcluster.controllers.workloads.adoption import AdoptingController
from kubestow.devcluster.controllers.workloads.revisions import POD_LABEL, Revisions
from kubestow.devcluster.controllers.workloads.stateful_claims import StatefulClaims

__all__ = ["StatefulSetController"]

#: Pods made in one go; the rest follow in the next.
BATCH = 500

_NAME_LABEL, _INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_NUMBERED = re.compile(r"(.+)-([0-9]+)")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A stateful set with its pods: by ordinal those it should have (None: missing), and those too many, highest first.

    Of the missing only the first :data:`BATCH` are there.
    ``current`` and ``update`` are the revisions that it comes from and goes to.
    """

    whole: Object
    wanted: dict[int, Pod | None]
    condemned: list[Pod]
    current: Object
    update: Object

    @property
    def name(self) -> str:
        return str(self.whole["metadata"]["name"])

    @property
    def is_ordered(self) -> bool:
        return bool(self.whole["spec"]["podManagementPolicy"] == "OrderedReady")

    @property
    def pods(self) -> list[Pod]:
        return [*(pod for pod in self.wanted.values() if pod is not None), *self.condemned]

    @property
    def partition(self) -> int:
        """The ordinal from which on an update replaces pods."""
        rolling = self.whole["spec"]["updateStrategy"].get("rollingUpdate") or {}
        return _first(self.whole) + int(rolling.get("partition", 0))

    def revision_for(self, ordinal: int) -> Object:
        """The revision of which a pod that is missing is made."""
        rolls = self.whole["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        return self.current if rolls and ordinal < self.partition else self.update

    def is_updated(self, pod: Pod) -> bool:
        return bool(pod.metadata.labels.get(POD_LABEL) == self.update["metadata"]["name"])


class StatefulSetController(AdoptingController):
    resource = "statefulsets.apps"
    component = "statefulset-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._revisions = Revisions(self, label="controller.kubernetes.io/hash")
        self._claims = StatefulClaims(self)

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        if happening.resource == "persistentvolumeclaims" and happening.event.type == "DELETED":
            # A pod may be waiting for the claim of its predecessor to go.
            namespace = happening.event.object.namespace
            for stored in self.registry.store.collection(self.resource).snapshot(f"{namespace}/"):
                self.reconcile_soon(stored.key)

    def may_have(self, owner: Object, pod: Pod) -> bool:
        return _ordinal(owner, pod) >= 0

    def reconcile(self, key: str) -> None:
        stateful_set = self.find(key)
        if stateful_set is None:
            return
        pods = self.claimed(stateful_set)
        revisions = self._revisions.settled(stateful_set)
        parts = _divided(stateful_set, pods, revisions)
        refused: statuses.Failure | None = None
        if "deletionTimestamp" not in stateful_set["metadata"]:
            try:
                self._step(parts)
            except statuses.Failure as failure:
                refused = failure
        self._report(parts)
        live = {pod.metadata.labels.get(POD_LABEL, "") for pod in pods}
        live |= {parts.current["metadata"]["name"], parts.update["metadata"]["name"]}
        self._revisions.forget_old(stateful_set, revisions, live)
        if refused is not None:
            raise refused

    def _step(self, parts: _Parts) -> None:
        """Pods that should be there come before those that should not go, and both before an update."""
        for pods, condemned in ((parts.wanted.values(), False), (parts.condemned, True)):
            for pod in pods:
                if pod is not None:
                    self._claims.keep_or_let_go(parts.whole, pod.name, pod.metadata.uid, condemned=condemned)
        if self._fill(parts) and self._shrink(parts):
            self._update(parts)

    def _fill(self, parts: _Parts) -> bool:
        """Make what is missing, replace what has ended; whether there is nothing to wait for."""
        settled = True
        for ordinal, pod in parts.wanted.items():
            done = self._make(parts, ordinal) if pod is None else self._keep(parts, ordinal, pod)
            if not done and parts.is_ordered:
                return False
            settled = settled and (done or (pod is not None and not pod.is_finished))
        return settled

    def _make(self, parts: _Parts, ordinal: int) -> bool:
        """Make a pod and its claims. Whether that is all there is to do about it, which it never is."""
        if self._claims.are_ready(parts.whole, f"{parts.name}-{ordinal}"):
            revision = parts.revision_for(ordinal)
            template = {name: part for name, part in revision["data"]["spec"]["template"].items() if name != "$patch"}
            self.create_pods(
                parts.whole,
                1,
                template=template,
                finish=lambda pod, _: _prepare(parts.whole, pod, ordinal, revision["metadata"]["name"]),
            )
        return False

    def _keep(self, parts: _Parts, ordinal: int, pod: Pod) -> bool:
        """Whether a pod is as it should be: there to stay, available, and known by its name."""
        if pod.is_finished:
            if not pod.is_deleted:
                self.delete_pod(parts.whole, pod)
            return False
        if pod.status.phase == "Pending":
            self._claims.are_ready(parts.whole, pod.name, pod.metadata.uid)
        labels = _identity(pod.name, ordinal)
        if not pod.is_deleted and not labels.items() <= pod.metadata.labels.items():
            self.change_pod(pod, lambda metadata: metadata.update(labels={**(metadata.get("labels") or {}), **labels}))
        return not pod.is_deleted and self._is_available(parts, pod)

    def _shrink(self, parts: _Parts) -> bool:
        """Take away pods beyond the number wanted, from the highest on; whether there is nothing to wait for."""
        ill = [pod for pod in parts.condemned if pod.is_deleted or not _runs(pod)]
        # Of pods that do not run only the lowest goes, lest the others lose what they wait for.
        sacrificed = ill[-1] if ill else None
        for pod in parts.condemned:
            waits = pod.is_deleted or (not self._is_available(parts, pod) and pod is not sacrificed)
            if not pod.is_deleted and not (waits and parts.is_ordered):
                self.delete_pod(parts.whole, pod)
            if parts.is_ordered:
                return False
        return not parts.condemned

    def _update(self, parts: _Parts) -> None:
        """Take away pods of other revisions: those that serve nobody, and of the rest as many as may be missing."""
        strategy = parts.whole["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        most = (strategy.get("rollingUpdate") or {}).get("maxUnavailable", 1)
        available = {
            pod.name
            for pod in parts.wanted.values()
            if pod is not None and not pod.is_deleted and self._is_available(parts, pod)
        }
        replicas = parts.whole["spec"]["replicas"]
        spare = max(1, scaled(most, replicas, up=False)) - (replicas - len(available))
        for ordinal, pod in sorted(parts.wanted.items(), reverse=True):
            if pod is None or ordinal < parts.partition or pod.is_deleted or parts.is_updated(pod):
                continue
            if pod.name in available:
                if spare <= 0:
                    continue
                spare -= 1
            self.delete_pod(parts.whole, pod)

    def _is_available(self, parts: _Parts, pod: Pod) -> bool:
        return _runs(pod) and self.is_available(parts.whole, pod)

    # Status

    def _report(self, parts: _Parts) -> None:
        before, pods = parts.whole.get("status") or {}, parts.pods
        present = [pod for pod in pods if not pod.is_deleted]
        current, update = parts.current["metadata"]["name"], parts.update["metadata"]["name"]
        counts = {
            "readyReplicas": sum(_runs(pod) for pod in pods),
            "currentReplicas": sum(pod.metadata.labels.get(POD_LABEL) == current for pod in present),
            "updatedReplicas": sum(parts.is_updated(pod) for pod in present),
        }
        replicas = parts.whole["spec"]["replicas"]
        through = counts["updatedReplicas"] == counts["readyReplicas"] == len(pods) == replicas
        if through and parts.whole["spec"]["updateStrategy"]["type"] == "RollingUpdate":
            current, counts["currentReplicas"] = update, counts["updatedReplicas"]
        status: Object = {"observedGeneration": parts.whole["metadata"]["generation"], "replicas": len(pods)}
        status |= {field: count for field, count in counts.items() if count}
        status |= {"currentRevision": current, "updateRevision": update}
        status["collisionCount"] = before.get("collisionCount", 0)
        status["availableReplicas"] = sum(self._is_available(parts, pod) for pod in pods)
        self.set_status(parts.whole, status)

    def tell_created(self, owner: Object, pod: str) -> None:
        name = owner["metadata"]["name"]
        self.tell(owner, "SuccessfulCreate", f"create Pod {pod} in StatefulSet {name} successful")

    def tell_refused(self, owner: Object, pod: str, refused: statuses.Failure) -> None:
        name = owner["metadata"]["name"]
        self.warn(owner, "FailedCreate", f"create Pod {pod} in StatefulSet {name} failed error: {refused.message}")

    def tell_deleted(self, owner: Object, pod: str) -> None:
        name = owner["metadata"]["name"]
        self.tell(owner, "SuccessfulDelete", f"delete Pod {pod} in StatefulSet {name} successful")


def _divided(stateful_set: Object, pods: Sequence[Pod], revisions: Sequence[Object]) -> _Parts:
    first, update = _first(stateful_set), revisions[-1]
    by_ordinal = {ordinal: pod for pod in pods if (ordinal := _ordinal(stateful_set, pod)) >= 0}
    ordinals = range(first, first + stateful_set["spec"]["replicas"])
    surplus = sorted((ordinal for ordinal in by_ordinal if ordinal not in ordinals), reverse=True)
    named = (stateful_set.get("status") or {}).get("currentRevision")
    current = next((one for one in revisions if one["metadata"]["name"] == named), update)
    missing = islice((ordinal for ordinal in ordinals if ordinal not in by_ordinal), BATCH)
    known = sorted({*missing, *(ordinal for ordinal in by_ordinal if ordinal in ordinals)})
    wanted = {ordinal: by_ordinal.get(ordinal) for ordinal in known}
    return _Parts(stateful_set, wanted, [by_ordinal[ordinal] for ordinal in surplus], current, update)


def _first(stateful_set: Object) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))


def _ordinal(stateful_set: Object, pod: Pod) -> int:
    """The number in a pod's name; -1 when the name is not one that the set gives."""
    found = _NUMBERED.fullmatch(pod.name)
    return int(found[2]) if found is not None and found[1] == stateful_set["metadata"]["name"] else -1


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.is_ready


def _identity(name: str, ordinal: int) -> dict[str, str]:
    """The labels by which a pod is known as this one of its set."""
    return {_NAME_LABEL: name, _INDEX_LABEL: str(ordinal)}


def _prepare(stateful_set: Object, pod: Object, ordinal: int, revision: str) -> None:
    """What a stateful set adds to a pod of its template: name, address, and the volumes that are its own."""
    metadata, spec = pod["metadata"], pod["spec"]
    del metadata["generateName"]
    name = metadata["name"] = f"{stateful_set['metadata']['name']}-{ordinal}"
    metadata.setdefault("labels", {}).update({**_identity(name, ordinal), POD_LABEL: revision})
    spec["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    own = [claim["metadata"]["name"] for claim in stateful_set["spec"].get("volumeClaimTemplates") or ()]
    volumes = [{"name": volume, "persistentVolumeClaim": {"claimName": f"{volume}-{name}"}} for volume in own]
    volumes += [volume for volume in spec.get("volumes") or () if volume["name"] not in own]
    if volumes:
        spec["volumes"] = volumes
