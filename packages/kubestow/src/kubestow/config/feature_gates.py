"""The feature gates that affect scheduling: stage, default and dependencies of each (semantics 3).

:class:`FeatureGates` is an immutable value: the defaults of Kubernetes 1.36 with overrides. Invalid overrides (an
unknown gate, a locked gate, a gate without its dependencies) are rejected on construction.

The gates of Kubernetes 1.36 that mean nothing to scheduling, of every component, are accepted and have no effect, so
that one ``--feature-gates`` value works for a whole cluster. kube-scheduler accepts the gates that are linked into it.
A gate that is locked cannot be set to the other value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import msgspec

from kubestow.errors import InputError

_MINOR_VERSION = 36
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
    """Each version: the minor version from which it holds, the stage, the default, whether it is locked to it."""

    versions: list[tuple[int, Stage, bool, bool]]
    dependencies: tuple[str, ...] = ()


class _Gates(msgspec.Struct):
    """``feature_gates.json``, which ``tools/schema/feature_gates.py`` generates."""

    scheduling: dict[str, _Gate]
    others: dict[str, _Gate]


def _specs(gates: Mapping[str, _Gate]) -> Mapping[str, FeatureSpec]:
    """The gates that exist in the minor version, each as it is there."""
    specs = {}
    for name, gate in gates.items():
        if versions := [version for version in gate.versions if version[0] <= _MINOR_VERSION]:
            _, stage, default, lock_to_default = versions[-1]
            specs[name] = FeatureSpec(stage, default, lock_to_default, gate.dependencies)
    return MappingProxyType(specs)


_GATES = msgspec.json.decode(_FILE.read_bytes(), type=_Gates)

FEATURE_SPECS = _specs(_GATES.scheduling)
"""Every gate that affects scheduling, by name."""

OTHER_COMPONENT_FEATURES = _specs(_GATES.others)
"""The gates that mean nothing to scheduling, by name."""

NOT_IMPLEMENTED = frozenset(
    {
        "CoordinatedLeaderElection",
        "DRADeviceTaintRules",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAWorkloadResourceClaims",
        "NativeHistograms",
        "OpportunisticBatching",
    }
)
"""The gates of scheduling that have no effect, because what they enable is not implemented."""

_STAGE_OVERRIDES = MappingProxyType({Stage.ALPHA: "AllAlpha", Stage.BETA: "AllBeta"})


class FeatureGates:
    """The state of every gate: the defaults with ``overrides``.

    The overrides "AllAlpha" and "AllBeta" apply to every gate of that stage without an override of its own. Gates of
    other components are accepted and ignored. Raises InputError, naming ``subject``, for invalid overrides.
    """

    __slots__ = ("_enabled",)

    def __init__(self, overrides: Mapping[str, bool] | None = None, *, subject: str = _FLAG) -> None:
        overrides = overrides or {}
        _raise_if(subject, _override_errors(overrides))
        self._enabled = frozenset(name for name, spec in FEATURE_SPECS.items() if _effective(name, spec, overrides))
        unmet = {
            name: " ".join(n for n in FEATURE_SPECS[name].dependencies if n not in self._enabled)
            for name in sorted(self._enabled)
        }
        _raise_if(
            subject,
            [
                f"{name} is enabled, but depends on features that are disabled: [{missing}]"
                for name, missing in unmet.items()
                if missing
            ],
        )

    @classmethod
    def parse(cls, text: str, *, subject: str = _FLAG) -> FeatureGates:
        """Parse the value of ``--feature-gates``: "GangScheduling=true,GenericWorkload=true". Raises InputError."""
        return cls(dict(_parse_assignment(part, subject) for part in text.split(",") if part), subject=subject)

    def enabled(self, name: str) -> bool:
        """Whether a gate is enabled. Raises KeyError for an unknown gate."""
        if name not in FEATURE_SPECS:
            raise KeyError(name)
        return name in self._enabled

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The gates that were enabled although what they enable is not implemented, by name."""
        return tuple(sorted(n for n in self._enabled & NOT_IMPLEMENTED if not FEATURE_SPECS[n].default))

    def __iter__(self) -> Iterator[tuple[str, bool]]:
        """The (name, enabled) pairs of all gates."""
        return ((name, name in self._enabled) for name in FEATURE_SPECS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and self._enabled == other._enabled

    def __hash__(self) -> int:
        return hash(self._enabled)

    def __repr__(self) -> str:
        differing = {
            name: name in self._enabled for name, f in FEATURE_SPECS.items() if f.default != (name in self._enabled)
        }
        return f"FeatureGates({differing})"


def _effective(name: str, feature: FeatureSpec, overrides: Mapping[str, bool]) -> bool:
    group = _STAGE_OVERRIDES.get(feature.stage, name)
    return overrides.get(name, overrides.get(group, feature.default))


def _override_errors(overrides: Mapping[str, bool]) -> list[str]:
    specs = {**FEATURE_SPECS, **OTHER_COMPONENT_FEATURES}
    if unknown := [name for name in overrides if name not in specs and name not in _STAGE_OVERRIDES.values()]:
        return [f"unrecognized feature gate: {name}" for name in unknown]
    return [
        f"cannot set feature gate {name} to {_go_bool(value)}, feature is locked to {_go_bool(not value)}"
        for name, value in overrides.items()
        if name in specs and specs[name].lock_to_default and specs[name].default is not value
    ]


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
