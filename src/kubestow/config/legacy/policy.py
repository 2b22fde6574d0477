"""The scheduler Policy (a file or a ConfigMap, until Kubernetes 1.22), as a v1 configuration.

Each predicate and priority that a Policy names is the work of a plugin today. A list that is left out means the
defaults of then, an empty one means none. What a Policy leaves out is disabled at just the points where the plugin
would have an effect; what did not exist then (scheduling gates, preemption as a plugin, devices) stays enabled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from kubestow.api.duration import Duration
from kubestow.config.configuration import API_VERSION, KIND, Extender, ExtenderTLSConfig
from kubestow.config.decoding import described
from kubestow.config.field_problems import Problem, child, invalid
from kubestow.config.legacy.conversion import Conversion, Inexpressible
from kubestow.config.legacy.policy_names import (
    DEFAULT_PREDICATES,
    DEFAULT_PRIORITIES,
    EVEN_SPREADING,
    FILTERS,
    GONE_PREDICATES,
    GONE_PRIORITIES,
    MANDATORY_PREDICATES,
    PRE_FILTERS,
    PRE_SCORES,
    PREDICATES,
    PRIORITIES,
    SCORES,
    SELECTOR_SPREADING,
    STRATEGIES,
)

__all__ = ["convert_policy"]

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


def convert_policy(policy: Mapping[str, Any]) -> Conversion:
    """The v1 configuration of a Policy's data. Raises Inexpressible for what plugins of today cannot do."""
    reading = _Reading()
    reading.read(policy)
    if reading.problems:
        raise Inexpressible(reading.problems)
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": _plugin_sets(reading.filters, reading.scores),
        "pluginConfig": [{"name": name, "args": args} for name, args in sorted(reading.args.items())],
    }
    data: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    data["profiles"] = [{name: value for name, value in profile.items() if value}]
    if reading.extenders:
        data["extenders"] = reading.extenders
    return Conversion(data, tuple(reading.remarks))


class _Reading:
    """What a Policy comes to: plugins that filter, plugins that score with their weight, arguments, extenders."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.remarks: list[Problem] = []
        self.filters: set[str] = set()
        self.scores: dict[str, int] = {}
        self.args: dict[str, dict[str, Any]] = {}
        self.extenders: list[dict[str, Any]] = []
        self._spreading: dict[str, int] = {}
        self._strategies: dict[str, int] = {}
        self._ratio: Mapping[str, Any] | None = None

    def read(self, policy: Mapping[str, Any]) -> None:
        self._predicates(policy.get("predicates"))
        self._priorities(policy.get("priorities"))
        self._hard_affinity(policy.get("hardPodAffinitySymmetricWeight") or 0)
        for entry, path in self._entries(policy.get("extenders"), "extenders"):
            self.extenders.append(self._extender(entry, path))
        if policy.get("alwaysCheckAllPredicates"):
            self.remarks.append(
                Problem("alwaysCheckAllPredicates", "left out: the first filter to refuse a node says why")
            )
        self.problems += [Problem(str(name), "unknown field of a Policy") for name in policy if name not in _KNOWN]

    def _entries(self, given: Any, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
        if given is not None and (not isinstance(given, Sequence) or isinstance(given, str)):
            self.problems.append(Problem(path, f"expected a list, got {described(given)}"))
            return
        for index, entry in enumerate(given or ()):
            place = f"{path}[{index}]"
            if isinstance(entry, Mapping):
                yield entry, place
            else:
                self.problems.append(Problem(place, f"expected an object, got {described(entry)}"))

    # Predicates ------------------------------------------------------------------------------------------------------

    def _predicates(self, given: Any) -> None:
        for name in (*MANDATORY_PREDICATES, *(DEFAULT_PREDICATES if given is None else ())):
            self.filters.update(PREDICATES[name])
        for entry, path in self._entries(given, "predicates"):
            self._predicate(str(entry.get("name", "")), _argument(entry), path)

    def _predicate(self, name: str, argument: Mapping[str, Any], path: str) -> None:
        if name in PREDICATES:
            self.filters.update(PREDICATES[name])
        elif name in GONE_PREDICATES:
            self.remarks.append(Problem(path, f"{name} is left out: {GONE_PREDICATES[name]}"))
        elif isinstance(argument.get("labelsPresence"), Mapping):
            self._labels_presence(argument["labelsPresence"], f"{path}.argument.labelsPresence")
        elif "serviceAffinity" in argument:
            self.problems.append(Problem(path, "serviceAffinity has no plugin any more; a pod affinity says the same"))
        else:
            self.problems.append(Problem(path, f'predicate type not found for "{name}"'))

    def _labels_presence(self, argument: Mapping[str, Any], path: str) -> None:
        """Labels that nodes must have, or must not: that is the affinity which NodeAffinity adds to every pod's."""
        operator = "Exists" if argument.get("presence") else "DoesNotExist"
        args = self.args.setdefault("NodeAffinity", {"addedAffinity": {}})
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        selector = args["addedAffinity"].setdefault(required, {"nodeSelectorTerms": [{"matchExpressions": []}]})
        expressions = selector["nodeSelectorTerms"][0]["matchExpressions"]
        expressions += [{"key": label, "operator": operator} for label in argument.get("labels") or ()]
        self.filters.add("NodeAffinity")
        self.remarks.append(Problem(path, "has become the addedAffinity of NodeAffinity"))

    # Priorities ------------------------------------------------------------------------------------------------------

    def _priorities(self, given: Any) -> None:
        for name, default in DEFAULT_PRIORITIES.items() if given is None else ():
            self._priority(name, default, {}, "priorities")
        for entry, path in self._entries(given, "priorities"):
            weight: Any = entry.get("weight")
            if isinstance(weight, int) and not isinstance(weight, bool) and weight > 0:
                self._priority(str(entry.get("name", "")), weight, _argument(entry), path)
            else:
                self.problems.append(invalid(f"{path}.weight", weight, "should be a positive integer"))
        self._settle_spreading()
        self._settle_strategy("priorities")

    def _priority(self, name: str, weight: int, argument: Mapping[str, Any], path: str) -> None:
        if name in PRIORITIES:
            self.scores[PRIORITIES[name]] = weight
        elif name in STRATEGIES:
            self._strategies[STRATEGIES[name]] = weight
        elif name == EVEN_SPREADING or name in SELECTOR_SPREADING:
            self._spreading[name] = weight
        elif name in GONE_PRIORITIES:
            self.remarks.append(Problem(path, f"{name} is left out: {GONE_PRIORITIES[name]}"))
        elif isinstance(argument.get("requestedToCapacityRatioArguments"), Mapping):
            self._ratio = argument["requestedToCapacityRatioArguments"]
            self._strategies["RequestedToCapacityRatio"] = weight
        else:
            self.problems.append(Problem(path, _why_not_a_priority(name, argument)))

    def _settle_spreading(self) -> None:
        """One plugin spreads by constraints and by service; where both are asked for, the former's weight counts."""
        if not self._spreading:
            return
        self.scores["PodTopologySpread"] = self._spreading.get(EVEN_SPREADING) or max(self._spreading.values())
        by_service = self._spreading.keys() & set(SELECTOR_SPREADING)
        self.args["PodTopologySpread"] = {"defaultingType": "System" if by_service else "List"}

    def _settle_strategy(self, path: str) -> None:
        """NodeResourcesFit scores by one strategy; the least and the most allocated are each other's opposite."""
        least, most = self._strategies.get("LeastAllocated", 0), self._strategies.get("MostAllocated", 0)
        if least and most:
            text = f"LeastRequestedPriority ({least}) and MostRequestedPriority ({most}) work against each other"
            self.remarks.append(Problem(path, f"{text}: what is left is the difference of their weights"))
            self._strategies["LeastAllocated"] = max(least - most, 0)
            self._strategies["MostAllocated"] = max(most - least, 0)
        strategies = {name: weight for name, weight in self._strategies.items() if weight}
        if len(strategies) > 1:
            self.problems.append(
                Problem(path, f"NodeResourcesFit scores by one strategy, not by {_listed(strategies)}")
            )
        for name, weight in strategies.items():
            self.scores["NodeResourcesFit"] = weight
            self.args["NodeResourcesFit"] = {"scoringStrategy": _strategy(name, self._ratio or {})}

    def _hard_affinity(self, weight: int) -> None:
        if weight:
            self.args["InterPodAffinity"] = {"hardPodAffinityWeight": weight}

    # Extenders -------------------------------------------------------------------------------------------------------

    def _extender(self, entry: Mapping[str, Any], path: str) -> dict[str, Any]:
        """An extender in the spelling of v1: a Policy's was read without regard to case, its timeout in nanoseconds."""
        extender = self._spelled(entry, _EXTENDER_FIELDS, path)
        tls = extender.get("tlsConfig")
        if isinstance(tls, Mapping):
            extender["tlsConfig"] = self._spelled(tls, _TLS_FIELDS, child(path, "tlsConfig"))
        timeout = extender.get("httpTimeout")
        if isinstance(timeout, int) and not isinstance(timeout, bool):
            extender["httpTimeout"] = str(Duration(timeout))
        return extender

    def _spelled(self, given: Mapping[str, Any], fields: Sequence[str], path: str) -> dict[str, Any]:
        by_folded = {field.lower(): field for field in fields}
        spelled = {}
        for name, value in given.items():
            field = by_folded.get(str(name).lower())
            if field is None:
                self.problems.append(Problem(child(path, str(name)), "unknown field of an extender"))
            else:
                spelled[field] = value
        return spelled


def _argument(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    argument = entry.get("argument")
    return argument if isinstance(argument, Mapping) else {}


def _why_not_a_priority(name: str, argument: Mapping[str, Any]) -> str:
    if "labelPreference" in argument:
        return "labelPreference has no plugin any more; a preferred addedAffinity of NodeAffinity comes near"
    if "serviceAntiAffinity" in argument:
        return "serviceAntiAffinity has no plugin any more; PodTopologySpread spreads over a label's values"
    return f'priority type not found for "{name}"'


def _strategy(name: str, ratio: Mapping[str, Any]) -> dict[str, Any]:
    if name != "RequestedToCapacityRatio":
        return {"type": name}
    strategy: dict[str, Any] = {"type": name, "requestedToCapacityRatio": {"shape": ratio.get("shape") or []}}
    return strategy | ({"resources": ratio["resources"]} if ratio.get("resources") else {})


def _listed(names: Mapping[str, Any]) -> str:
    return " and ".join(sorted(names))


def _plugin_sets(filters: set[str], scores: Mapping[str, int]) -> dict[str, Any]:
    """The sets of a profile in which just these plugins filter and score, of those that a Policy decides about."""
    disabled: dict[str, list[str]] = {}
    for name in dict.fromkeys((*FILTERS, *SCORES)):
        if name not in filters and name not in scores:
            disabled.setdefault("multiPoint", []).append(name)
            continue
        if name in FILTERS and name not in filters:
            _disable(disabled, name, "filter", "preFilter", PRE_FILTERS)
        if name in SCORES and name not in scores:
            _disable(disabled, name, "score", "preScore", PRE_SCORES)
    sets: dict[str, Any] = {
        point: {"disabled": [{"name": name} for name in names]} for point, names in disabled.items()
    }
    if scores:
        enabled = [{"name": name, "weight": scores[name]} for name in SCORES if name in scores]
        sets["score"] = {"enabled": enabled} | sets.get("score", {})
    return sets


def _disable(
    disabled: dict[str, list[str]], name: str, point: str, stage_before: str, having_it: frozenset[str]
) -> None:
    disabled.setdefault(point, []).append(name)
    if name in having_it:
        disabled.setdefault(stage_before, []).append(name)
