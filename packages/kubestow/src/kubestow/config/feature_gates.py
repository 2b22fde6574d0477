"""The feature gates that affect scheduling: stage, default and dependencies of each (semantics 3).

:class:`FeatureGates` is an immutable value: the defaults of a minor version of Kubernetes with overrides. Invalid
overrides (an unknown gate, a locked gate, a gate without its dependencies) are rejected on construction. What a gate
is in each minor version, and whether it exists there, comes from Kubernetes' own lists (``feature_gates.json``).

The gates that mean nothing to scheduling, of every component, are accepted and have no effect, so that one
``--feature-gates`` value works for a whole cluster. kube-scheduler accepts the gates that are linked into it. A gate
that is locked cannot be set to the other value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec

from kubestow.errors import InputError
from kubestow.rules.minors import DEFAULT_MINOR, OLDEST, Behaviour, Minor

_FILE = Path(__file__).with_name("feature_gates.json")
_FLAG = "--feature-gates"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Stage(StrEnum):
    """The maturity of a feature (``prerelease`` in component-base)."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


class FeatureSpec(msgspec.Struct, frozen=True):
    """A gate: its stage, its default, whether it is locked to the default, and the gates it depends on."""

    stage: Stage
    default: bool
    lock_to_default: bool = False
    dependencies: tuple[str, ...] = ()


class _Gate(msgspec.Struct):
    """Each version: the minor version from which it holds, the stage, the default, whether it is locked to it.

    ``removed`` is the first minor version without the gate, if one has removed it. What it enabled then belongs to
    another gate, ``successor``, or is always there if the gate was locked to be on.
    """

    versions: list[tuple[int, Stage, bool, bool]]
    removed: int | None = None
    successor: str = ""
    dependencies: tuple[str, ...] = ()

    def at(self, minor: Minor) -> FeatureSpec | None:
        """The gate as it is in a minor version; None if that does not have it."""
        versions = [version for version in self.versions if version[0] <= minor.number]
        if not versions or self.is_removed(minor):
            return None
        _, stage, default, lock_to_default = versions[-1]
        return FeatureSpec(stage, default, lock_to_default, self.dependencies)

    def is_removed(self, minor: Minor) -> bool:
        """Whether a minor version no longer has the gate."""
        return self.removed is not None and minor.number >= self.removed

    @property
    def has_graduated(self) -> bool:
        """Whether it was locked to be on in the last version that had it."""
        _, _, default, lock_to_default = self.versions[-1]
        return default and lock_to_default


class _Gates(msgspec.Struct):
    """``feature_gates.json``, which ``tools/schema/feature_gates.py`` generates."""

    scheduling: dict[str, _Gate]
    others: dict[str, _Gate]


_GATES = msgspec.json.decode(_FILE.read_bytes(), type=_Gates)


@cache
def feature_specs(minor: Minor = DEFAULT_MINOR) -> Mapping[str, FeatureSpec]:
    """Every gate of a minor version that affects scheduling, by name, as it is there."""
    return _specs(_GATES.scheduling, minor)


@cache
def other_component_features(minor: Minor = DEFAULT_MINOR) -> Mapping[str, FeatureSpec]:
    """The gates of a minor version that mean nothing to scheduling, by name."""
    return _specs(_GATES.others, minor)


def _specs(gates: Mapping[str, _Gate], minor: Minor) -> Mapping[str, FeatureSpec]:
    specs = ((name, gate.at(minor)) for name, gate in gates.items())
    return MappingProxyType({name: spec for name, spec in specs if spec is not None})


@cache
def gate_history(name: str) -> tuple[Minor | None, Minor | None]:
    """The minor versions that brought and that removed a gate of any component.

    None for a gate that the oldest minor version has or that none has, and for one that the newest has.
    """
    gate = _GATES.scheduling.get(name) or _GATES.others.get(name)
    if gate is None:
        return None, None
    brought, removed = gate.versions[0][0], gate.removed
    return (
        Minor(brought) if brought > OLDEST.number else None,
        Minor(removed) if removed is not None else None,
    )


def storage_capacity_gate(minor: Minor) -> str:
    """The gate of a minor version with which VolumeBinding scores nodes by the capacity of storage."""
    scores_provisioning = minor.has(Behaviour.CAPACITY_TO_PROVISION_IS_SCORED)
    return "StorageCapacityScoring" if scores_provisioning else "VolumeCapacityPriority"


def device_taint_rules_gate(has: Callable[[Behaviour], bool]) -> str:
    """The gate with which DeviceTaintRules count, in a minor version that ``has`` certain behaviours."""
    return "DRADeviceTaintRules" if has(Behaviour.DEVICE_TAINT_RULES_HAVE_A_GATE) else "DRADeviceTaints"


NOT_IMPLEMENTED = frozenset(
    {
        "CoordinatedLeaderElection",
        "DRAControlPlaneController",
        "DRADerivedAttributes",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "InPlacePodVerticalScalingSchedulerPreemption",
        "NativeHistograms",
        "OpportunisticBatching",
    }
)
"""The gates of scheduling that have no effect, because what they enable is not implemented."""

_STAGE_OVERRIDES = MappingProxyType({Stage.ALPHA: "AllAlpha", Stage.BETA: "AllBeta"})


class FeatureGates:
    """The state of every gate of a ``minor`` version: the defaults with ``overrides``.

    The overrides "AllAlpha" and "AllBeta" apply to every gate of that stage without an override of its own. Gates of
    other components are accepted and ignored. Raises InputError, naming ``subject``, for invalid overrides.
    """

    __slots__ = ("_enabled", "_overrides", "_subject", "minor")

    def __init__(
        self, overrides: Mapping[str, bool] | None = None, *, minor: Minor = DEFAULT_MINOR, subject: str = _FLAG
    ) -> None:
        overrides = overrides or {}
        _raise_if(subject, _override_errors(overrides, minor))
        self._overrides, self._subject = overrides, subject
        #: The minor version that is emulated.
        self.minor = minor
        self._enabled = frozenset(name for name, spec in self._specs.items() if _effective(name, spec, overrides))
        if minor.has(Behaviour.GATES_NEED_THEIR_DEPENDENCIES):
            _raise_if(subject, self._dependency_errors())

    @classmethod
    def parse(cls, text: str, *, minor: Minor = DEFAULT_MINOR, subject: str = _FLAG) -> FeatureGates:
        """Parse the value of ``--feature-gates``: "GangScheduling=true,GenericWorkload=true". Raises InputError."""
        overrides = dict(_parse_assignment(part, subject) for part in text.split(",") if part)
        return cls(overrides, minor=minor, subject=subject)

    def emulating(self, minor: Minor) -> FeatureGates:
        """The gates of another minor version with the same overrides. Raises InputError for those that it rejects."""
        return self if minor == self.minor else FeatureGates(self._overrides, minor=minor, subject=self._subject)

    def enabled(self, name: str) -> bool:
        """Whether what a gate enables is in effect; False for a gate that the minor version does not have yet.

        Without the gate, because it was removed, its successor counts, or whether it was locked to be on. Raises
        KeyError for a gate that no minor version has.
        """
        gate = _GATES.scheduling[name]
        if gate.is_removed(self.minor):
            return gate.successor in self._enabled if gate.successor else gate.has_graduated
        return name in self._enabled

    def switched(self, name: str, *, on: bool) -> FeatureGates:
        """These gates with one that is on or off, even if it is locked or others depend on it.

        To find out what a gate is the cause of; nothing may be configured so.
        """
        switched = FeatureGates(minor=self.minor)
        switched._enabled = self._enabled | {name} if on else self._enabled - {name}
        return switched

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The gates that were enabled although what they enable is not implemented, by name."""
        return tuple(sorted(n for n in self._enabled & NOT_IMPLEMENTED if not self._specs[n].default))

    def _dependency_errors(self) -> list[str]:
        unmet = {
            name: " ".join(n for n in self._specs[name].dependencies if n in self._specs and n not in self._enabled)
            for name in sorted(self._enabled)
        }
        return [
            f"{name} is enabled, but depends on features that are disabled: [{missing}]"
            for name, missing in unmet.items()
            if missing
        ]

    @property
    def _specs(self) -> Mapping[str, FeatureSpec]:
        return feature_specs(self.minor)

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """The (name, enabled) pairs of all gates."""
        return ((name, name in self._enabled) for name in self._specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and (self.minor, self._enabled) == (other.minor, other._enabled)

    def __hash__(self) -> int:
        return hash((self.minor, self._enabled))

    def __repr__(self) -> str:
        differing = {
            name: name in self._enabled for name, f in self._specs.items() if f.default != (name in self._enabled)
        }
        return f"FeatureGates({differing}, minor={self.minor})"


def _effective(name: str, feature: FeatureSpec, overrides: Mapping[str, bool]) -> bool:
    group = _STAGE_OVERRIDES.get(feature.stage, name)
    return overrides.get(name, overrides.get(group, feature.default))


def _override_errors(overrides: Mapping[str, bool], minor: Minor) -> list[str]:
    specs = {**feature_specs(minor), **other_component_features(minor)}
    if unknown := [name for name in overrides if name not in specs and name not in _STAGE_OVERRIDES.values()]:
        return [f"unrecognized feature gate: {name}{_elsewhere(name, minor)}" for name in unknown]
    return [
        f"cannot set feature gate {name} to {_go_bool(value)}, feature is locked to {_go_bool(not value)}"
        for name, value in overrides.items()
        if name in specs and specs[name].lock_to_default and specs[name].default is not value
    ]


def _elsewhere(name: str, minor: Minor) -> str:
    """Which minor versions have a gate that this one does not know, as the end of its error."""
    brought, removed = gate_history(name)
    if brought is not None and minor.number < brought.number:
        return f", known since {brought}"
    return "" if removed is None else f", removed in {removed}"


def _parse_assignment(part: str, subject: str) -> tuple[str, bool]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise InputError(subject, f"missing bool value for {name}")
    if value not in _TRUE | _FALSE:
        raise InputError(subject, f"invalid value of {name}={value}, expected true or false")
    return name, value in _TRUE


def _raise_if(subject: str, errors: list[str]) -> None:
    if errors:
        raise InputError(subject, "; ".join(errors))


def _go_bool(value: bool) -> str:
    return "true" if value else "false"
