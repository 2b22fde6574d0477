"""Why a simulation needs the scheduler on an event loop, as far as its input tells, before anything runs.

What the engine cannot do of its configuration is in :func:`kubestow.engine.turns.unsupported`. Anything else, such as a
plugin that delays a pod, shows in the run, which is then repeated with the scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolumeClaim, StorageClass
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.turns import LONGEST_ATTEMPT
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.outcomes import OutcomeRecorder


def needs_event_loop(
    cluster: ClusterObjects, arrivals: Arrivals, *, driver: str, recorder: object, attempt_seconds: float
) -> str:
    """Why a simulation has to run on an event loop; "" if nothing in its input says so.

    ``driver`` and ``attempt_seconds`` are those of its options, ``recorder`` makes the observer of the run.
    """
    if driver != "auto":
        return "asked for"
    if recorder is not OutcomeRecorder:
        return "the recorder may observe more than turns report"
    if attempt_seconds > LONGEST_ATTEMPT:
        return f"an attempt takes more than {LONGEST_ATTEMPT:g} s"
    return _work_before_binding(cluster, arrivals)


def _work_before_binding(cluster: ClusterObjects, arrivals: Arrivals) -> str:
    """What in-tree PreBind plugins have to do for a pod that is to be placed; "" for nothing.

    Of the pods that share a spec, one is looked at.
    """
    arriving = chain((pod for pod in cluster.pods if not pod.spec.node_name), (each.pod for each in arrivals.pods))
    distinct: dict[int, Pod] = {}
    for pod in arriving:
        distinct.setdefault(id(pod.spec), pod)
    pods = distinct.values()
    for pod in pods:
        if pod.spec.resource_claims:
            return f"devices are allocated to pods such as {pod.key}"
    if any(pod.spec.volumes for pod in pods):
        return _claim_that_waits(pods, [*cluster.objects, *arrivals.objects])
    return ""


def _claim_that_waits(pods: Iterable[Pod], objects: Iterable[object]) -> str:
    """A claim that is bound once its pod has a node; "" if there is none."""
    objects = list(objects)
    classes = {
        each.metadata.name
        for each in objects
        if isinstance(each, StorageClass) and each.volume_binding_mode == "WaitForFirstConsumer"
    }
    waiting = {
        (each.metadata.namespace, each.metadata.name)
        for each in objects
        if isinstance(each, PersistentVolumeClaim) and each.storage_class in classes and not each.spec.volume_name
    }
    for pod in pods if waiting else ():
        for volume in pod.spec.volumes:
            claim = volume.persistent_volume_claim
            name = f"{pod.metadata.name}-{volume.name}" if claim is None else claim.claim_name
            if (pod.metadata.namespace, name) in waiting:
                return f"claim {pod.metadata.namespace}/{name} is bound once its pod has a node"
    return ""
