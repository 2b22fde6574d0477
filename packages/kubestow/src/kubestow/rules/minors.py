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

    # Queue and events

    # Nomination, preemption and binding

    # Configuration
