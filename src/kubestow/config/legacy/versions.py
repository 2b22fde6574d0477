"""KubeSchedulerConfiguration v1beta2 and v1beta3, as v1.

Both are spelled like v1. Three things differ: plugins that are gone, fields that are gone, and in v1beta2 the default
weights of three scores, which are written out so that nodes are ranked as before. In v1beta2 a plugin was enabled point
by point; v1 reads such sets the same way, over the plugins that ``multiPoint`` enables everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP
from kubestow.config.field_problems import Problem, child
from kubestow.config.legacy.conversion import Conversion

__all__ = ["OLD_VERSIONS", "convert_version"]

_V1BETA2 = f"{GROUP}/v1beta2"
OLD_VERSIONS = (_V1BETA2, f"{GROUP}/v1beta3")

_GONE_PLUGINS: Mapping[str, str] = MappingProxyType(
    {
        "SelectorSpread": "PodTopologySpread's default constraints spread the pods of a service or controller",
        **dict.fromkeys(
            ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"),
            "such volumes are served by CSI drivers, which NodeVolumeLimits counts",
        ),
    }
)
_GONE_FIELDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("healthzBindAddress", "metricsBindAddress"),
        "removed: the secure port (--bind-address, --secure-port) serves this",
    )
)
_WEIGHTS_OF_V1BETA2: Mapping[str, int] = MappingProxyType(
    {"InterPodAffinity": 1, "NodeAffinity": 1, "TaintToleration": 1}
)
"""The scores whose default weight has grown since (to 2, 2 and 3)."""


def convert_version(data: Mapping[str, Any]) -> Conversion:
    """The v1 form of the data of an older version. What is not recognised stays, for v1's own decoding to refuse."""
    remarks = [Problem(name, _GONE_FIELDS[name]) for name in data if name in _GONE_FIELDS]
    converted = {name: value for name, value in data.items() if name not in _GONE_FIELDS}
    converted["apiVersion"] = API_VERSION
    if isinstance(data.get("leaderElection"), Mapping):
        converted["leaderElection"] = _leader_election(data["leaderElection"], remarks)
    was_v1beta2 = data["apiVersion"] == _V1BETA2
    profiles = data.get("profiles") or ([{}] if was_v1beta2 else [])
    if isinstance(profiles, Sequence) and profiles:
        converted["profiles"] = [
            _profile(profile, was_v1beta2, f"profiles[{index}]", remarks) if isinstance(profile, Mapping) else profile
            for index, profile in enumerate(profiles)
        ]
    return Conversion(converted, tuple(remarks))


def _leader_election(election: Mapping[str, Any], remarks: list[Problem]) -> dict[str, Any]:
    lock = election.get("resourceLock", "leases")
    if lock not in ("endpointsleases", "configmapsleases"):
        return dict(election)
    remarks.append(
        Problem("leaderElection.resourceLock", f"{lock} is now leases: replicas of old and new must not overlap")
    )
    return {**election, "resourceLock": "leases"}


def _profile(profile: Mapping[str, Any], was_v1beta2: bool, path: str, remarks: list[Problem]) -> dict[str, Any]:
    converted = dict(profile)
    plugins = profile.get("plugins") or {}
    if isinstance(plugins, Mapping):
        sets = {point: _without_gone(entries, f"{path}.plugins.{point}", remarks) for point, entries in plugins.items()}
        if was_v1beta2:
            _keep_weights(sets, path, remarks)
        sets = {point: entries for point, entries in sets.items() if entries}
        if sets or "plugins" in profile:
            converted["plugins"] = sets
    configs = profile.get("pluginConfig")
    if isinstance(configs, Sequence):
        converted["pluginConfig"] = _plugin_configs(configs, f"{path}.pluginConfig", remarks)
    return converted


def _without_gone(plugin_set: Any, path: str, remarks: list[Problem]) -> Any:
    if not isinstance(plugin_set, Mapping):
        return plugin_set
    kept = {}
    for side, entries in plugin_set.items():
        if not isinstance(entries, Sequence):
            kept[side] = entries
            continue
        remain = []
        for index, entry in enumerate(entries):
            if _name(entry) in _GONE_PLUGINS:
                remarks.append(_gone(_name(entry), f"{child(path, side)}[{index}]"))
            else:
                remain.append(entry)
        if remain:
            kept[side] = remain
    return kept


def _plugin_configs(configs: Sequence[Any], path: str, remarks: list[Problem]) -> list[Any]:
    kept = []
    for index, config in enumerate(configs):
        if _name(config) in _GONE_PLUGINS:
            remarks.append(_gone(_name(config), f"{path}[{index}]"))
        else:
            kept.append(_with_new_version(config))
    return kept


def _with_new_version(config: Any) -> Any:
    args = config.get("args") if isinstance(config, Mapping) else None
    if not isinstance(args, Mapping) or args.get("apiVersion") not in OLD_VERSIONS:
        return config
    return {**config, "args": {**args, "apiVersion": API_VERSION}}


def _keep_weights(sets: dict[str, Any], path: str, remarks: list[Problem]) -> None:
    """Give the scores whose default weight has grown their old one, where the profile leaves them at the default."""
    score = sets.get("score") or {}
    if not isinstance(score, Mapping):
        return
    settled = {_name(entry) for side in ("enabled", "disabled") for entry in score.get(side) or ()}
    kept = {} if "*" in settled else {n: w for n, w in _WEIGHTS_OF_V1BETA2.items() if n not in settled}
    if kept:
        added = [{"name": name, "weight": weight} for name, weight in kept.items()]
        sets["score"] = {**score, "enabled": [*(score.get("enabled") or ()), *added]}
        text = f"the default weights of v1beta2 are written out: {', '.join(kept)} (larger in v1)"
        remarks.append(Problem(f"{path}.plugins.score", text))


def _gone(name: str, path: str) -> Problem:
    return Problem(path, f"{name} is gone: {_GONE_PLUGINS[name]}")


def _name(entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""
