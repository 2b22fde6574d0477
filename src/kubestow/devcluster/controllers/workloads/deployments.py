"""Deployments: one replica set per template, and moving from the old ones to the new one no faster than is allowed.

A rolling update keeps at least ``replicas - maxUnavailable`` pods available and at most ``replicas + maxSurge`` pods in
all; each reconciliation takes the step that the replica sets' present status allows. Revisions are annotations of the
replica sets; rolling back is a change of the template like any other, and finds its replica set still there.
"""

from __future__ import annotations

import msgspec

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.controllers.controller import Controller, Happening, World, key_of
from kubestow.devcluster.controllers.owners import controller_among, owner_reference, owners_of
from kubestow.devcluster.controllers.workloads.deployment_status import allowances, available_in, report
from kubestow.devcluster.controllers.workloads.proportional_scaling import Share, shared
from kubestow.devcluster.controllers.workloads.revisions import template_hash

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
        surge, unavailable = allowances(deployment["spec"])
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
        lagging = target["spec"]["replicas"] - available_in(target)
        spare = total - least - max(0, lagging)
        if spare <= 0:
            return sets
        for old in [one for one in sets if one["metadata"]["name"] != new]:
            useless = min(spare, max(0, old["spec"]["replicas"] - available_in(old)))
            if useless:
                sets = self._scaled(deployment, sets, old, old["spec"]["replicas"] - useless)
                spare -= useless
        spare = sum(min(available_in(one), one["spec"]["replicas"]) for one in sets) - least
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
        surge, _ = allowances(spec)
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

    def _report(self, deployment: Object, sets: list[Object]) -> None:
        told = report(deployment, sets, _matching(deployment, sets), self.registry.moment())
        self.set_status(deployment, told.status)
        if told.due is not None:
            self.reconcile_after(key_of(deployment), told.due)


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
    surge, _ = allowances(spec)
    return {_DESIRED: str(spec["replicas"]), _MOST: str(spec["replicas"] + surge)}


def _named(sets: list[Object], name: str) -> Object:
    return next(one for one in sets if one["metadata"]["name"] == name)


def _revision(replica_set: Object) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get(_REVISION, "")
    return int(text) if text.isdigit() else 0
