"""Deployments: one replica set per template, and moving from the old ones to the new one no faster than is allowed.

A rolling update keeps at least ``replicas - maxUnavailable`` pods available and at most ``replicas + maxSurge`` pods in
all; each reconciliation takes the step that the replica sets' present status allows. Revisions are annotations of the
replica sets; rolling back is a change of the template like any other, and finds its replica set still there.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from kubestow.apiserver import statuses
from kubestow.apiserver.controllers.conditions import condition_of, with_condition
from kubestow.apiserver.controllers.controller import Controller, Happening, World
from kubestow.apiserver.controllers.owners import controller_among, owner_reference, owners_of
from kubestow.apiserver.controllers.proportions import Share, shared
from kubestow.apiserver.controllers.revisions import template_hash
from kubestow.apiserver.registry import Deletion
from kubestow.apiserver.resources import Kind, Object
from kubestow.apiserver.resources.int_or_percent import scaled

__all__ = ["DeploymentController"]

_PREFIX = "deployment.kubernetes.io/"
_REVISION, _DESIRED, _MOST = f"{_PREFIX}revision", f"{_PREFIX}desired-replicas", f"{_PREFIX}max-replicas"
_HASH = "pod-template-hash"
#: Annotations of a deployment that its replica sets do not take over.
_OWN_ANNOTATIONS = {"kubectl.kubernetes.io/last-applied-configuration", _REVISION, _DESIRED, _MOST}


class DeploymentController(Controller):
    resource = "deployments.apps"
    component = "deployment-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._sets: Kind = world.registry.catalog["replicasets.apps"]

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        if happening.resource == self._sets.storage:
            for key in happening.controllers(self.kind.name):
                self.reconcile_soon(key)
        elif happening.resource == "pods" and happening.event.type == "DELETED":
            self._observe_gone_pod(happening)

    def _observe_gone_pod(self, happening: Happening) -> None:
        """The strategy Recreate waits for the last old pod, which no replica set counts any more."""
        for key in happening.controllers("ReplicaSet"):
            stored = self.registry.store.collection(self._sets.storage).get(key)
            owner = controller_among(owners_of(stored)) if stored is not None else None
            if stored is not None and owner is not None and owner.kind == self.kind.name:
                self.reconcile_soon(f"{stored.namespace}/{owner.name}")

    def reconcile(self, key: str) -> None:
        deployment = self.find(key)
        if deployment is None:
            return
        sets = self._owned(deployment)
        if "deletionTimestamp" in deployment["metadata"]:
            self._report(deployment, sets)
            return
        spec = deployment["spec"]
        if spec.get("paused") or _is_rescaled(deployment, sets):
            self._report(deployment, self._rescaled(deployment, sets))
            return
        deployment, sets, new = self._with_new_set(deployment, sets)
        recreate = spec["strategy"]["type"] == "Recreate"
        sets = self._recreate(deployment, sets, new) if recreate else self._roll(deployment, sets, new)
        self._report(deployment, sets)
        self._clean_up(deployment, sets)

    def _owned(self, deployment: Object) -> list[Object]:
        """The replica sets of the deployment, the oldest first."""
        uid = deployment["metadata"]["uid"]
        namespace = deployment["metadata"]["namespace"]
        found = []
        for stored in self.registry.store.collection(self._sets.storage).snapshot(f"{namespace}/"):
            owner = controller_among(owners_of(stored))
            if owner is not None and owner.uid == uid:
                found.append(self._sets.decode(stored))
        return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    # The replica set of the present template

    def _with_new_set(self, deployment: Object, sets: list[Object]) -> tuple[Object, list[Object], str]:
        """Find or make the replica set of the template. The deployment, all its sets, and the new one's name."""
        new = _matching(deployment, sets)
        if new is None:
            new = self._create_set(deployment, sets)
            sets = [*sets, new]
        else:
            others = [one for one in sets if one is not new]
            revision = max([_revision(one) for one in others], default=0) + 1
            wanted = self._annotations(deployment, max(revision, _revision(new)))
            for name in (_DESIRED, _MOST):
                # What a set was scaled for is written when it is scaled.
                del wanted[name]
            have = new["metadata"].get("annotations") or {}
            if not wanted.items() <= have.items():
                changed = self._update_set(new, metadata={"annotations": {**have, **wanted}})
                sets = [changed if one is new else one for one in sets]
                new = changed
        annotations = deployment["metadata"].get("annotations") or {}
        revision_text = str(_revision(new))
        if annotations.get(_REVISION) != revision_text:
            deployment = self.update(deployment, metadata={"annotations": {**annotations, _REVISION: revision_text}})
        return deployment, sets, new["metadata"]["name"]

    def _create_set(self, deployment: Object, sets: list[Object]) -> Object:
        identity, spec = deployment["metadata"], deployment["spec"]
        hash_ = template_hash(spec["template"], {one["metadata"]["name"].rpartition("-")[2] for one in sets})
        template = msgspec.json.decode(msgspec.json.encode(spec["template"]))
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels[_HASH] = hash_
        selector = spec["selector"]
        revision = max([_revision(one) for one in sets], default=0) + 1
        made: Object = {
            "metadata": {
                "name": f"{identity['name']}-{hash_}",
                "labels": dict(labels),
                "annotations": self._annotations(deployment, revision),
                "ownerReferences": [owner_reference(self.kind, deployment)],
            },
            "spec": {
                "replicas": 0,
                "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: hash_}},
                "template": template,
            },
        }
        if spec.get("minReadySeconds"):
            made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
        try:
            stored = self.registry.create(self._sets, identity["namespace"], self._sets.struct.read(made, []))
        except statuses.Failure as refused:
            self.warn(deployment, "ReplicaSetCreateError", f"Failed to create new replica set: {refused.message}")
            raise
        return self._sets.decode(stored)

    def _annotations(self, deployment: Object, revision: int) -> dict[str, str]:
        taken = deployment["metadata"].get("annotations") or {}
        return {
            **{name: value for name, value in taken.items() if name not in _OWN_ANNOTATIONS},
            _REVISION: str(revision),
            **_scale_annotations(deployment["spec"]),
        }

    # Moving

    def _roll(self, deployment: Object, sets: list[Object], new: str) -> list[Object]:
        """One step of a rolling update."""
        replicas = deployment["spec"]["replicas"]
        surge, unavailable = _allowances(deployment["spec"])
        target = _named(sets, new)
        wanted = target["spec"]["replicas"]
        if wanted > replicas:
            wanted = replicas
        elif wanted < replicas:
            total = sum(one["spec"]["replicas"] for one in sets)
            wanted += max(0, min(replicas + surge - total, replicas - wanted))
        sets = self._scaled(deployment, sets, target, wanted)
        return self._shrink_old(deployment, sets, new, least=replicas - unavailable)

    def _shrink_old(self, deployment: Object, sets: list[Object], new: str, *, least: int) -> list[Object]:
        """Scale the old sets down as far as ``least`` available pods allow; what is not available goes first."""
        target = _named(sets, new)
        total = sum(one["spec"]["replicas"] for one in sets)
        lagging = target["spec"]["replicas"] - _available(target)
        spare = total - least - max(0, lagging)
        if spare <= 0:
            return sets
        for old in [one for one in sets if one["metadata"]["name"] != new]:
            useless = min(spare, max(0, old["spec"]["replicas"] - _available(old)))
            if useless:
                sets = self._scaled(deployment, sets, old, old["spec"]["replicas"] - useless)
                spare -= useless
        spare = sum(min(_available(one), one["spec"]["replicas"]) for one in sets) - least
        for old in [one for one in sets if one["metadata"]["name"] != new]:
            step = min(max(0, spare), old["spec"]["replicas"])
            if step:
                sets = self._scaled(deployment, sets, old, old["spec"]["replicas"] - step)
                spare -= step
        return sets

    def _recreate(self, deployment: Object, sets: list[Object], new: str) -> list[Object]:
        """Old pods first go, all of them; then the new ones come."""
        old = [one for one in sets if one["metadata"]["name"] != new]
        if any(one["spec"]["replicas"] for one in old):
            for one in old:
                sets = self._scaled(deployment, sets, one, 0)
            return sets
        namespace = deployment["metadata"]["namespace"]
        for one in old:
            pods = self.pods.controlled("ReplicaSet", f"{namespace}/{one['metadata']['name']}", one["metadata"]["uid"])
            if any(not pod.is_finished for pod in pods):
                return sets
        return self._scaled(deployment, sets, _named(sets, new), deployment["spec"]["replicas"])

    def _rescaled(self, deployment: Object, sets: list[Object]) -> list[Object]:
        """The sets, after the one that has pods, or all that have some, have been given the deployment's new scale."""
        spec = deployment["spec"]
        active = [one for one in sets if one["spec"]["replicas"]]
        if len(active) < 2:
            only = active or ([_matching(deployment, sets) or max(sets, key=_revision)] if sets else [])
            return self._scaled(deployment, sets, only[0], spec["replicas"]) if only else sets
        surge, _ = _allowances(spec)
        shares = [Share(one["metadata"]["name"], one["spec"]["replicas"], _scaled_for(one, _MOST)) for one in active]
        sizes = shared(shares, spec["replicas"] + surge if spec["replicas"] else 0)
        for one in active:
            sets = self._scaled(deployment, sets, one, sizes[one["metadata"]["name"]])
        return sets

    def _scaled(self, deployment: Object, sets: list[Object], which: Object, replicas: int) -> list[Object]:
        """The sets, after one of them has been given so many replicas."""
        before, have = which["spec"]["replicas"], which["metadata"].get("annotations") or {}
        noted = _scale_annotations(deployment["spec"])
        if before == replicas and noted.items() <= have.items():
            return sets
        changed = self._update_set(which, spec={"replicas": replicas}, metadata={"annotations": {**have, **noted}})
        name = which["metadata"]["name"]
        if before != replicas:
            direction = "up" if replicas > before else "down"
            message = f"Scaled {direction} replica set {name} from {before} to {replicas}"
            self.tell(deployment, "ScalingReplicaSet", message)
        return [changed if one["metadata"]["name"] == name else one for one in sets]

    def _update_set(self, which: Object, *, spec: Object | None = None, metadata: Object | None = None) -> Object:
        return self.change(self._sets, which, spec=spec, metadata=metadata)

    def _clean_up(self, deployment: Object, sets: list[Object]) -> None:
        """Forget the oldest revisions beyond the limit, once the update is through."""
        spec = deployment["spec"]
        current = _matching(deployment, sets)
        old = [one for one in sets if one is not current]
        idle = [one for one in old if not one["spec"]["replicas"] and not (one.get("status") or {}).get("replicas")]
        if len(idle) < len(old):
            return
        limit = spec.get("revisionHistoryLimit", 10)
        for one in sorted(idle, key=_revision)[: max(0, len(old) - limit)]:
            identity = one["metadata"]
            self.registry.delete(self._sets, identity["namespace"], identity["name"], Deletion(uid=identity["uid"]))

    # Status

    def _report(self, deployment: Object, sets: list[Object]) -> None:
        before, spec = deployment.get("status") or {}, deployment["spec"]
        new = _matching(deployment, sets)
        counted = {
            "replicas": sum(_count(one, "replicas") for one in sets),
            "updatedReplicas": _count(new, "replicas") if new is not None else 0,
            "readyReplicas": sum(_count(one, "readyReplicas") for one in sets),
            "availableReplicas": sum(_available(one) for one in sets),
        }
        wanted = sum(one["spec"]["replicas"] for one in sets)
        counted["unavailableReplicas"] = max(0, wanted - counted["availableReplicas"])
        status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
        status |= {field: count for field, count in counted.items() if count}
        if "collisionCount" in before:
            status["collisionCount"] = before["collisionCount"]
        status["conditions"] = self._progress(deployment, before, counted, new)
        status["conditions"] = self._availability(spec, status, counted["availableReplicas"])
        self.set_status(deployment, status)

    def _availability(self, spec: Object, status: Object, available: int) -> list[Object]:
        _, unavailable = _allowances(spec)
        if available >= spec["replicas"] - unavailable:
            said = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        else:
            said = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        condition = dict(zip(("status", "reason", "message"), said, strict=True))
        return with_condition(status, {"type": "Available", **condition}, self.registry.now(), written="lastUpdateTime")

    def _progress(
        self, deployment: Object, before: Object, counted: dict[str, int], new: Object | None
    ) -> list[Object]:
        """The condition Progressing, and with it the deadline by which something has to happen."""
        spec, name = deployment["spec"], deployment["metadata"]["name"]
        old = condition_of(before, "Progressing")
        if spec.get("paused"):
            return self._progressing(before, "Unknown", "DeploymentPaused", "Deployment is paused")
        subject = f'ReplicaSet "{new["metadata"]["name"]}"' if new is not None else f'Deployment "{name}"'
        key = f"{deployment['metadata']['namespace']}/{name}"
        complete = (
            counted["updatedReplicas"] == spec["replicas"] == counted["replicas"] == counted["availableReplicas"]
            and before.get("observedGeneration", 0) <= deployment["metadata"]["generation"]
        )
        if complete:
            message = f"{subject} has successfully progressed."
            return self._progressing(before, "True", "NewReplicaSetAvailable", message)
        if old is None:
            self.reconcile_after(key, spec["progressDeadlineSeconds"] + 1)
            message = f"Created new {subject.replace('ReplicaSet', 'replica set')}"
            return self._progressing(before, "True", "NewReplicaSetCreated", message)
        moved = (
            any(counted[field] > before.get(field, 0) for field in ("updatedReplicas", "readyReplicas"))
            or counted["availableReplicas"] > before.get("availableReplicas", 0)
            or counted["replicas"] - counted["updatedReplicas"]
            < before.get("replicas", 0) - before.get("updatedReplicas", 0)
        )
        renewed = before.get("observedGeneration", 0) < deployment["metadata"]["generation"]
        if moved or renewed or old["reason"] in ("NewReplicaSetAvailable", "DeploymentPaused"):
            # Written anew each time: the deadline counts from here.
            stale = {**before, "conditions": [one for one in before["conditions"] if one["type"] != "Progressing"]}
            made = self._progressing(stale, "True", "ReplicaSetUpdated", f"{subject} is progressing.")
            if old["status"] == "True":
                made[-1]["lastTransitionTime"] = old["lastTransitionTime"]
            self._watch_deadline(deployment, made[-1])
            return made
        if self._is_late(deployment, old):
            message = f"{subject} has timed out progressing."
            return self._progressing(before, "False", "ProgressDeadlineExceeded", message)
        return list(before["conditions"])

    def _progressing(self, before: Object, status: str, reason: str, message: str) -> list[Object]:
        condition = {"type": "Progressing", "status": status, "reason": reason, "message": message}
        return with_condition(before, condition, self.registry.now(), written="lastUpdateTime")

    def _deadline(self, deployment: Object, progressing: Object) -> datetime:
        allowed = timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])
        return datetime.fromisoformat(progressing["lastUpdateTime"]) + allowed

    def _watch_deadline(self, deployment: Object, progressing: Object) -> None:
        left = (self._deadline(deployment, progressing) - self.registry.moment()).total_seconds()
        identity = deployment["metadata"]
        # A second more, because conditions tell the time to the second.
        self.reconcile_after(f"{identity['namespace']}/{identity['name']}", max(left, 0) + 1)

    def _is_late(self, deployment: Object, progressing: Object) -> bool:
        if self.registry.moment() > self._deadline(deployment, progressing):
            return True
        self._watch_deadline(deployment, progressing)
        return False


def _matching(deployment: Object, sets: list[Object]) -> Object | None:
    """The replica set made from the deployment's present template."""
    wanted = deployment["spec"]["template"]
    return next((one for one in sets if _without_hash(one["spec"]["template"]) == _without_hash(wanted)), None)


def _without_hash(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name != _HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _is_rescaled(deployment: Object, sets: list[Object]) -> bool:
    """Whether the deployment has been scaled since its sets have been."""
    spec = deployment["spec"]
    active = [one for one in sets if one["spec"]["replicas"]]
    return spec["strategy"]["type"] == "RollingUpdate" and any(
        _scaled_for(one, _DESIRED) not in (spec["replicas"], -1) for one in active
    )


def _scaled_for(replica_set: Object, annotation: str) -> int:
    """The deployment's scale when a set was last scaled; -1 when it does not say."""
    text = (replica_set["metadata"].get("annotations") or {}).get(annotation, "")
    return int(text) if text.isdigit() else -1


def _scale_annotations(spec: Object) -> dict[str, str]:
    """What a set is told of its deployment's scale."""
    surge, _ = _allowances(spec)
    return {_DESIRED: str(spec["replicas"]), _MOST: str(spec["replicas"] + surge)}


def _named(sets: list[Object], name: str) -> Object:
    return next(one for one in sets if one["metadata"]["name"] == name)


def _revision(replica_set: Object) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(_REVISION, "")
    return int(text) if text.isdigit() else 0


def _count(replica_set: Object, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field, 0))


def _available(replica_set: Object) -> int:
    return _count(replica_set, "availableReplicas")


def _allowances(spec: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods. Percentages of surge are rounded up, of unavailability down."""
    if spec["strategy"]["type"] == "Recreate":
        return 0, spec["replicas"]
    rolling = spec["strategy"]["rollingUpdate"]
    surge = scaled(rolling["maxSurge"], spec["replicas"], up=True)
    unavailable = min(scaled(rolling["maxUnavailable"], spec["replicas"], up=False), spec["replicas"])
    # With neither, nothing could ever move.
    return surge, unavailable if surge or unavailable else 1
