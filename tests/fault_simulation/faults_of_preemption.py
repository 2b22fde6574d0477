"""Faults of preemption, Permit, gangs, devices and volumes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from kubestow.cluster.cache import Cluster
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.cluster.storage.volumes import Volumes
from kubestow.framework.runtime import binding_runtime
from kubestow.framework.runtime.gang_runtime import GangRuntime
from kubestow.plugins.default_preemption import default_preemption, dry_run
from kubestow.plugins.default_preemption.default_preemption import DefaultPreemption
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.plugins.dynamic_resources.pre_bind import ClaimUpdates
from kubestow.plugins.volume_binding.volume_binding import VolumeBinding
from kubestow.rules.minors import MINORS
from kubestow.scheduling.cycle.failure_handler import FailureHandler
from kubestow.scheduling.gangs.barrier import GangBarrier
from kubestow.scheduling.gangs.placer import MemberPlacement
from kubestow.scheduling.preemption.evictions import Evictions, PreemptionsInProgress
from kubestow.scheduling.waiting_pods import WaitingPod, WaitingPods
from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.scenario import Part
from tests.fault_simulation.planting import (
    PlantedFault,
    around,
    errors_ignored,
    left_out,
    nothing_async,
    replaced,
    unless,
)


def _without_nomination(attempt_failed: Any) -> Any:
    def changed(self: FailureHandler, queued: Any, failure: Any) -> None:
        attempt_failed(self, queued, replace(failure, nomination=None))

    return changed


def _all_are_victims(*arguments: Any) -> Any:
    return np.ones(len(arguments[3].slots), np.bool_)


def _of_same_priority_too(may_evict: Any) -> Any:
    def changed(self: DefaultPreemption, pod: Any, pods: Any) -> Any:
        return may_evict(self, pod, pods) | (pods.table.priority[pods.slots] == pod.priority)

    return changed


def _although_never(ineligibility: Any) -> Any:
    def changed(self: DefaultPreemption, *arguments: Any) -> str | None:
        reason: str | None = ineligibility(self, *arguments)
        return None if reason == default_preemption._NEVER_PREEMPTS else reason

    return changed


class _NothingRejects:
    """The filters of a pod, none of which rejects a node before victims are put back."""

    def __init__(self, filters: Any) -> None:
        self._filters = filters

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filters, name)

    def rejections(self, nodes: Any) -> list[Any]:
        return []


def _wherever(run: Any) -> Any:
    return lambda filters, *arguments, **keywords: run(_NothingRejects(filters), *arguments, **keywords)


def _not_cancelled(enter: Any) -> Any:
    def changed(self: WaitingPods, uid: str) -> asyncio.Future[str]:
        enter(self, uid)
        return asyncio.get_running_loop().create_future()

    return changed


def _without_limit(within: Any) -> Any:
    return lambda plugin, point, work: within(SimpleNamespace(name=plugin.name, time_limit=None), point, work)


def _with_one_less(gang_of: Any) -> Any:
    def changed(self: GangRuntime, pod: Any) -> Any:
        gang = gang_of(self, pod)
        return gang if gang is None else replace(gang, min_count=max(1, gang.min_count - 1))

    return changed


def _is_released(tracker: ResourceClaimTracker, claim: Any) -> bool:
    return claim.status.allocation is None


PREEMPTION = [
    PlantedFault("a nomination is kept", left_out(Cluster, "drop_nomination")),
    PlantedFault("a preemptor is not nominated", around(FailureHandler, "attempt_failed", _without_nomination)),
    PlantedFault("a preemption does not end", left_out(Evictions, "_forget")),
    PlantedFault("a preemptor stays gated", left_out(Evictions, "_let_go")),
    PlantedFault(
        "a preemptor whose victims are gone is not requeued",
        left_out(Evictions, "_activate"),
        often=(Fault.PROTECTED,),
        flushes=False,
        is_crowded=True,
    ),
    PlantedFault(
        "evictions do not watch their victims",
        left_out(Evictions, "victim_changed"),
        often=(Fault.DELAY,),
        is_crowded=True,
    ),
    PlantedFault("a preemptor is never gated", replaced(PreemptionsInProgress, "is_preempting", lambda *_: False)),
    PlantedFault(
        "an eviction that failed counts as made",
        around(Evictions, "_evict", errors_ignored()),
        often=(Fault.PROTECTED,),
        is_crowded=True,
    ),
    PlantedFault("no victim is reprieved", replaced(dry_run, "_not_reprieved", _all_are_victims)),
    PlantedFault(
        "pods of one priority evict each other", around(DefaultPreemption, "may_evict", _of_same_priority_too)
    ),
    PlantedFault(
        "pods preempt although their policy is Never", around(DefaultPreemption, "_ineligibility", _although_never)
    ),
    PlantedFault("pods are evicted where the preemptor does not fit", around(default_preemption, "dry_run", _wherever)),
]

PERMIT = [
    PlantedFault(
        "a pod on Permit is not stopped but stays there",
        replaced(WaitingPods, "preempt", lambda *_: True),
        required=(Part.PLUGIN,),
    ),
    PlantedFault("a pod that waited on Permit stays listed", left_out(WaitingPods, "remove"), required=(Part.PLUGIN,)),
    PlantedFault(
        "a wait on Permit does not time out",
        left_out(WaitingPod, "_time_out"),
        required=(Part.PLUGIN,),
        often=(Fault.DELAYS,),
    ),
    PlantedFault(
        "a victim in PreBind is not stopped",
        around(WaitingPods, "enter_pre_bind", _not_cancelled),
        required=(Part.PLUGIN,),
    ),
    PlantedFault(
        "PreBind has no time limit",
        around(binding_runtime, "_within_time_limit", _without_limit),
        required=(Part.PLUGIN,),
        often=(Fault.DELAYS, Fault.HANGS),
    ),
]

GANGS = [
    PlantedFault(
        "a gang is bound although it was rejected",
        left_out(GangBarrier, "rejection"),
        required=(Part.GANGS,),
        often=(Fault.SLOW, Fault.REQUEST_LOST),
        minor=MINORS[-1],
    ),
    PlantedFault(
        "a member that will not be bound stays expected", left_out(GangBarrier, "leave"), required=(Part.GANGS,)
    ),
    PlantedFault(
        "a gang needs one pod less than its minimum",
        around(GangRuntime, "gang_of", _with_one_less),
        required=(Part.GANGS, Part.PLUGIN),
        often=(Fault.REJECTS, Fault.DELAYS),
    ),
    PlantedFault(
        "the places of a gang that does not fit are kept", left_out(MemberPlacement, "undo"), required=(Part.GANGS,)
    ),
]

DEVICES = [
    PlantedFault(
        "devices are not reserved until the claim is written",
        left_out(ResourceClaimTracker, "signal_pending_allocation"),
        required=(Part.DEVICES,),
        often=(Fault.SLOW,),
    ),
    PlantedFault(
        "a written claim is not known until the watch shows it",
        left_out(ResourceClaimTracker, "assume_after_api_call"),
        required=(Part.DEVICES, Part.CLAIM_TEMPLATES),
        often=(Fault.DELAY,),
    ),
    PlantedFault(
        "reserved devices are kept",
        left_out(ResourceClaimTracker, "remove_pending_allocation"),
        required=(Part.DEVICES,),
    ),
    PlantedFault(
        "a released allocation stays counted",
        around(ResourceClaimTracker, "_put", unless(_is_released)),
        required=(Part.DEVICES,),
    ),
    PlantedFault(
        "an allocation is not unreserved",
        left_out(DynamicResourcesWithoutScore, "unreserve"),
        required=(Part.DEVICES,),
    ),
    PlantedFault(
        "a claim that could not be written counts as written",
        around(ClaimUpdates, "_bind", errors_ignored()),
        required=(Part.DEVICES,),
    ),
    PlantedFault(
        "a pod is bound before its devices",
        replaced(DynamicResourcesWithoutScore, "pre_bind", nothing_async),
        required=(Part.DEVICES,),
    ),
]

VOLUMES = [
    PlantedFault("assumed volumes are kept", left_out(VolumeBinding, "unreserve"), required=(Part.VOLUMES,)),
    PlantedFault(
        "a pod is bound before its volumes",
        replaced(VolumeBinding, "pre_bind", nothing_async),
        required=(Part.VOLUMES,),
    ),
    PlantedFault("a disk in use is not counted", left_out(Volumes, "add_pod"), required=(Part.VOLUMES,)),
    PlantedFault("a disk stays in use without its pod", left_out(Volumes, "remove_pod"), required=(Part.VOLUMES,)),
]
