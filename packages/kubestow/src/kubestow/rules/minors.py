"""Kubernetes' minor versions, and the rules of scheduling that are not the same in all of them.

A :class:`Behaviour` is a rule by name, with the minor version that brought it; what was the rule before is said beside
it. Code asks for a behaviour (:meth:`Minor.has`) and never compares versions. Differences that a feature gate makes are
not here: a gate has its stage and its default by version (:mod:`kubestow.config.feature_gates`).

``docs/minors.md`` is the table of all behaviours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from kubestow.errors import InputError

#: The patch release that stands for each minor version, by their numbers.
_PATCHES = {31: 14, 32: 13, 33: 13, 34: 9, 35: 6, 36: 2, 37: 0}
_OLDEST, _NEWEST = min(_PATCHES), max(_PATCHES)
#: ``1.33``, ``v1.33.4``, and versions of distributions such as ``v1.33.4+k3s1``, ``v1.33.4-eks-113cf36``.
_VERSION = re.compile(r"v?1\.(\d{1,3})(?:[.+-].*)?")
_MAJOR_MINOR = re.compile(r"v?1\.\d+(?:\.0)?")
#: The API versions that the cluster in a box does not serve in all minor versions: the first one that has it, and the
#: last in which the scheduler reads it.
_SERVED = {
    "resource.k8s.io/v1": (34, _NEWEST),
    "resource.k8s.io/v1beta2": (33, 33),
    "resource.k8s.io/v1beta1": (32, 33),
    "resource.k8s.io/v1alpha3": (31, 31),
    "scheduling.k8s.io/v1alpha1": (35, 35),
    "scheduling.k8s.io/v1alpha2": (36, 36),
    "scheduling.k8s.io/v1alpha3": (37, _NEWEST),
    "scheduling.k8s.io/v1beta1": (37, _NEWEST),
}
#: The same for kinds that are not in all API versions of their group.
_SERVED_KINDS = {
    "DeviceTaintRule": {
        "resource.k8s.io/v1": (37, _NEWEST),
        "resource.k8s.io/v1beta2": (36, 36),
        "resource.k8s.io/v1alpha3": (33, 35),
    }
}
_NOWHERE = (_NEWEST + 1, _NEWEST)
_EMULATION_IS_REPORTED = 33
_EMULATE_ANOTHER = "or --emulated-version with one of these"


@dataclass(frozen=True, slots=True)
class Minor:
    """A minor version of Kubernetes that can be emulated: 1.33 has the ``number`` 33.

    A version may lack some of its behaviours, ``lacking``, to find out what they are the cause of.
    """

    number: int
    lacking: frozenset[Behaviour] = frozenset()

    @classmethod
    def parse(cls, version: str, *, subject: str) -> Minor:
        """Parse "1.33" or "v1.33.4". Raises InputError, naming ``subject``, for a version that cannot be emulated."""
        match = _VERSION.fullmatch(version.strip())
        if match is None:
            raise InputError(subject, f"invalid version {version!r}, expected one such as {NEWEST}")
        if not _OLDEST <= int(match[1]) <= _NEWEST:
            raise InputError(subject, f"version 1.{int(match[1])} is not supported, expected {OLDEST} to {NEWEST}")
        return cls(int(match[1]))

    @classmethod
    def emulated(cls, version: str, *, subject: str) -> Minor:
        """The value of kube-scheduler's ``--emulated-version``: "1.33" or "kube=1.33".

        Raises InputError, as kube-scheduler fails, for a patch release too: nothing differs between those of a version.
        """
        minor = version.strip().removeprefix("kube=")
        if _VERSION.fullmatch(minor) and not _MAJOR_MINOR.fullmatch(minor):
            raise InputError(subject, f"patch version not allowed, got: {version}, expected one such as {NEWEST}")
        return cls.parse(minor, subject=subject)

    @classmethod
    def of_server(cls, version: str) -> Minor:
        """The minor version of an API server such as "v1.33.4". Raises InputError for one that cannot be emulated."""
        if not version:
            raise InputError("API server", f"tells no version, expected {OLDEST} to {NEWEST}, {_EMULATE_ANOTHER}")
        try:
            return cls.parse(version, subject="API server")
        except InputError as error:
            raise InputError("API server", f"{error.problem}, {_EMULATE_ANOTHER}") from None

    @classmethod
    def nearest(cls, release: tuple[int, int]) -> Minor:
        """The minor version that can be emulated nearest to a release such as (1, 29)."""
        return cls(min(max(release, (1, _OLDEST)), (1, _NEWEST))[1])

    @property
    def release(self) -> str:
        """The patch release whose decisions are reproduced, such as ``v1.33.13``."""
        return f"v1.{self.number}.{_PATCHES[self.number]}"

    def has(self, behaviour: Behaviour) -> bool:
        """Whether this minor version has a behaviour."""
        return self.number >= behaviour.value.since and behaviour not in self.lacking

    def serves(self, api_version: str, kind: str = "") -> bool:
        """Whether an API server of this version has an API version such as ``resource.k8s.io/v1`` for its scheduler.

        Asked about a ``kind`` it answers for objects of that kind.

        Alpha and beta versions count although API servers serve them only on request; those that are older than the
        one that the scheduler reads do not. An API version without an entry is served by all minor versions.
        """
        if kind in _SERVED_KINDS:
            first, last = _SERVED_KINDS[kind].get(api_version, _NOWHERE)
        else:
            first, last = _SERVED.get(api_version, (_OLDEST, _NEWEST))
        return first <= self.number <= last

    @property
    def is_compared(self) -> bool:
        """Whether its decisions were compared with those of Kubernetes' own binary (see :data:`NOT_COMPARED`)."""
        return self.number != 37

    @property
    def version_info(self) -> dict[str, str]:
        """The numbers in ``/version`` of an API server of this version that emulates no other."""
        numbers = {"major": "1", "minor": str(self.number)}
        if self.number >= _EMULATION_IS_REPORTED:
            numbers |= {"emulationMajor": "1", "emulationMinor": str(self.number)}
            numbers |= {"minCompatibilityMajor": "1", "minCompatibilityMinor": str(self.number - 1)}
        return numbers | {"gitVersion": self.release}

    def without(self, behaviour: Behaviour) -> Minor:
        """This version as if a behaviour had not come yet."""
        return replace(self, lacking=self.lacking | {behaviour})

    def __str__(self) -> str:
        return f"1.{self.number}"


def release_of(version: str) -> tuple[int, int] | None:
    """Major and minor of a version such as "v1.33.4", also of one that cannot be emulated; None for other text."""
    match = _VERSION.fullmatch(version.strip())
    return None if match is None else (1, int(match[1]))


OLDEST, NEWEST = Minor(_OLDEST), Minor(_NEWEST)
"""The minor versions between which every one can be emulated."""

DEFAULT_MINOR = Minor(36)
"""The minor version to decide as where none is named and no server or kubelet tells one."""

NOT_COMPARED = "1.37 follows the published sources and was not compared with the binary"
"""What has to be said wherever that minor version is offered: its decisions are not recorded ones."""

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

    @property
    def since(self) -> Minor:
        """The minor version that brought it."""
        return Minor(self.value.since)

    # What pods count for
    HOST_PORTS_OF_SIDECARS_COUNT = Rule(
        33,
        "NodePorts",
        "the host ports of containers and sidecars count",
        "only the host ports of containers count",
    )
    DEFAULT_REQUESTS_OF_SIDECARS_ADD_UP = Rule(
        32,
        "NodeResourcesFit",
        "for scores a placed pod counts with the default requests of each container and sidecar, added up by the rule "
        "for requests",
        "the containers are added up without the sidecars, and an init container counts with the defaults only where "
        "it and the sidecars before it together lack a request",
    )
    HUGE_PAGES_COUNT_FOR_THE_WHOLE_POD = Rule(
        33,
        "NodeResourcesFit",
        "pod-level requests are CPU, memory and huge pages",
        "pod-level requests are CPU and memory",
    )
    RESIZED_CONTAINERS_COUNT_AS_ALLOCATED = Rule(
        33,
        "NodeResourcesFit",
        "during an in-place resize a container or sidecar counts for the largest of its requests, those in effect and "
        "those allocated; without its requests if the condition PodResizePending says Infeasible",
        "a container counts for the larger of its requests and those in effect; without its requests if status.resize "
        "is Infeasible",
    )
    RESIZED_PODS_COUNT_BY_TOTALS = Rule(
        37,
        "NodeResourcesFit",
        "during an in-place resize the pod counts for the largest of three totals of all its containers, of requests, "
        "of those in effect and of those allocated; if the pod's own status has the last two, they are these",
        "the largest is that of each container and sidecar; the pod's own status counts for pod-level requests only",
    )
    RESIZED_CONTAINERS_COUNT_AS_REPORTED = Rule(
        32,
        "NodeResourcesFit",
        "during an in-place resize the requests in effect count, status.containerStatuses[].resources",
        "the allocated resources count, status.containerStatuses[].allocatedResources",
    )

    # Filters, and their reasons
    NODES_TOO_SMALL_ARE_UNRESOLVABLE = Rule(
        34,
        "NodeResourcesFit",
        "a node whose allocatable resources are less than the request is rejected with UnschedulableAndUnresolvable",
        "such a node is rejected with Unschedulable, so that preemption is tried on it",
    )
    TAINT_REASON_NAMES_NO_TAINT = Rule(
        34,
        "TaintToleration",
        "the reason is: node(s) had untolerated taint(s)",
        "the reason names the first untolerated taint: node(s) had untolerated taint {KEY: VALUE}",
    )
    SPREAD_CONSTRAINTS_COUNT_APART = Rule(
        33,
        "PodTopologySpread",
        "two constraints with one topologyKey have counts of their own",
        "they share the counts: in Filter those of the last constraint that includes a node, in Score their sum",
    )
    NAMESPACE_SELECTORS_MATCH_WITHOUT_LABELS = Rule(
        34,
        "InterPodAffinity",
        "a term of the incoming pod whose namespaceSelector matches an empty set of labels selects every namespace",
        "a term of the incoming pod selects the namespaces whose labels its namespaceSelector matches",
    )
    NODES_LEFT_OUT_ARE_REPORTED = Rule(
        32,
        "Scheduling cycle",
        "nodes that PreFilter leaves out are among the reasons: node(s) didn't satisfy plugin(s) [...]",
        "nodes that PreFilter leaves out are not mentioned",
    )
    HAS_NODE_DECLARED_FEATURES = Rule(
        35,
        "NodeDeclaredFeatures",
        "the plugin exists",
        "there is no such plugin",
    )

    DECLARED_FEATURES_ARE_NOT_LISTED = Rule(
        36,
        "NodeDeclaredFeatures",
        "a node that lacks features is rejected with \"node(s) didn't match Pod's required features\"",
        'the reason lists the features: "node declared features check failed - unsatisfied requirements: A, B"',
    )

    HOST_NETWORK_IN_USER_NAMESPACE_IS_A_FEATURE = Rule(
        36,
        "NodeDeclaredFeatures",
        "a pod with host network in a user namespace requires UserNamespacesHostNetworkSupport",
        "it requires no feature",
    )

    # Scores
    FIT_SCORES_WITHOUT_POD_LEVEL_REQUESTS = Rule(
        33,
        "NodeResourcesFit",
        "the pod to be scheduled is scored by the requests of its containers, whatever its pod-level requests",
        "pod-level requests count in the scores too",
    )
    IMAGE_VOLUMES_ARE_IMAGES = Rule(
        36,
        "ImageLocality",
        "the images of containers, init containers and image volumes count",
        "the images of containers and init containers count",
    )
    IMAGE_VOLUMES_RAISE_THE_THRESHOLD = Rule(
        37,
        "ImageLocality",
        "the score 100 stands for 1000 MiB per container, init container and image volume",
        "it stands for 1000 MiB per container and init container",
    )
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
    READ_WRITE_ONCE_POD_REASON_IS_USE = Rule(
        34,
        "VolumeRestrictions",
        "the reason is: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
        "in-use by another pod",
        "the reason is: node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
    )
    VOLUME_AFFINITY_REASON_NAMES_THE_VOLUME = Rule(
        33,
        "VolumeBinding",
        "the reason is: node(s) didn't match PersistentVolume's node affinity",
        "the reason is: node(s) had volume node affinity conflict",
    )
    PORTWORX_MIGRATES_EVERYWHERE = Rule(
        36,
        "NodeVolumeLimits",
        "in-tree Portworx volumes count as CSI volumes on every node that has a CSINode",
        "they count only where the CSINode lists the plugin as migrated",
    )
    MISSING_DRIVERS_PREVENT_IF_ASKED = Rule(
        36,
        "NodeVolumeLimits",
        "with the gate VolumeLimitScaling a node lacks a driver if the CSIDriver has preventPodSchedulingIfMissing",
        "with the gate VolumeLimitScaling a node lacks a driver whenever the CSIDriver exists",
    )
    VOLUME_LIMITS_ARE_THOSE_OF_CSI_NODES = Rule(
        32,
        "NodeVolumeLimits",
        "the limits of drivers are those of the CSINode",
        "the node's allocatable attachable-volumes-csi-DRIVER is the limit where the CSINode has none",
    )
    CAPACITY_TO_PROVISION_IS_SCORED = Rule(
        33,
        "VolumeBinding",
        "the gate StorageCapacityScoring scores volumes to bind, or else capacity to provision from; by default it "
        "prefers free capacity",
        "the gate VolumeCapacityPriority scores volumes to bind alone; by default it prefers used capacity",
    )

    # Devices
    SCORES_DEVICE_ALTERNATIVES = Rule(
        35,
        "DynamicResources",
        "Score, with weight 2, prefers nodes on which earlier alternatives of firstAvailable requests are used",
        "the plugin has no Score",
    )

    POST_FILTER_REPORTS_ONLY_ACTIONS = Rule(
        37,
        "DynamicResources",
        "PostFilter gives a reason only if it deallocates or deletes a claim",
        'otherwise it says "no new claims to deallocate", "still not schedulable" or "plugin disabled"',
    )

    SELECTOR_ERRORS_NAME_THE_DEVICE = Rule(
        37,
        "DynamicResources",
        'a selector that fails: "claim NS/C: selector #0 on device DRIVER/POOL/D: CEL runtime error: ...", with a hint '
        "after no such key",
        '"claim NS/C: selector #0: CEL runtime error: ..."',
    )

    CONFIGURATIONS_ARE_RECORDED_ONCE = Rule(
        37,
        "DynamicResources",
        "status.allocation has each configuration of the claim once, without requests if it is for all of them",
        "it is there once per request that it is for, and requests are left out if they are as many as those of the "
        "claim",
    )

    CLAIM_OWNER_IS_CAPITALIZED = Rule(
        36,
        "DynamicResources",
        'the claim of another pod: "ResourceClaim NS/C was not created for Pod NS/P (Pod is not owner)"',
        '"ResourceClaim NS/C was not created for pod NS/P (pod is not owner)"',
    )

    DEVICE_SEARCH_TIMEOUT_IS_AN_ERROR = Rule(
        36,
        "DynamicResources",
        'a search of devices beyond filterTimeout is an error: "node N: timed out trying to allocate devices"',
        'the node is rejected, unresolvable: "timed out trying to allocate devices"',
    )

    DEVICE_BINDING_ERRORS_NAME_THE_CLAIM_LAST = Rule(
        36,
        "DynamicResources",
        'a failed binding condition: "device binding failed: claim=C, reason=R, message=M"',
        '"claim C binding failed: reason=R, message=M"',
    )

    POST_FILTER_SKIPS_PODS_WITHOUT_CLAIMS = Rule(
        33,
        "DynamicResources",
        "PostFilter gives no reason for a pod without claims in its spec, whether or not PreFilter was run",
        'it says "no new claims to deallocate", and "not found" if PreFilter was not run',
    )

    POST_FILTER_LOOKS_AT_ALL_PODS = Rule(
        34,
        "DynamicResources",
        'PostFilter says "no new claims to deallocate", and "not found" if PreFilter was not run',
        "PostFilter gives no reason for a pod without claims in its spec, whether or not PreFilter was run",
    )

    DEVICE_ALLOCATOR_DEPENDS_ON_GATES = Rule(
        34,
        "DynamicResources",
        "the allocator is chosen by the gates that are on; only the one for DRAConsumableCapacity or "
        "DRADeviceBindingConditions knows distinctAttribute, refuses capacity requests while their gate is off, takes "
        "devices with binding conditions last, and honours bindsToNode",
        "there is one allocator, without any of these",
    )

    DEVICE_STATUS_ALONE_CHOOSES_NO_ALLOCATOR = Rule(
        35,
        "DynamicResources",
        "DRAResourceClaimDeviceStatus alone, without DRADeviceBindingConditions, has no part in the choice of the "
        "allocator",
        "DRAResourceClaimDeviceStatus (on) chooses the allocator for binding conditions",
    )

    CAPACITY_OF_SUBREQUESTS_IS_REFUSED_BY_NAME = Rule(
        35,
        "DynamicResources",
        'while DRAConsumableCapacity is off: "claim NS/C, subrequest S: has capacity requests, but ..."',
        'the error names the request: "claim NS/C, request R: has capacity requests, but ..."',
    )

    DISTINCT_ATTRIBUTE_COMPARES_VALUES = Rule(
        35,
        "DynamicResources",
        "distinctAttribute: no two devices have the same value",
        "distinctAttribute asks only that every device has the attribute, and that none is used twice",
    )

    UNUSABLE_POOLS_ARE_PASSED_OVER = Rule(
        35,
        "DynamicResources",
        "devices of incomplete and invalid pools are not used; with no others the node is rejected: "
        '"invalid resource pools were encountered"; the slices of a pool count on whatever nodes they are accessible',
        "devices of incomplete pools are used; a search that comes to an invalid pool is an error: "
        '"pool P is invalid: duplicate device name D"; only slices that the node can access count',
    )

    INVALID_POOLS_ARE_AN_ERROR_AT_ONCE = Rule(
        33,
        "DynamicResources",
        "an invalid pool is an error as soon as a search comes to it",
        "it is an error as soon as one of its devices is selected",
    )

    DUPLICATE_DEVICES_ARE_FOUND = Rule(
        32,
        "DynamicResources",
        "a pool with two devices of one name is invalid",
        "pools are not checked for duplicate names",
    )

    SLICES_OF_A_POOL_ARE_IN_ORDER_OF_NAMES = Rule(
        36,
        "DynamicResources",
        "the slices of a pool are searched in the order of their names",
        "slices with binding conditions are searched last, if the allocator knows them",
    )

    COUNTERS_BELONG_TO_POOLS = Rule(
        35,
        "DynamicResources",
        "shared counters are published in slices of their own, for all devices of the pool",
        "shared counters are published in the slice of the devices that consume them",
    )

    SLICES_WITH_COUNTERS_ARE_READ_WITHOUT_THE_GATE = Rule(
        34,
        "DynamicResources",
        "while DRAPartitionableDevices is off, devices that consume counters are not used (from 1.35 on, slices with "
        "counters are left out)",
        "while it is off, slices with counters are left out, and what devices consume is ignored",
    )

    COUNTERS_ARE_CHARGED_DURING_THE_SEARCH = Rule(
        34,
        "DynamicResources",
        "a device that is rejected after its counters were charged keeps the charge for the rest of the search",
        "only the counters of devices allocated so far are charged",
    )

    SHARED_DEVICES_CHARGE_COUNTERS_ONCE = Rule(
        35,
        "DynamicResources",
        "a device that is shared consumes its counters once",
        "a device that is shared consumes its counters again with every share of one pod",
    )

    SHARES_COUNT_IN_COUNTERS = Rule(
        36,
        "DynamicResources",
        "devices of which shares are allocated consume their counters",
        "only devices that are allocated exclusively do",
    )

    COMPATIBILITY_GROUPS_ARE_READ = Rule(
        37,
        "DynamicResources",
        "devices that consume one counter set must have a compatibility group in common, or all none, with the gate"
        " DRADeviceCompatibilityGroups; without it, devices with groups are not used, nor any beside an allocated one",
        "compatibilityGroups are not read",
    )

    CAPACITY_OF_THE_DEVICE_ITSELF_IS_CHECKED = Rule(
        35,
        "DynamicResources",
        "before a device is allocated its own remaining capacity is checked again",
        "that of the slice's n-th device is, for the n-th device of a request",
    )

    DEVICE_TAINT_RULES_HAVE_A_GATE = Rule(
        35,
        "DynamicResources",
        "DeviceTaintRules count with DRADeviceTaintRules on",
        "they count with DRADeviceTaints on",
    )

    DEVICE_TAINT_RULES_SELECT_BY_NAME = Rule(
        35,
        "DynamicResources",
        "a DeviceTaintRule selects devices by the names of driver, pool and device",
        "it selects them by a device class and CEL selectors, too",
    )

    ONLY_SOME_TAINTS_PREVENT_ALLOCATION = Rule(
        35,
        "DynamicResources",
        "device taints with the effects NoSchedule and NoExecute prevent allocation",
        "device taints with any effect do",
    )

    DEVICES_ARE_TRIED_IN_COMBINATIONS = Rule(
        36,
        "DynamicResources",
        "the devices of a request are tried in combinations, in their order; none is used twice for a request",
        "they are tried in all orders, and a shared device may be used several times for a request",
    )

    SUBREQUESTS_FOR_ALL_DEVICES_STAND_ALONE = Rule(
        36,
        "DynamicResources",
        "a subrequest with mode All is matched by its own selectors",
        "the match is remembered as that of the subrequest before, and after its first device the search goes on with "
        "the first subrequest",
    )

    ALL_DEVICES_ARE_RETURNED = Rule(
        34,
        "DynamicResources",
        "when a search goes back, the devices of a request with mode All are available again",
        "they stay in use for the rest of the search, and in its result",
    )

    MODE_ALL_NEEDS_A_DEVICE = Rule(
        33,
        "DynamicResources",
        "a request with mode All cannot be satisfied where no device matches; where one is in use, alternatives to "
        "earlier requests are tried",
        "a request with mode All is satisfied where no device matches; where one is in use, the search ends",
    )

    MODE_ALL_NEEDS_ALL_DEVICES = Rule(
        32,
        "DynamicResources",
        "a request with mode All cannot be satisfied while a device is in use",
        "it gets the devices that are not in use",
    )

    ADMIN_ACCESS_TAKES_DEVICES_DURING_THE_SEARCH = Rule(
        34,
        "DynamicResources",
        "a device with admin access is not used again for the claim, nor exclusively for another claim of the pod",
        "it may be used again, even for the same request",
    )

    ADMIN_ACCESS_HAS_A_GATE = Rule(
        32,
        "DynamicResources",
        "admin access is an error while DRAAdminAccess is off",
        "admin access is always granted",
    )

    ADMIN_ACCESS_IS_RECORDED = Rule(
        32,
        "DynamicResources",
        "status.allocation says which devices have admin access; they are available to other claims",
        "devices with admin access are recorded like others, and not available to other claims",
    )

    TOLERATIONS_ARE_RECORDED = Rule(
        35,
        "DynamicResources",
        "status.allocation repeats the tolerations of the request",
        "status.allocation has no tolerations",
    )

    EXTENDED_RESOURCES_ARE_SHARED_BY_CONTAINERS = Rule(
        35,
        "DynamicResources",
        "init containers use the devices of containers that start later; nodes that offer 0 of a resource lack it; "
        "deviceclass.resource.kubernetes.io/C is a resource, and classes with a name of their own have both",
        "each container gets devices of its own, also for resources that the node offers if it lacks another; nodes "
        "that list a resource offer it; only the resource that a class names is known",
    )

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

    NOMINATIONS_OF_GATED_PODS_COUNT = Rule(
        37,
        "nominated pods",
        "the nomination of a new pod counts although a PreEnqueue plugin gates the pod",
        "it counts once the pod is updated or no longer gated",
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

    EVENT_LABELS_NAME_UNSCHEDULED_PODS = Rule(
        37,
        "labels of events in metrics",
        "additions and deletions of pods without a node begin with UnscheduledPod, their updates with TargetPod",
        "all of them begin with UnschedulablePod",
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

    ANTI_AFFINITY_HINT_LOOKS_AT_EVERY_TERM = Rule(
        37,
        "hint of InterPodAffinity",
        "a pod that no longer repels another helps if a required anti-affinity term matched",
        "it helps if all required anti-affinity terms matched",
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

    BINDINGS_ARE_RETRIED = Rule(
        37,
        "binding",
        "a binding that fails for the moment (conflict, too many requests, 500, 503, no connection) is sent up to four "
        "times",
        "a binding is sent once",
    )

    PREEMPTION_REPORTS_WHAT_IT_FOUND = Rule(
        37,
        "DefaultPreemption",
        'a message reports what preemption found: "preemption: found a potential placement for pod on node N, '
        'preempting 2 victims"',
        "the reasons of a pod for which others are evicted end with those of the nodes",
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
    GATES_NEED_THEIR_DEPENDENCIES = Rule(
        35,
        "dependencies of feature gates",
        "an enabled gate whose dependencies are disabled is refused",
        "gates are enabled and disabled independently of each other",
    )
    PLACEMENT_EXTENSION_POINTS = Rule(
        36,
        "Configuration",
        "profiles have placementGenerate and placementScore, and there are plugins TopologyPlacementGenerator and "
        "PodGroupPodsCount",
        "both are unknown fields, and there are no such plugins",
    )
    POD_GROUP_POST_FILTER = Rule(
        37,
        "Configuration",
        "profiles have podGroupPostFilter, which DefaultPreemption extends to preempt for pod groups",
        "it is an unknown field; for pod groups the plugin at postFilter preempts",
    )
    POD_GROUPS_ARE_UNITS = Rule(
        37,
        "Pod groups",
        "all pods of a group are decided about in one cycle, in a fixed order and while the minCount can be reached; "
        "they have one priority and one preemption policy, that of the group, or fail; one gated pod gates all",
        "pods beyond the minCount are scheduled by themselves; pods may differ in priority; gated pods do not count",
    )
    POD_GROUPS_ARE_QUEUED = Rule(
        37,
        "Queue",
        "a pod group, or a tree of them, is one entity: it has its own order, backoff (at most the maximum times the "
        "square root of its size) and attempts; after a failure it backs off, whatever the events",
        "the pods of a group are queued one by one, and popped and requeued together",
    )
    POD_GROUPS_ARE_INITIALLY_SCHEDULED = Rule(
        37,
        "Pod groups",
        "the condition is PodGroupInitiallyScheduled",
        "the condition is PodGroupScheduled",
    )
    POD_GROUPS_PREEMPT_IN_ONE_ATTEMPT = Rule(
        37,
        "preemption",
        "a group is placed once as if all possible victims were gone, also under a topology constraint; then victims "
        "are put back while its pods still fit on their nodes",
        "a group is placed anew for each victim that is put back; groups with a topology constraint do not preempt",
    )
    POD_GROUPS_ARE_VICTIMS = Rule(
        37,
        "preemption",
        "a pod of a group counts with the group's priority, and a group with disruptionMode all is evicted as a whole, "
        "also for a single pod",
        "a pod counts with its own priority, and only groups evict groups as a whole",
    )
    HAS_GANG_SCHEDULING = Rule(
        35,
        "GangScheduling",
        "the plugin exists",
        "there is no such plugin",
    )
    POD_GROUPS_ARE_OBJECTS = Rule(
        36,
        "Pod groups",
        "a group is a PodGroup, which a pod names in spec.schedulingGroup; its pods are decided about in one cycle",
        "a group is part of a Workload (v1alpha1), which a pod names in spec.workloadRef; its pods are decided about "
        "one by one, and wait at Permit, for five minutes, until minCount of them have nodes; GangScheduling extends "
        "Reserve",
    )
    PREEMPTION_EXTENDS_PRE_ENQUEUE = Rule(
        32,
        "DefaultPreemption",
        "it extends PreEnqueue, for the gate SchedulerAsyncPreemption",
        "it does not extend PreEnqueue",
    )
    DYNAMIC_RESOURCES_TAKES_ARGUMENTS = Rule(
        34,
        "Configuration",
        "the arguments of DynamicResources are read: filterTimeout",
        "its arguments are not read, and anything is accepted",
    )
    DYNAMIC_RESOURCES_TAKES_A_BINDING_TIMEOUT = Rule(
        35,
        "Configuration",
        "DynamicResources has the argument bindingTimeout",
        "bindingTimeout is an unknown field",
    )
    CAPACITY_RATIO_IS_BOUND_TO_ITS_STRATEGY = Rule(
        36,
        "NodeResourcesFit",
        "requestedToCapacityRatio is required by the scoring strategy of that name, and forbidden in others; the path "
        "of a point of its shape has requestedToCapacityRatio",
        "other strategies ignore it; the path of a point is scoringStrategy.shape",
    )
    OVERFLOW_ERRORS_NAME_THE_EXTENSION_POINT = Rule(
        36,
        "Configuration",
        "weights that overflow: score plugins: total score of Score plugins could overflow",
        "total score of Score plugins could overflow",
    )
    INVALID_VALUES_ARE_JSON = Rule(
        34,
        "Configuration",
        "errors show an invalid value as JSON",
        "errors show an invalid value in Go's syntax, and names of resources without quotes",
    )
    ERRORS_DO_NOT_REPEAT_THEIR_FIELD = Rule(
        34,
        "Configuration",
        "must be the same for all profiles; values must be sorted in increasing order",
        "queueSort must be the same for all profiles; utilization values must be sorted in increasing order",
    )
    NAMES_OF_RESOURCES_ARE_LABEL_KEYS = Rule(
        35,
        "Configuration",
        "an invalid name of a resource is called no valid label key; lengths are limited in bytes",
        "it is called no qualified name; lengths are limited in characters",
    )
