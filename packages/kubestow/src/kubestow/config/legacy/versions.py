"""Conversion of older versions of KubeSchedulerConfiguration to v1.

    v1alpha1 ─► v1alpha2 ─► v1beta1 ─► v1beta2, v1beta3 ─► v1
    profiles    points      scoring    plugins, fields
                            strategies and weights

From v1beta1 on, the field names are those of v1. Removed plugins and fields are omitted with a warning or refused with
what to write instead. Until v1beta2 the default weights of three scores are smaller than in v1; they are set explicitly
so that scores do not change. Until v1beta2 plugins are enabled per extension point; v1 merges such plugin sets into
``multiPoint`` with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.config.configuration import API_VERSION, GROUP
from kubestow.config.decoding import is_list
from kubestow.config.field_errors import FieldError, child
from kubestow.config.legacy.alpha import ReadFile, joined_sets, with_profiles
from kubestow.config.legacy.conversion import STRATEGY_PLUGINS, Conversion, ConversionError, Strategies
from kubestow.config.type_meta import LEGACY_VERSIONS

_ALPHA, _WITH_STRATEGY_PLUGINS, _WITH_SMALL_WEIGHTS = LEGACY_VERSIONS[:3], LEGACY_VERSIONS[:4], LEGACY_VERSIONS[:5]
_FIT = "NodeResourcesFit"

_REMOVED_PLUGINS: Mapping[str, str] = {
    **dict.fromkeys(
        ("SelectorSpread", "DefaultPodTopologySpread"),
        "PodTopologySpread's default constraints spread the pods of a service or controller",
    ),
    "NodePreferAvoidPods": "its annotation is no longer read, use PreferNoSchedule taints instead",
    **dict.fromkeys(
        ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"),
        "these volumes have been migrated to CSI drivers, whose limits NodeVolumeLimits enforces",
    ),
}
_UNSUPPORTED_PLUGINS: Mapping[str, str] = {
    "NodeLabel": "use addedAffinity of NodeAffinity",
    "NodeResourceLimits": "remove it, NodeResourcesFit scores requests, not limits",
    "ServiceAffinity": "use pod affinity or PodTopologySpread",
}
"""Plugins whose effect would be lost, and what to use."""
_EARLIER_POINTS: Mapping[str, Mapping[str, str]] = {
    "componentconfig/v1alpha1": {"postFilter": "preScore", "unreserve": "reserve"},
    f"{GROUP}/v1alpha1": {"postFilter": "preScore", "unreserve": "reserve"},
    f"{GROUP}/v1alpha2": {"unreserve": "reserve"},
}
"""Extension points by the name that they have in v1."""
_REMOVED_FIELDS: Mapping[str, str] = dict.fromkeys(
    ("healthzBindAddress", "metricsBindAddress"), "removed: the secure port (--bind-address, --secure-port) serves this"
)
_SMALL_WEIGHTS: Mapping[str, int] = {"InterPodAffinity": 1, "NodeAffinity": 1, "TaintToleration": 1}
"""The score plugins whose default weight is larger in v1 (2, 2 and 3)."""


def convert_version(data: Mapping[str, Any], read_file: ReadFile | None = None) -> Conversion:
    """Convert the data of an older version to v1. Unknown fields are kept, so that strict decoding reports them.

    ``read_file`` reads a Policy that v1alpha1 names. Raises ConversionError for what has no counterpart in v1.
    """
    version = data["apiVersion"]
    warnings = [FieldError(name, _REMOVED_FIELDS[name]) for name in data if name in _REMOVED_FIELDS]
    is_flat = version in _ALPHA and not data.get("profiles")
    has_policy = False
    if version in _ALPHA:
        algorithm = data.get("algorithmSource")
        has_policy = isinstance(algorithm, Mapping) and "policy" in algorithm
        data = with_profiles(data, warnings, read_file)
    converted = {name: value for name, value in data.items() if name not in _REMOVED_FIELDS}
    converted["apiVersion"] = API_VERSION
    if isinstance(data.get("leaderElection"), Mapping):
        converted["leaderElection"] = _leader_election(data["leaderElection"], warnings)
    profiles = data.get("profiles")
    if version in _WITH_SMALL_WEIGHTS and (profiles is None or profiles == []):
        profiles = [{}]
    if is_list(profiles):
        converter = _ProfileConverter(version, warnings, sets_weights=version in _WITH_SMALL_WEIGHTS and not has_policy)
        converted["profiles"] = [
            converter.convert(profile, "" if is_flat else f"profiles[{index}]")
            if isinstance(profile, Mapping)
            else profile
            for index, profile in enumerate(profiles)
        ]
        if converter.errors:
            raise ConversionError(converter.errors)
    return Conversion(converted, tuple(warnings))


def _leader_election(election: Mapping[str, Any], warnings: list[FieldError]) -> dict[str, Any]:
    lock = election.get("resourceLock", "leases")
    if lock not in ("endpointsleases", "configmapsleases"):
        return dict(election)
    text = f"{lock} is replaced by leases: do not run old and new replicas at the same time"
    warnings.append(FieldError("leaderElection.resourceLock", text))
    return {**election, "resourceLock": "leases"}


class _ProfileConverter:
    """Converts profiles of one version, and collects errors; warnings are appended to a given list."""

    def __init__(self, version: str, warnings: list[FieldError], *, sets_weights: bool) -> None:
        self.errors: list[FieldError] = []
        self._version = version
        self._warnings = warnings
        self._sets_weights = sets_weights

    def convert(self, profile: Mapping[str, Any], path: str) -> dict[str, Any]:
        """The profile in v1; ``path`` is where the text has it."""
        converted = dict(profile)
        plugins = {} if profile.get("plugins") is None else profile["plugins"]
        if isinstance(plugins, Mapping):
            points = _EARLIER_POINTS.get(self._version, {})
            sets: dict[str, Any] = {}
            for point, entries in plugins.items():
                kept = self._without_removed_plugins(entries, child(path, f"plugins.{point}"))
                sets[points.get(point, point)] = joined_sets(sets.get(points.get(point, point)), kept)
            if self._sets_weights:
                _set_default_weights(sets, path, self._warnings)
            converted["plugins"] = sets
        if is_list(profile.get("pluginConfig")):
            configs = profile["pluginConfig"]
            converted["pluginConfig"] = self._plugin_configs(configs, child(path, "pluginConfig"))
        if self._version in _WITH_STRATEGY_PLUGINS and isinstance(plugins, Mapping):
            self._convert_strategies(converted, child(path, "plugins.score"))
        if isinstance(plugins, Mapping):
            sets = {point: entries for point, entries in converted["plugins"].items() if entries not in (None, {})}
            converted["plugins"] = sets
            if not sets and "plugins" not in profile:
                del converted["plugins"]
        return converted

    def _without_removed_plugins(self, plugin_set: Any, path: str) -> Any:
        if not isinstance(plugin_set, Mapping):
            return plugin_set
        kept = {}
        for side, entries in plugin_set.items():
            if not is_list(entries):
                kept[side] = entries
                continue
            remaining = []
            for index, entry in enumerate(entries):
                name, place = _name(entry), f"{child(path, side)}[{index}]"
                if name in _REMOVED_PLUGINS:
                    self._warnings.append(_removed_plugin(name, place))
                elif name in _UNSUPPORTED_PLUGINS and side == "enabled":
                    text = f"{name} is no longer supported: {_UNSUPPORTED_PLUGINS[name]}"
                    self.errors.append(FieldError(place, text))
                elif name not in _UNSUPPORTED_PLUGINS:
                    remaining.append(entry)
            if remaining:
                kept[side] = remaining
        return kept

    def _plugin_configs(self, configs: Sequence[Any], path: str) -> list[Any]:
        kept = []
        for index, config in enumerate(configs):
            name, place = _name(config), f"{path}[{index}]"
            args = config.get("args") if isinstance(config, Mapping) else None
            if name in _REMOVED_PLUGINS:
                self._warnings.append(_removed_plugin(name, place))
            elif name in _UNSUPPORTED_PLUGINS:
                continue
            elif isinstance(args, Mapping) and args.get("apiVersion") in LEGACY_VERSIONS:
                kept.append({**config, "args": {**args, "apiVersion": API_VERSION}})
            else:
                kept.append(config)
        if self._version in _WITH_STRATEGY_PLUGINS:
            _set_defaulting_types(kept)
        return kept

    def _convert_strategies(self, profile: dict[str, Any], path: str) -> None:
        """Replace the score plugins that became strategies by NodeResourcesFit with one strategy."""
        score = profile["plugins"].get("score") or {}
        configs = profile.get("pluginConfig") or []
        if not isinstance(score, Mapping) or not is_list(configs):
            return  # reported by the decoder
        enabled, disabled = score.get("enabled") or [], score.get("disabled") or []
        if not (is_list(enabled) and is_list(disabled)):
            return
        profile["pluginConfig"], args = _split_strategy_args(configs)
        off = {_name(entry) for entry in disabled}
        weights = {} if off & {"*", "NodeResourcesLeastAllocated"} else {"LeastAllocated": 1}
        for entry in enabled:
            if strategy := STRATEGY_PLUGINS.get(_name(entry)):
                weight = entry.get("weight")
                weights[strategy] = weight if isinstance(weight, int) and weight else 1
        strategies = Strategies(weights, args)
        self._warnings += strategies.balance(path, ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated"))
        selected = strategies.selected()
        if len(selected) > 1:
            text = "NodeResourcesFit supports one scoring strategy: disable NodeResourcesLeastAllocated"
            self.errors.append(FieldError(path, text))
            return
        kept = [entry for entry in enabled if _name(entry) not in STRATEGY_PLUGINS]
        still_off = [entry for entry in disabled if _name(entry) not in STRATEGY_PLUGINS]
        if not selected and "*" not in off:
            still_off.append({"name": _FIT})
        for name, weight in selected.items():
            if weight != 1 or "*" in off:
                kept.append({"name": _FIT, "weight": weight})
            if name != "LeastAllocated" or name in args:
                _set_strategy(profile["pluginConfig"], strategies.scoring_strategy(name))
        sides = {"enabled": kept, "disabled": still_off}
        profile["plugins"]["score"] = {side: entries for side, entries in sides.items() if entries}
        if not profile["pluginConfig"]:
            del profile["pluginConfig"]


def _set_defaulting_types(configs: list[Any]) -> None:
    """Until v1beta1, default constraints imply ``defaultingType: List``; v1 requires it."""
    for index, config in enumerate(configs):
        args = config.get("args") if _name(config) == "PodTopologySpread" else None
        if isinstance(args, Mapping) and args.get("defaultConstraints") and not args.get("defaultingType"):
            configs[index] = {**config, "args": {**args, "defaultingType": "List"}}


def _split_strategy_args(configs: Sequence[Any]) -> tuple[list[Any], dict[str, Mapping[str, Any]]]:
    """The arguments of the other plugins, and those of the strategies."""
    kept, args = [], {}
    for config in configs:
        strategy = STRATEGY_PLUGINS.get(_name(config))
        if strategy is None:
            kept.append(config)
        elif isinstance(config.get("args"), Mapping):
            args[strategy] = config["args"]
    return kept, args


def _set_strategy(configs: list[Any], strategy: dict[str, Any]) -> None:
    for index, config in enumerate(configs):
        if _name(config) == _FIT and isinstance(config.get("args") or {}, Mapping):
            configs[index] = {**config, "args": {**(config.get("args") or {}), "scoringStrategy": strategy}}
            return
    configs.append({"name": _FIT, "args": {"scoringStrategy": strategy}})


def _set_default_weights(sets: dict[str, Any], path: str, warnings: list[FieldError]) -> None:
    """Set the v1beta2 default weight of score plugins that the profile does not configure."""
    score = {} if sets.get("score") is None else sets["score"]
    if not isinstance(score, Mapping):
        return  # reported by the decoder
    if not all(score.get(side) is None or is_list(score[side]) for side in ("enabled", "disabled")):
        return
    configured = {_name(entry) for side in ("enabled", "disabled") for entry in score.get(side) or ()}
    defaults = {} if "*" in configured else {n: w for n, w in _SMALL_WEIGHTS.items() if n not in configured}
    if defaults:
        added = [{"name": name, "weight": weight} for name, weight in defaults.items()]
        sets["score"] = {**score, "enabled": [*(score.get("enabled") or ()), *added]}
        text = f"the default weights of v1beta2 are set explicitly: {', '.join(defaults)} (larger in v1)"
        warnings.append(FieldError(child(path, "plugins.score"), text))


def _removed_plugin(name: str, path: str) -> FieldError:
    return FieldError(path, f"{name} is removed: {_REMOVED_PLUGINS[name]}")


def _name(entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return name if isinstance(name, str) else ""
