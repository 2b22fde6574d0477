"""Conversion of the scheduler Policy (a file or a ConfigMap, until Kubernetes 1.22) to a v1 configuration.

Each predicate and priority of a Policy corresponds to a plugin. A missing list means the defaults of Kubernetes 1.22,
an empty one means none. Plugins without a predicate or priority are disabled at the extension points where they would
have an effect; plugins without a counterpart in a Policy (scheduling gates, preemption, dynamic resources) stay
enabled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from kubestow.api.formats.duration import Duration
from kubestow.config.configuration import API_VERSION, KIND, Extender, ExtenderTLSConfig
from kubestow.config.decoding import describe_value, is_list
from kubestow.config.field_errors import FieldError, child, invalid
from kubestow.config.legacy.conversion import DEFAULT_SHAPE, Conversion, ConversionError, Strategies

_KNOWN = {
    "apiVersion",
    "kind",
    "predicates",
    "priorities",
    "extenders",
    "hardPodAffinitySymmetricWeight",
    "alwaysCheckAllPredicates",
}
_EXTENDER_FIELDS = tuple(field.encode_name for field in structs.fields(Extender))
_TLS_FIELDS = tuple(field.encode_name for field in structs.fields(ExtenderTLSConfig))

# The names are those of all releases from Kubernetes 1.13 to 1.22.

PREDICATES: Mapping[str, tuple[str, ...]] = {
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
    "MatchNodeSelector": ("NodeAffinity",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "PodFitsResources": ("NodeResourcesFit",),
    "PodToleratesNodeNoExecuteTaints": ("TaintToleration",),
    "PodToleratesNodeTaints": ("TaintToleration",),
}
"""The Filter plugins that implement a predicate."""

MANDATORY_PREDICATES = ("PodToleratesNodeTaints", "CheckNodeUnschedulable")
"""Predicates that apply whether a Policy names them or not."""

DEFAULT_PREDICATES = (
    "NoVolumeZoneConflict",
    "MaxCSIVolumeCountPred",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "GeneralPredicates",
    "CheckVolumeBinding",
    "EvenPodsSpread",
)
"""The predicates of a Policy without a list of predicates, besides the mandatory ones."""

REMOVED_PREDICATES: Mapping[str, str] = {
    **dict.fromkeys(
        ("MaxEBSVolumeCount", "MaxGCEPDVolumeCount", "MaxAzureDiskVolumeCount", "MaxCinderVolumeCount"),
        "these volumes have been migrated to CSI drivers, whose limits NodeVolumeLimits enforces",
    ),
    **dict.fromkeys(
        ("CheckNodeCondition", "CheckNodeMemoryPressure", "CheckNodeDiskPressure", "CheckNodePIDPressure"),
        "node conditions are represented by taints, which TaintToleration checks",
    ),
}
"""Predicates without a plugin, and why they are not needed."""

PRIORITIES: Mapping[str, str] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "TaintTolerationPriority": "TaintToleration",
}
"""The Score plugin that implements a priority. The priorities of the next two constants share a plugin."""

STRATEGIES: Mapping[str, str] = {"LeastRequestedPriority": "LeastAllocated", "MostRequestedPriority": "MostAllocated"}
"""The scoring strategy of NodeResourcesFit that implements a priority."""

EVEN_PODS_SPREAD_PRIORITY = "EvenPodsSpreadPriority"
SELECTOR_SPREAD_PRIORITIES = ("SelectorSpreadPriority", "ServiceSpreadingPriority")
"""Spreading by the pod's own constraints, and by its service or controller: both are PodTopologySpread in v1."""

REMOVED_PRIORITIES: Mapping[str, str] = {
    "EqualPriority": "it gives every node the same score",
    "NodePreferAvoidPodsPriority": "its annotation is no longer read, use PreferNoSchedule taints instead",
}
"""Priorities without a plugin, and why they are not needed."""

DEFAULT_PRIORITIES: Mapping[str, int] = {
    "SelectorSpreadPriority": 1,
    "InterPodAffinityPriority": 1,
    "LeastRequestedPriority": 1,
    "BalancedResourceAllocation": 1,
    "NodeAffinityPriority": 1,
    "TaintTolerationPriority": 1,
    "ImageLocalityPriority": 1,
    EVEN_PODS_SPREAD_PRIORITY: 2,
}
"""The priorities, with weights, of a Policy without a list of priorities."""

FILTER_PLUGINS = tuple(dict.fromkeys(plugin for plugins in PREDICATES.values() for plugin in plugins))
SCORE_PLUGINS = (*PRIORITIES.values(), "NodeResourcesFit", "PodTopologySpread")
"""The plugins that a Policy can select, for Filter and for Score."""

PRE_FILTER_PLUGINS = frozenset({"NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"})
PRE_SCORE_PLUGINS = frozenset(SCORE_PLUGINS) - {"ImageLocality"}
"""Those of the Filter and Score plugins that implement PreFilter, and those of the Score plugins with PreScore."""


def convert_policy(policy: Mapping[str, Any]) -> Conversion:
    """Convert the data of a Policy. Raises ConversionError for predicates and priorities without a plugin."""
    converter = _PolicyConverter()
    converter.convert(policy)
    if converter.errors:
        raise ConversionError(converter.errors)
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": _plugin_sets(converter.filters, converter.scores),
        "pluginConfig": [{"name": name, "args": args} for name, args in sorted(converter.args.items())],
    }
    data: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    data["profiles"] = [{name: value for name, value in profile.items() if value}]
    if converter.extenders:
        data["extenders"] = converter.extenders
    return Conversion(data, tuple(converter.warnings))


class _PolicyConverter:
    """Collects the filter plugins, score plugins with weights, plugin arguments and extenders of a Policy."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[FieldError] = []
        self.filters: set[str] = set()
        self.scores: dict[str, int] = {}
        self.args: dict[str, dict[str, Any]] = {}
        self.extenders: list[dict[str, Any]] = []
        self._spread_priorities: dict[str, int] = {}
        self._strategies = Strategies({}, {})

    def convert(self, policy: Mapping[str, Any]) -> None:
        self._predicates(policy.get("predicates"))
        self._priorities(policy.get("priorities"))
        weight = policy.get("hardPodAffinitySymmetricWeight")
        if isinstance(weight, bool) or weight not in (None, 0):  # which mean the default
            self.args["InterPodAffinity"] = {"hardPodAffinityWeight": weight}
        for entry, path in self._entries(policy.get("extenders"), "extenders"):
            self.extenders.append(self._extender(entry, path))
        if policy.get("alwaysCheckAllPredicates"):
            text = "omitted: Filter always stops at the first plugin that rejects the node"
            self.warnings.append(FieldError("alwaysCheckAllPredicates", text))
        self.errors += [FieldError(str(name), "unknown field of a Policy") for name in policy if name not in _KNOWN]

    def _entries(self, given: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        for index, entry in enumerate(self._list(given, path)):
            place = f"{path}[{index}]"
            if isinstance(entry, Mapping):
                yield entry, place
            else:
                self.errors.append(FieldError(place, f"expected an object, got {describe_value(entry)}"))

    def _list(self, given: Any, path: str) -> Sequence[Any]:
        if given is not None and not is_list(given):
            self.errors.append(FieldError(path, f"expected a list, got {describe_value(given)}"))
            return ()
        return given or ()

    # Predicates ------------------------------------------------------------------------------------------------------

    def _predicates(self, given: Any) -> None:
        for name in (*MANDATORY_PREDICATES, *(DEFAULT_PREDICATES if given is None else ())):
            self.filters.update(PREDICATES[name])
        for entry, path in self._entries(given, "predicates"):
            self._predicate(str(entry.get("name", "")), _argument(entry), path)

    def _predicate(self, name: str, argument: Mapping[str, Any], path: str) -> None:
        if name in PREDICATES:
            self.filters.update(PREDICATES[name])
        elif name in REMOVED_PREDICATES:
            self.warnings.append(FieldError(path, f"{name} is omitted: {REMOVED_PREDICATES[name]}"))
        elif isinstance(argument.get("labelsPresence"), Mapping):
            self._labels_presence(argument["labelsPresence"], f"{path}.argument.labelsPresence")
        elif "serviceAffinity" in argument or name == "CheckServiceAffinity":
            self.errors.append(FieldError(path, "serviceAffinity is no longer supported, use pod affinity instead"))
        elif name == "CheckNodeLabelPresence":
            text = "CheckNodeLabelPresence requires the argument labelsPresence; or use addedAffinity of NodeAffinity"
            self.errors.append(FieldError(path, text))
        else:
            self.errors.append(FieldError(path, f'predicate type not found for "{name}"'))

    def _labels_presence(self, argument: Mapping[str, Any], path: str) -> None:
        """Convert required or forbidden node labels to the addedAffinity of NodeAffinity."""
        labels = self._list(argument.get("labels"), f"{path}.labels")
        operator = "Exists" if argument.get("presence") else "DoesNotExist"
        args = self.args.setdefault("NodeAffinity", {"addedAffinity": {}})
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        selector = args["addedAffinity"].setdefault(required, {"nodeSelectorTerms": [{"matchExpressions": []}]})
        expressions = selector["nodeSelectorTerms"][0]["matchExpressions"]
        expressions += [{"key": label, "operator": operator} for label in labels]
        self.filters.add("NodeAffinity")
        self.warnings.append(FieldError(path, "converted to the addedAffinity of NodeAffinity"))

    # Priorities ------------------------------------------------------------------------------------------------------

    def _priorities(self, given: Any) -> None:
        for name, default in DEFAULT_PRIORITIES.items() if given is None else ():
            self._priority(name, default, {}, "priorities")
        for entry, path in self._entries(given, "priorities"):
            weight: Any = entry.get("weight")
            if isinstance(weight, int) and not isinstance(weight, bool) and weight > 0:
                self._priority(str(entry.get("name", "")), weight, _argument(entry), path)
            else:
                self.errors.append(invalid(f"{path}.weight", weight, "should be a positive integer"))
        self._convert_spread_priorities()
        self._convert_strategies("priorities")

    def _priority(self, name: str, weight: int, argument: Mapping[str, Any], path: str) -> None:
        if name in PRIORITIES:
            self.scores[PRIORITIES[name]] = weight
        elif name in STRATEGIES:
            self._strategies.weights[STRATEGIES[name]] = weight
        elif name == EVEN_PODS_SPREAD_PRIORITY or name in SELECTOR_SPREAD_PRIORITIES:
            self._spread_priorities[name] = weight
        elif name in REMOVED_PRIORITIES:
            self.warnings.append(FieldError(path, f"{name} is omitted: {REMOVED_PRIORITIES[name]}"))
        elif isinstance(argument.get("requestedToCapacityRatioArguments"), Mapping):
            self._set_ratio(weight, argument["requestedToCapacityRatioArguments"])
        elif name == "RequestedToCapacityRatioPriority" and not argument:
            self._set_ratio(weight, {"shape": list(DEFAULT_SHAPE)})
        else:
            self.errors.append(FieldError(path, _unsupported_priority(name, argument)))

    def _set_ratio(self, weight: int, args: Mapping[str, Any]) -> None:
        self._strategies.weights["RequestedToCapacityRatio"] = weight
        self._strategies.args["RequestedToCapacityRatio"] = args

    def _convert_spread_priorities(self) -> None:
        """PodTopologySpread implements both spread priorities; EvenPodsSpreadPriority's weight takes precedence."""
        weights = self._spread_priorities
        if not weights:
            return
        self.scores["PodTopologySpread"] = weights.get(EVEN_PODS_SPREAD_PRIORITY) or max(weights.values())
        by_service = weights.keys() & set(SELECTOR_SPREAD_PRIORITIES)
        self.args["PodTopologySpread"] = {"defaultingType": "System" if by_service else "List"}

    def _convert_strategies(self, path: str) -> None:
        """NodeResourcesFit has one scoring strategy; LeastAllocated and MostAllocated are opposites and cancel out."""
        self.warnings += self._strategies.balance(path, ("LeastRequestedPriority", "MostRequestedPriority"))
        strategies = self._strategies.selected()
        if len(strategies) > 1:
            text = f"NodeResourcesFit supports one scoring strategy, got {' and '.join(sorted(strategies))}"
            self.errors.append(FieldError(path, text))
        for name, weight in strategies.items():
            self.scores["NodeResourcesFit"] = weight
            self.args["NodeResourcesFit"] = {"scoringStrategy": self._strategies.scoring_strategy(name)}

    # Extenders -------------------------------------------------------------------------------------------------------

    def _extender(self, entry: Mapping[str, Any], path: str) -> dict[str, Any]:
        """Convert an extender: a Policy's field names are case-insensitive, its timeout is in nanoseconds."""
        extender = self._canonical_fields(entry, _EXTENDER_FIELDS, path)
        tls = extender.get("tlsConfig")
        if isinstance(tls, Mapping):
            extender["tlsConfig"] = self._canonical_fields(tls, _TLS_FIELDS, child(path, "tlsConfig"))
        timeout = extender.get("httpTimeout")
        if isinstance(timeout, int) and not isinstance(timeout, bool):
            extender["httpTimeout"] = str(Duration(timeout))
        return extender

    def _canonical_fields(self, given: Mapping[str, Any], fields: Sequence[str], path: str) -> dict[str, Any]:
        by_lower_case = {field.lower(): field for field in fields}
        canonical = {}
        for name, value in given.items():
            field = by_lower_case.get(str(name).lower())
            if field is None:
                self.errors.append(FieldError(child(path, str(name)), "unknown field of an extender"))
            else:
                canonical[field] = value
        return canonical


def _argument(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    argument = entry.get("argument")
    return argument if isinstance(argument, Mapping) else {}


def _unsupported_priority(name: str, argument: Mapping[str, Any]) -> str:
    if name == "ResourceLimitsPriority":
        return "ResourceLimitsPriority is no longer supported: remove it, NodeResourcesFit scores requests, not limits"
    if "labelPreference" in argument or name == "NodeLabelPriority":
        return "labelPreference is no longer supported, consider a preferred addedAffinity of NodeAffinity"
    if "serviceAntiAffinity" in argument or name == "ServiceAntiAffinityPriority":
        return "serviceAntiAffinity is no longer supported, use PodTopologySpread instead"
    return f'priority type not found for "{name}"'


def _plugin_sets(filters: set[str], scores: Mapping[str, int]) -> dict[str, Any]:
    """The plugin sets that enable exactly these filter and score plugins among those that a Policy can select."""
    disabled: dict[str, list[str]] = {}
    for name in dict.fromkeys((*FILTER_PLUGINS, *SCORE_PLUGINS)):
        if name not in filters and name not in scores:
            disabled.setdefault("multiPoint", []).append(name)
            continue
        if name in FILTER_PLUGINS and name not in filters:
            _disable(disabled, name, "filter", "preFilter", PRE_FILTER_PLUGINS)
        if name in SCORE_PLUGINS and name not in scores:
            _disable(disabled, name, "score", "preScore", PRE_SCORE_PLUGINS)
    sets: dict[str, Any] = {
        point: {"disabled": [{"name": name} for name in names]} for point, names in disabled.items()
    }
    if scores:
        enabled = [{"name": name, "weight": scores[name]} for name in SCORE_PLUGINS if name in scores]
        sets["score"] = {"enabled": enabled} | sets.get("score", {})
    return sets


def _disable(
    disabled: dict[str, list[str]], name: str, point: str, pre_point: str, pre_point_plugins: frozenset[str]
) -> None:
    disabled.setdefault(point, []).append(name)
    if name in pre_point_plugins:
        disabled.setdefault(pre_point, []).append(name)
