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
    SCORES_DEVICE_ALTERNATIVES = Rule(
        35,
        "DynamicResources",
        "Score, with weight 2, prefers nodes on which earlier alternatives of firstAvailable requests are used",
        "the plugin has no Score",
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

    CAPACITY_OF_THE_DEVICE_ITSELF_IS_CHECKED = Rule(
        35,
        "DynamicResources",
        "before a device is allocated its own remaining capacity is checked again",
        "that of the slice's n-th device is, for the n-th device of a request",
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

    # Nomination, preemption and binding

    # Configuration
