"""Kubernetes' minor versions, and the rules of scheduling that are not the same in all of them.

A :class:`Behaviour` is a rule by name, with the minor version that brought it; what was the rule before is said beside
it. Code asks for a behaviour (:meth:`Minor.has`) and never compares versions. Differences that a feature gate makes are
not here: a gate has its stage and its default by version (:mod:`kubestow.config.feature_gates`).

``docs/minors.md`` is the table of all behaviours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kubestow.errors import InputError

#: The patch release that stands for each minor version, by their numbers.
_PATCHES = {31: 14, 32: 13, 33: 13, 34: 9, 35: 6, 36: 2}
_OLDEST, _NEWEST = min(_PATCHES), max(_PATCHES)
#: ``1.33``, ``v1.33.4``, and versions of distributions such as ``v1.33.4+k3s1``, ``v1.33.4-eks-113cf36``.
_VERSION = re.compile(r"v?1\.(\d{1,3})(?:[.+-].*)?")


@dataclass(frozen=True, order=True, slots=True)
class Minor:
    """A minor version of Kubernetes that can be emulated: 1.33 has the ``number`` 33."""

    number: int

    @classmethod
    def parse(cls, version: str, *, subject: str) -> Minor:
        """Parse "1.33" or "v1.33.4". Raises InputError, naming ``subject``, for a version that cannot be emulated."""
        match = _VERSION.fullmatch(version.strip())
        if match is None:
            raise InputError(subject, f"invalid version {version!r}, expected one such as {NEWEST}")
        if not _OLDEST <= int(match[1]) <= _NEWEST:
            raise InputError(subject, f"version 1.{int(match[1])} is not supported, expected {OLDEST} to {NEWEST}")
        return cls(int(match[1]))

    @property
    def release(self) -> str:
        """The patch release whose decisions are reproduced, such as ``v1.33.13``."""
        return f"v1.{self.number}.{_PATCHES[self.number]}"

    def has(self, behaviour: Behaviour) -> bool:
        """Whether this minor version has a behaviour."""
        return self.number >= behaviour.value.since

    def __str__(self) -> str:
        return f"1.{self.number}"


OLDEST, NEWEST = Minor(_OLDEST), Minor(_NEWEST)
"""The minor versions between which every one can be emulated."""

MINORS = tuple(map(Minor, _PATCHES))
"""All minor versions that can be emulated, the oldest first."""


class Rule(NamedTuple):
    """What has changed: the number of the minor version ``since`` which ``rule`` holds, and the rule ``before``.

    ``subject`` is the plugin or the part of the scheduler that has it.
    """

    since: int
    subject: str
    rule: str
    before: str


class Behaviour(Enum):
    """The rules that are not the same in all minor versions."""

    # What pods count for
    HOST_PORTS_OF_SIDECARS_COUNT = Rule(
        33,
        "NodePorts",
        "the host ports of containers and sidecars count",
        "only the host ports of containers count",
    )

    # Filters, and their reasons

    # Scores
    SCORES_CHANGE_OF_BALANCE = Rule(
        36,
        "NodeResourcesBalancedAllocation",
        "the score is the change of the node's balance: 50 + (50 + balance with the pod - balance without it) / 2",
        "the score is the balance of the node with the pod",
    )

    BALANCE_SKIPS_PODS_WITHOUT_REQUESTS = Rule(
        33,
        "NodeResourcesBalancedAllocation",
        "PreScore skips a pod that requests none of the scored resources",
        "such a pod is scored like any other",
    )

    # Volumes

    # Devices

    # Queue and events
    ERRORS_BACK_OFF_APART = Rule(
        34,
        "backoff",
        "the backoff grows with the attempts that ended unschedulable; errors in a row are counted apart",
        "the backoff grows with every attempt",
    )

    PRE_ENQUEUE_ASKS_GATING_PLUGIN_FIRST = Rule(
        34,
        "PreEnqueue",
        "the plugin that gates a pod is asked before the others",
        "all plugins are asked in their order",
    )

    GATED_PODS_WAIT_FOR_GATING_PLUGIN = Rule(
        34,
        "PreEnqueue",
        "PreEnqueue runs again for a gated pod after an event that its gating plugin registered",
        "after an event that helps it by any plugin that rejected it, unless SchedulingGates gates it",
    )

    ACTIVATION_FROM_BACKOFF_SKIPS_PRE_ENQUEUE = Rule(
        35,
        "PreEnqueue",
        "PreEnqueue does not run again for a pod that is activated from backoffQ",
        "it runs again whatever moves a pod from backoffQ, except for the end of its backoff",
    )

    FREED_NOMINATIONS_REQUEUE = Rule(
        33,
        "nominated pods",
        "when a pending pod loses its nomination, the pods of no higher priority are tried again",
        "they wait for another event",
    )

    DELETED_ASSUMED_PODS_ARE_FORGOTTEN = Rule(
        35,
        "assumed pods",
        "a pod that is deleted before it is bound frees its room at once, except while it waits on Permit",
        "it keeps its room until its binding has failed; only a wait on Permit ends",
    )

    NODE_EVENTS_NAME_WHAT_CHANGED = Rule(
        32,
        "events of nodes, without queueing hints",
        "plugins that check one node register additions and changes of taints and labels",
        "they register additions and every update",
    )

    EVENT_LABELS_NAME_RESOURCE_AND_ACTION = Rule(
        32,
        "labels of events in metrics",
        "the label of an event is its resource and action: UnschedulablePodAdd, NodeUpdateNodeTaint",
        "events have names of their own: PodAdd, NodeTaintChange, PvcAdd",
    )

    PRE_BIND_PRE_FLIGHT_IS_MEASURED = Rule(
        34,
        "extension points in metrics",
        "PreBindPreFlight is an extension point",
        "there is no PreBindPreFlight",
    )

    HINTS_LOOK_AT_NOMINATED_PODS = Rule(
        33,
        "hints of NodeResourcesFit, NodePorts and NodeVolumeLimits",
        "the deletion of a pod that is nominated to a node may help, as that of a pod on a node",
        "only the deletion of a pod on a node may help",
    )

    TOPOLOGY_HINTS_LOOK_AT_NOMINATED_PODS = Rule(
        36,
        "hints of InterPodAffinity and PodTopologySpread",
        "changes of pods that are nominated to a node may help, as those of pods on a node",
        "only changes of pods on a node may help",
    )

    AFFINITY_HINT_LOOKS_AT_THE_POD_ITSELF = Rule(
        36,
        "hint of InterPodAffinity",
        "a change of the pod's own labels, and the deletion of a pod whose anti-affinity repelled it, may help",
        "only changes of pods that the pod's own terms match may help",
    )

    ATTACHMENT_DELETIONS_REQUEUE = Rule(
        32,
        "hints of NodeVolumeLimits",
        "the deletion of a VolumeAttachment requeues pods",
        "no event comes from VolumeAttachments",
    )

    VOLUME_LIMIT_HINTS = Rule(
        33,
        "hints of NodeVolumeLimits",
        "an update of a CSINode that raises a limit may help; hints decide about deleted VolumeAttachments",
        "updates of CSINodes do not help; every deleted VolumeAttachment may",
    )

    CSI_DRIVER_HINT = Rule(
        32,
        "hint of VolumeBinding",
        "an update of a CSIDriver helps if it no longer tracks capacity",
        "every addition and update of a CSIDriver may help",
    )

    PREEMPTORS_WAIT_FOR_DELETIONS = Rule(
        34,
        "events of DefaultPreemption",
        "a preemptor that is gated is looked at again when a pod is deleted",
        "DefaultPreemption registers no event",
    )

    # Nomination, preemption and binding
    FAILURE_WITHOUT_POST_FILTER_CLEARS_NOMINATION = Rule(
        35,
        "nominatedNodeName",
        "a pod that fits nowhere loses its nomination if the profile has no PostFilter plugin",
        "it keeps its nomination",
    )

    FAILURES_CLEAR_NOMINATION_WITH_EXPECTATION = Rule(
        35,
        "nominatedNodeName",
        "failures clear the nomination whatever the gate NominatedNodeNameForExpectation",
        "with the gate they leave it alone",
    )

    PRE_BIND_FAILURES_BACK_OFF = Rule(
        33,
        "PreBind",
        "a pod that a PreBind plugin rejects is tried again after a backoff",
        "it waits for an event that the plugin registered",
    )

    PRE_BIND_RUNS_IN_PARALLEL = Rule(
        36,
        "PreBind",
        "PreBind plugins that allow it run at the same time",
        "PreBind plugins run one after another",
    )

    VICTIMS_IN_PRE_BIND_ARE_CANCELLED = Rule(
        36,
        "preemption",
        "the binding of a victim in PreBind is cancelled, and the pod is tried again",
        "the victim is deleted",
    )

    VICTIMS_ON_PERMIT_ARE_RETRIED = Rule(
        36,
        "preemption",
        "a victim that waits on Permit is tried again after a backoff; its event ends with (in kube-scheduler memory).",
        "it is rejected by DefaultPreemption, for which no event requeues it",
    )

    # Configuration
