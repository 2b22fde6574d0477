"""Changes of pods by the Stages of KWOK, beside the lifecycle that a kubelet simulates.

A stage is chosen when a pod reaches a state that it matches, and applied after its delay if it still matches then.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.event_recorder import RegistryEventRecorder
from kubestow_devcluster.kubelets.node_status import NodeStatusManager
from kubestow_devcluster.kubelets.pod_conditions import set_condition
from kubestow_devcluster.kubelets.timers import Timers
from kubestow_devcluster.stages.kwok_stages import KwokStage, choose_stage
from kubestow_devcluster.stored_objects import node_name_of

__all__ = ["PodStages"]

_COMPONENT = "kubelet"


class _ScheduledStage(NamedTuple):
    uid: str
    stage: KwokStage


class PodStages:
    """The stage that is due next for each pod on a running node; pods are identified by key, ``namespace/name``."""

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        nodes: NodeStatusManager,
        recorder: RegistryEventRecorder,
        stages: Sequence[KwokStage],
    ) -> None:
        self._registry, self._timers, self._nodes, self._recorder = registry, timers, nodes, recorder
        self._stages = tuple(stages)
        self._kind = registry.scheme["pods"]
        self._collection = registry.store.collection("pods")
        self._scheduled: dict[str, _ScheduledStage] = {}

    def sync(self, stored: StoredObject) -> None:
        """Schedule a stage for a pod that was added or updated, unless the scheduled one still matches."""
        if not self._stages or self._nodes.state(node_name_of(stored)) != "running":
            return
        pod = self._kind.decode(stored)
        uid = pod["metadata"]["uid"]
        scheduled = self._scheduled.get(stored.key)
        if scheduled is not None and scheduled.uid == uid and scheduled.stage.matches(pod):
            return
        self._scheduled.pop(stored.key, None)
        # The same pod in the same state gets the same stage.
        random = Random(f"{uid}/{stored.resource_version}")
        stage = choose_stage(self._stages, pod, random)
        if stage is not None:
            next_stage = self._scheduled[stored.key] = _ScheduledStage(uid, stage)
            self._timers.call_later(stage.delay(random), lambda: self._run(stored.key, next_stage))

    def remove(self, key: str) -> None:
        """Drop what is scheduled for a deleted pod."""
        self._scheduled.pop(key, None)

    def _run(self, key: str, scheduled: _ScheduledStage) -> None:
        """Apply a stage unless another one was scheduled, or the pod or its node are gone."""
        if self._scheduled.get(key) is not scheduled:
            return
        del self._scheduled[key]
        stored = self._collection.get(key)
        if stored is None or self._nodes.state(node_name_of(stored)) != "running":
            return
        self._apply(self._kind.decode(stored), scheduled.stage)

    def _apply(self, pod: Object, stage: KwokStage) -> None:
        """Make the change of a stage, as writes of a client: status, finalizers, deletion."""
        metadata, change = pod["metadata"], stage.next
        namespace, name = metadata["namespace"], metadata["name"]
        if change.event is not None:
            record = self._recorder.warning if change.event.type == "Warning" else self._recorder.normal
            record(_COMPONENT, self._kind, pod, change.event.reason, change.event.message)
        if status := change.status():
            self._registry.update(
                self._kind, namespace, name, lambda old: self._with_status(old, status), subresource="status"
            )
        finalizers = metadata.get("finalizers") or []
        changed = stage.change_finalizers(finalizers)
        if changed != finalizers:
            self._registry.update(self._kind, namespace, name, lambda old: _with_finalizers(old, changed))
        if change.delete:
            options = DeleteOptions(grace_period_seconds=0, uid=metadata["uid"])
            self._registry.delete(self._kind, namespace, name, options)

    def _with_status(self, pod: Object, status: Object) -> Object:
        new = {**pod, "status": pod["status"] | {field: status[field] for field in status if field != "conditions"}}
        for condition in status.get("conditions") or ():
            set_condition(new, condition, self._registry.now())
        return new


def _with_finalizers(pod: Object, finalizers: list[str]) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "finalizers": finalizers}}
