"""Conversion of KubeSchedulerConfiguration v1beta2 and v1beta3 to v1.

The field names are those of v1. Three things differ: removed plugins, removed fields, and in v1beta2 the default
weights of three scores, which are set explicitly so that scores do not change. v1beta2 enables plugins per extension
point; v1 merges such plugin sets into ``multiPoint`` with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP
from kubestow.config.field_errors import FieldError, child
from kubestow.config.legacy.conversion import Conversion

__all__ = ["LEGACY_VERSIONS", "convert_version"]

_V1BETA2 = f"{GROUP}/v1beta2"
LEGACY_VERSIONS = (_V1BETA2, f"{GROUP}/v1beta3")

_REMOVED_PLUGINS: Mapping[str, str] = MappingProxyType(
    {
        "SelectorSpread": "PodTopologySpread's default constraints spread the pods of a service or controller",
        **dict.fromkeys(
            ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"),
            "these volumes have been migrated to CSI drivers, whose limits NodeVolumeLimits enforces",
        ),
    }
)
_REMOVED_FIELDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("healthzBindAddress", "metricsBindAddress"),
        "removed: the secure port (--bind-address, --secure-port) serves this",
    )
)
_V1BETA2_WEIGHTS: Mapping[str, int] = MappingProxyType({"InterPodAffinity": 1, "NodeAffinity": 1, "TaintToleration": 1})
"""The score plugins whose default weight is larger in v1 (2, 2 and 3)."""


def convert_version(data: Mapping[str, Any]) -> Conversion:
    """Convert the data of an older version to v1. Unknown fields are kept, so that strict decoding reports them."""
    warnings = [FieldError(name, _REMOVED_FIELDS[name]) for name in data if name in _REMOVED_FIELDS]
    converted = {name: value for name, value in data.items() if name not in _REMOVED_FIELDS}
    converted["apiVersion"] = API_VERSION
    if isinstance(data.get("leaderElection"), Mapping):
        converted["leaderElection"] = _leader_election(data["leaderElection"], warnings)
    is_v1beta2 = data["apiVersion"] == _V1BETA2
    profiles = data.get("profiles") or ([{}] if is_v1beta2 else [])
    if isinstance(profiles, Sequence) and profiles:
        converted["profiles"] = [
            _profile(profile, is_v1beta2, f"profiles[{index}]", warnings) if isinstance(profile, Mapping) else profile
            for index, profile in enumerate(profiles)
        ]
    return Conversion(converted, tuple(warnings))


def _leader_election(election: Mapping[str, Any], warnings: list[FieldError]) -> dict[str, Any]:
    lock = election.get("resourceLock", "leases")
    if lock not in ("endpointsleases", "configmapsleases"):
        return dict(election)
    warnings.append(
        FieldError(
            "leaderElection.resourceLock",
            f"{lock} is replaced by leases: do not run old and new replicas at the same time",
        )
    )
    return {**election, "resourceLock": "leases"}


def _profile(profile: Mapping[str, Any], is_v1beta2: bool, path: str, warnings: list[FieldError]) -> dict[str, Any]:
    converted = dict(profile)
    plugins = profile.get("plugins") or {}
    if isinstance(plugins, Mapping):
        sets = {
            point: _without_removed_plugins(entries, f"{path}.plugins.{point}", warnings)
            for point, entries in plugins.items()
        }
        if is_v1beta2:
            _set_default_weights(sets, path, warnings)
        sets = {point: entries for point, entries in sets.items() if entries}
        if sets or "plugins" in profile:
            converted["plugins"] = sets
    configs = profile.get("pluginConfig")
    if isinstance(configs, Sequence):
        converted["pluginConfig"] = _plugin_configs(configs, f"{path}.pluginConfig", warnings)
    return converted


def _without_removed_plugins(plugin_set: Any, path: str, warnings: list[FieldError]) -> Any:
    if not isinstance(plugin_set, Mapping):
        return plugin_set
    kept = {}
    for side, entries in plugin_set.items():
        if not isinstance(entries, Sequence):
            kept[side] = entries
            continue
        remaining = []
        for index, entry in enumerate(entries):
            if _name(entry) in _REMOVED_PLUGINS:
                warnings.append(_removed_plugin(_name(entry), f"{child(path, side)}[{index}]"))
            else:
                remaining.append(entry)
        if remaining:
            kept[side] = remaining
    return kept


def _plugin_configs(configs: Sequence[Any], path: str, warnings: list[FieldError]) -> list[Any]:
    kept = []
    for index, config in enumerate(configs):
        if _name(config) in _REMOVED_PLUGINS:
            warnings.append(_removed_plugin(_name(config), f"{path}[{index}]"))
        else:
            kept.append(_with_v1_version(config))
    return kept


def _with_v1_version(config: Any) -> Any:
    args = config.get("args") if isinstance(config, Mapping) else None
    if not isinstance(args, Mapping) or args.get("apiVersion") not in LEGACY_VERSIONS:
        return config
    return {**config, "args": {**args, "apiVersion": API_VERSION}}


def _set_default_weights(sets: dict[str, Any], path: str, warnings: list[FieldError]) -> None:
    """Set the v1beta2 default weight of score plugins that the profile does not configure."""
    score = sets.get("score") or {}
    if not isinstance(score, Mapping):
        return
    configured = {_name(entry) for side in ("enabled", "disabled") for entry in score.get(side) or ()}
    defaults = {} if "*" in configured else {n: w for n, w in _V1BETA2_WEIGHTS.items() if n not in configured}
    if defaults:
        added = [{"name": name, "weight": weight} for name, weight in defaults.items()]
        sets["score"] = {**score, "enabled": [*(score.get("enabled") or ()), *added]}
        text = f"the default weights of v1beta2 are set explicitly: {', '.join(defaults)} (larger in v1)"
        warnings.append(FieldError(f"{path}.plugins.score", text))


def _removed_plugin(name: str, path: str) -> FieldError:
    return FieldError(path, f"{name} is removed: {_REMOVED_PLUGINS[name]}")


def _name(entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""
