"""The search space: which weights, arguments and settings of a scheduler configuration vary, and over which values.

It is read from a file::

    profile: default-scheduler            # optional: the scheduler name; the first profile by default
    weights:                              # of score plugins; 0 disables the score
      NodeResourcesFit: {min: 0, max: 10}
      PodTopologySpread: [1, 2, 5]
    args:                                 # fields in the plugins' arguments, by path
      NodeResourcesFit:
        scoringStrategy.type: [LeastAllocated, MostAllocated]
    settings:                             # fields of the configuration
      percentageOfNodesToScore: [0, 20, 100]
    prices:                               # for the objective "cost": of a node in use, by the value of a label
      label: node.kubernetes.io/instance-type
      values: {m7i.large: 0.1008, m7i.xlarge: 0.2016}

A candidate is one value for each parameter. It is applied to a base configuration with all defaults written out.
"""

from __future__ import annotations

import copy
import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from kubestow import config
from kubestow.engine.input.documents import convert_part, read_yaml
from kubestow.errors import ConfigurationError, InputError
from kubestow.framework.interface import ScorePlugin
from kubestow.framework.profile import Registry, implements
from kubestow_lab.metrics.energy_and_cost import NodePrices

Object = dict[str, Any]
Candidate = tuple[int, ...]
"""The number of the value of each parameter."""

_MOST_VALUES = 10_000
_HIGHEST_WEIGHT = 10_000


class _Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whole numbers from ``min`` to ``max``, every ``step``-th."""

    min: int
    max: int
    step: int = 1

    def __post_init__(self) -> None:
        if self.max < self.min or self.step < 1:
            raise ValueError("expected min <= max and step >= 1")
        if (self.max - self.min) // self.step >= _MOST_VALUES:
            raise ValueError(f"expected at most {_MOST_VALUES} values")


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file as it is written; each parameter is decoded by itself, so that errors name it."""

    profile: str = ""
    weights: dict[str, Any] = {}
    args: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any] = {}
    prices: NodePrices | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """What varies: ``part`` is ``weights``, ``args`` or ``settings``, and ``path`` the field in the arguments."""

    part: str
    plugin: str
    path: str
    values: tuple[Any, ...]
    ordered: bool

    @property
    def name(self) -> str:
        """``weights.NodeResourcesFit``, as in the file."""
        return ".".join(filter(None, (self.part, self.plugin, self.path)))


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The parameters, and the prices of nodes. ``subject`` names the file in errors."""

    parameters: tuple[Parameter, ...]
    profile: str = ""
    prices: NodePrices | None = None
    subject: str = "search space"

    @classmethod
    def load(cls, path: str | Path) -> SearchSpace:
        """Read a file. Raises InputError, naming the field."""
        return cls.of(read_yaml(path), subject=str(path))

    @classmethod
    def of(cls, content: Mapping[str, Any], *, subject: str = "search space") -> SearchSpace:
        """A search space from the plain data of a file. Raises InputError."""
        document: _Document = convert_part(content, _Document, subject=subject)
        parameters = tuple(_parameters(document, subject))
        if not parameters:
            raise InputError(subject, "nothing varies, expected weights, args or settings")
        return cls(parameters, document.profile, document.prices, subject)

    # -- candidates --------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of candidates."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def candidate(self, number: int) -> Candidate:
        """The candidate with a number, of all in lexicographic order."""
        found = []
        for parameter in reversed(self.parameters):
            number, position = divmod(number, len(parameter.values))
            found.append(position)
        return tuple(reversed(found))

    def random(self, random: Random) -> Candidate:
        """Any candidate."""
        return tuple(random.randrange(len(parameter.values)) for parameter in self.parameters)

    def child(self, one: Candidate, other: Candidate, random: Random) -> Candidate:
        """Each value of one of two candidates, and at least one value changed; of an ordered parameter rather a bit."""
        child = [random.choice(pair) for pair in zip(one, other, strict=True)]
        changed = [position for position in range(len(child)) if random.random() < 1 / len(child)]
        for position in changed or [random.randrange(len(child))]:
            parameter = self.parameters[position]
            size = len(parameter.values)
            if parameter.ordered and random.random() < 0.8:
                reach = max(1, size // 5)
                step = random.choice((-1, 1)) * random.randint(1, reach)
                child[position] = min(max(child[position] + step, 0), size - 1)
            else:
                child[position] = random.randrange(size)
        return tuple(child)

    def values(self, candidate: Candidate) -> Object:
        """The values of a candidate by parameter name."""
        return {p.name: p.values[position] for p, position in zip(self.parameters, candidate, strict=True)}

    def document(self, base: config.KubeSchedulerConfiguration, candidate: Candidate) -> Object:
        """The base configuration with the values of a candidate, as plain data. Raises InputError."""
        document = config.render(base)
        profile = self._profile(document)
        for parameter, position in zip(self.parameters, candidate, strict=True):
            _apply(document, profile, parameter, copy.deepcopy(parameter.values[position]))
        return document

    def _profile(self, document: Object) -> Object:
        profiles: list[Object] = document["profiles"]
        names = [profile["schedulerName"] for profile in profiles]
        if self.profile and self.profile not in names:
            problem = f"no profile is called {self.profile}, the configuration has: {', '.join(names)}"
            raise InputError(self.subject, problem, place="profile")
        return profiles[names.index(self.profile) if self.profile else 0]

    def check(self, base: config.KubeSchedulerConfiguration, registry: Registry, gates: config.FeatureGates) -> None:
        """Check each value by itself in the base configuration. Raises InputError, naming parameter and value."""
        for parameter in self.parameters:
            if parameter.part == "weights":
                self._check_score_plugin(parameter, registry)
            values = parameter.values if not parameter.ordered else {parameter.values[0]: 0, parameter.values[-1]: 0}
            for value in values:
                alone = SearchSpace(
                    (Parameter(parameter.part, parameter.plugin, parameter.path, (value,), False),),
                    self.profile,
                    subject=self.subject,
                )
                try:
                    config.load(alone.document(base, (0,)), gates=gates, implements=implements(registry))
                except ConfigurationError as error:
                    path, text = error.problems[0]
                    problem = f"the value {value!r} is not valid: {f'{path}: ' if path else ''}{text}"
                    raise InputError(self.subject, problem, place=parameter.name) from None

    def _check_score_plugin(self, parameter: Parameter, registry: Registry) -> None:
        plugin = registry.get(parameter.plugin)
        if plugin is None:
            near = difflib.get_close_matches(parameter.plugin, registry, n=1)
            hint = f", did you mean {near[0]}?" if near else ""
            raise InputError(self.subject, f"there is no such plugin{hint}", place=parameter.name)
        if not issubclass(plugin, ScorePlugin):
            raise InputError(self.subject, "the plugin does not score nodes, so it has no weight", place=parameter.name)


def _parameters(document: _Document, subject: str) -> Iterator[Parameter]:
    for plugin, given in document.weights.items():
        values, ordered = _values(given, int, f"weights.{plugin}", subject)
        if any(not 0 <= value <= _HIGHEST_WEIGHT for value in values):
            problem = f"expected weights from 0, which disables the score, to {_HIGHEST_WEIGHT}"
            raise InputError(subject, problem, place=f"weights.{plugin}")
        yield Parameter("weights", plugin, "", values, ordered)
    for plugin, paths in document.args.items():
        for path, given in paths.items():
            yield Parameter("args", plugin, path, *_values(given, Any, f"args.{plugin}.{path}", subject))
    for path, given in document.settings.items():
        yield Parameter("settings", "", path, *_values(given, Any, f"settings.{path}", subject))


def _values(given: Any, kind: Any, place: str, subject: str) -> tuple[tuple[Any, ...], bool]:
    """The values, and whether neighbours are alike. Raises InputError."""
    decoded: _Range | list[Any] = convert_part(given, _Range | list[kind], subject=subject, place=place)
    if isinstance(decoded, _Range):
        return tuple(range(decoded.min, decoded.max + 1, decoded.step)), True
    if not decoded:
        raise InputError(subject, "expected at least one value", place=place)
    return tuple(decoded), False


# -- changes of a configuration ------------------------------------------------------------------------------------


def _apply(document: Object, profile: Object, parameter: Parameter, value: Any) -> None:
    match parameter.part:
        case "weights":
            _set_weight(profile.setdefault("plugins", {}), parameter.plugin, value)
        case "args":
            entries = profile.setdefault("pluginConfig", [])
            entry = next((entry for entry in entries if entry["name"] == parameter.plugin), None)
            if entry is None:
                entry = {"name": parameter.plugin, "args": {}}
                entries.append(entry)
            _set_path(entry.setdefault("args", {}), parameter.path, value)
        case _:
            _set_path(document, parameter.path, value)


def _set_weight(plugins: Object, name: str, weight: int) -> None:
    score: Object = plugins.setdefault("score", {})
    every: Object = plugins.setdefault("multiPoint", {})
    if weight == 0:
        score["enabled"] = [entry for entry in score.get("enabled") or [] if entry["name"] != name]
        score["disabled"] = [*(score.get("disabled") or []), {"name": name}]
        return
    for part in (score, every):
        for entry in part.get("enabled") or []:
            if entry["name"] == name:
                entry["weight"] = weight
                return
    score["enabled"] = [*(score.get("enabled") or []), {"name": name, "weight": weight}]


def _set_path(target: Object, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        child = target.get(name)
        if not isinstance(child, dict):
            child = target[name] = {}
        target = child
    target[last] = value
