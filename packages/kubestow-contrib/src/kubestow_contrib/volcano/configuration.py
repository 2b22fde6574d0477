"""The configuration format of Volcano and kube-batch (volcano-scheduler.conf), read strictly.

    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - name: priority
      - name: gang
        enablePreemptable: false
    - plugins:
      - name: binpack
        arguments: {binpack.weight: 10}

Two fields are kubestow's own: ``schedulerName`` (``volcano``), and ``evictionRule``, which is ``volcano`` or
``kube-batch``; the default is ``kube-batch`` if that is the name.

It is also the form of the args of the plugin Volcano. Every mistake raises a ConfigurationProblem that names the field.
Volcano itself ignores unknown fields and arguments, and replaces arguments of a wrong type by their defaults.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubestow.api.formats.duration import Duration
from kubestow_contrib.volcano.pod_groups import KUBE_BATCH_NAME

SCHEDULER_NAME = "volcano"
"""The schedulerName of the profile, and of the pods that Volcano schedules, unless the configuration names another."""

FIELDS = ("actions", "tiers", "schedulerName", "evictionRule")

#: What a scheduler without a configuration does, as Volcano.
DEFAULT: Mapping[str, Any] = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {"plugins": [{"name": name} for name in ("priority", "gang", "conformance")]},
        {"plugins": [{"name": name} for name in ("overcommit", "drf", "predicates", "proportion", "nodeorder")]},
    ],
}

_ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
#: Volcano's further actions and plugins, which are not there; plugins with what comes nearest, if anything does.
_OTHER_ACTIONS = ("shuffle", "gangpreempt", "gangreclaim")
_OTHER_PLUGINS: Mapping[str, str] = {
    "cdp": "",
    "deviceshare": "DynamicResources for devices in ResourceClaims, FragmentationGradientDescent for shares of GPUs",
    "extender": "extenders of a KubeSchedulerConfiguration",
    "network-topology-aware": "NetworkOverhead",
    "nodegroup": "NodeAffinity with labels of nodes",
    "numaaware": "NodeResourceTopologyMatch",
    "pdb": "DefaultPreemption, which spares pods with disruption budgets",
    "rescheduling": "kubestow deschedule",
    "resource-strategy-fit": "NodeResourcesFit",
    "resourcequota": "the ResourceQuotas of the API server",
    "task-topology": "InterPodAffinity",
    "tdm": "",
    "usage": "TargetLoadPacking and LoadAwareScheduling",
}

#: The functions of plugins that can be disabled, by the field that does; the others of Volcano's have no effect here.
_FUNCTIONS = {
    "enableJobOrder": "jobOrder",
    "enableTaskOrder": "taskOrder",
    "enableQueueOrder": "queueOrder",
    "enablePreemptable": "preemptable",
    "enableReclaimable": "reclaimable",
    "enablePreemptive": "preemptive",
    "enablePredicate": "predicate",
    "enableNodeOrder": "nodeOrder",
    "enableJobEnqueued": "jobEnqueued",
    "enableJobStarving": "jobStarving",
    "enabledOverused": "overused",
    "enabledAllocatable": "allocatable",
    "enableJobReady": "jobReady",
    "enableJobPipelined": "jobPipelined",
}
_WITHOUT_EFFECT = (
    *("enableBestNode", "enableTargetJob", "enableReservedNodes", "enabledVictim", "enabledClusterOrder"),
    *("enabledHyperNodeOrder", "enabledSubJobReady", "enabledSubJobPipelined", "enabledSubJobOrder"),
    "enabledHyperNodeGradient",
)

#: The weights of nodeorder by argument: Volcano's default, and the plugin that scores so.
NODE_ORDER_WEIGHTS: Mapping[str, tuple[int, str]] = {
    "leastrequested.weight": (1, "NodeResourcesFit"),
    "mostrequested.weight": (0, "NodeResourcesFit"),
    "nodeaffinity.weight": (2, "NodeAffinity"),
    "podaffinity.weight": (2, "InterPodAffinity"),
    "balancedresource.weight": (1, "NodeResourcesBalancedAllocation"),
    "tainttoleration.weight": (3, "TaintToleration"),
    "imagelocality.weight": (1, "ImageLocality"),
    "podtopologyspread.weight": (2, "PodTopologySpread"),
}
#: The filters that an argument of predicates disables.
PREDICATES: Mapping[str, str] = {
    "predicate.NodeAffinityEnable": "NodeAffinity",
    "predicate.NodePortsEnable": "NodePorts",
    "predicate.TaintTolerationEnable": "TaintToleration",
    "predicate.PodAffinityEnable": "InterPodAffinity",
    "predicate.NodeVolumeLimitsEnable": "NodeVolumeLimits",
    "predicate.VolumeZoneEnable": "VolumeZone",
    "predicate.PodTopologySpreadEnable": "PodTopologySpread",
    "predicate.VolumeBindingEnable": "VolumeBinding",
    "predicate.DynamicResourceAllocationEnable": "DynamicResources",
}
_CACHE = "predicate.CacheEnable"
_OVERCOMMIT_FACTOR = "overcommit-factor"
_SLA_WAITING_TIME = "sla-waiting-time"
_ANCESTOR_RECLAIM_LEVEL = "ancestorReclaimLevel"
_BINPACK_RESOURCES = "binpack.resources"
_BINPACK_WEIGHTS = ("binpack.weight", "binpack.cpu", "binpack.memory")
_MAX_SCORE_WEIGHT = 1000

_ARGUMENTS: Mapping[str, Collection[str]] = {
    "priority": (),
    "gang": (),
    "conformance": (),
    "drf": (),
    "proportion": (),
    "capacity": (_ANCESTOR_RECLAIM_LEVEL,),
    "overcommit": (_OVERCOMMIT_FACTOR,),
    "sla": (_SLA_WAITING_TIME,),
    "predicates": (*PREDICATES, _CACHE),
    "nodeorder": tuple(NODE_ORDER_WEIGHTS),
    "binpack": (*_BINPACK_WEIGHTS, _BINPACK_RESOURCES),
}


class ConfigurationProblem(ValueError):
    """A mistake in a configuration: the path of the field, and what is wrong with it."""

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}" if path else problem)


@dataclass(frozen=True, slots=True)
class PluginOption:
    """A plugin of a tier: its name, the functions that are disabled, and its arguments."""

    name: str
    disabled: frozenset[str] = frozenset()
    is_hierarchical: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolcanoConfiguration:
    """Actions in order, and the tiers of plugins."""

    actions: Sequence[str]
    tiers: Sequence[Sequence[PluginOption]]
    #: Of the profile, and of the pods that it schedules.
    scheduler_name: str = SCHEDULER_NAME
    #: Whether kube-batch's rule decides which pods may be evicted, and when.
    evicts_as_kube_batch: bool = False

    def plugin(self, name: str) -> PluginOption | None:
        """A plugin by name, None if no tier has it."""
        return next((option for tier in self.tiers for option in tier if option.name == name), None)

    def enabled(self, name: str, function: str) -> bool:
        """Whether a plugin is there and one of its functions is not disabled."""
        option = self.plugin(name)
        return option is not None and function not in option.disabled

    def in_order(self, function: str, names: Collection[str]) -> list[list[str]]:
        """The plugins of each tier, of some names, whose function is enabled."""
        return [
            [option.name for option in tier if option.name in names and function not in option.disabled]
            for tier in self.tiers
        ]

    @property
    def overcommit_factor(self) -> float:
        """The most minimum resources that all admitted jobs may have, as a multiple of the capacity of the cluster."""
        option = self.plugin("overcommit")
        return 1.2 if option is None else float(option.arguments.get(_OVERCOMMIT_FACTOR, 1.2))

    @property
    def waiting_time(self) -> float | None:
        """The seconds that a job without an annotation waits at most before it is admitted; None without limit."""
        option = self.plugin("sla")
        found: float | None = None if option is None else option.arguments.get(_SLA_WAITING_TIME)
        return found

    @property
    def ancestor_reclaim_level(self) -> int:
        """How many levels of ancestors capacity looks at besides the queues themselves when it reclaims."""
        option = self.plugin("capacity")
        if option is None or not option.is_hierarchical:
            return 0
        return int(option.arguments.get(_ANCESTOR_RECLAIM_LEVEL, 0))

    @property
    def binpack_weights(self) -> dict[str, int]:
        """The weights of resources for binpack."""
        option = self.plugin("binpack")
        arguments = {} if option is None else option.arguments
        weights = {name: arguments.get(f"binpack.{name}", 1) for name in ("cpu", "memory")}
        for name in _names(arguments.get(_BINPACK_RESOURCES, "")):
            weights[name] = arguments.get(f"{_BINPACK_RESOURCES}.{name}", 1)
        return weights


def read_configuration(data: Any) -> VolcanoConfiguration:
    """Read a configuration from plain data. Raises ConfigurationProblem for the first mistake."""
    document = _mapping(data, "")
    for name in document:
        if name not in (*FIELDS, "configurations", "metrics", "apiVersion", "kind"):
            raise ConfigurationProblem(str(name), f"unknown field{_similar(str(name), FIELDS)}")
    for name in ("configurations", "metrics"):
        if document.get(name):
            raise ConfigurationProblem(name, "is not supported")
    actions = _actions(document.get("actions", DEFAULT["actions"]))
    tiers, seen = [], set[str]()
    for index, tier in enumerate(_list(document.get("tiers", DEFAULT["tiers"]), "tiers")):
        path = f"tiers[{index}]"
        for name in _mapping(tier, path):
            if name != "plugins":
                raise ConfigurationProblem(f"{path}.{name}", f"unknown field{_similar(str(name), ('plugins',))}")
        options = []
        for position, plugin in enumerate(_list(tier.get("plugins"), f"{path}.plugins")):
            option = _option(_mapping(plugin, f"{path}.plugins[{position}]"), f"{path}.plugins[{position}]")
            if option.name in seen:
                raise ConfigurationProblem(f"{path}.plugins[{position}].name", f"plugin {option.name} is there twice")
            seen.add(option.name)
            if {"capacity", "proportion"} <= seen:
                raise ConfigurationProblem(
                    f"{path}.plugins[{position}].name", "capacity and proportion exclude each other"
                )
            options.append(option)
        tiers.append(options)
    scheduler_name = document.get("schedulerName", SCHEDULER_NAME)
    if not isinstance(scheduler_name, str) or not scheduler_name:
        raise ConfigurationProblem("schedulerName", f"expected the name of a scheduler, got {_kind(scheduler_name)}")
    default_rule = KUBE_BATCH_NAME if scheduler_name == KUBE_BATCH_NAME else SCHEDULER_NAME
    rule = document.get("evictionRule", default_rule)
    if rule not in (SCHEDULER_NAME, KUBE_BATCH_NAME):
        expected = f'"{SCHEDULER_NAME}" or "{KUBE_BATCH_NAME}"'
        raise ConfigurationProblem("evictionRule", f"expected {expected}, got {_kind(rule)}")
    return VolcanoConfiguration(actions, tiers, scheduler_name, rule == KUBE_BATCH_NAME)


def unsupported_plugins(data: Any) -> Iterator[ConfigurationProblem]:
    """All plugins of Volcano in a configuration that are not there; other mistakes are left to read_configuration."""
    tiers = data.get("tiers") if isinstance(data, Mapping) else None
    for index, tier in enumerate(tiers if isinstance(tiers, list) else ()):
        plugins = tier.get("plugins") if isinstance(tier, Mapping) else None
        for position, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
            name = plugin.get("name") if isinstance(plugin, Mapping) else None
            if isinstance(name, str) and name in _OTHER_PLUGINS:
                yield _unsupported(name, f"tiers[{index}].plugins[{position}]")


def _unsupported(name: str, path: str) -> ConfigurationProblem:
    nearest = _OTHER_PLUGINS[name]
    text = f'plugin "{name}" is not supported' + (f"; nearest: {nearest}" if nearest else "")
    return ConfigurationProblem(f"{path}.name", text)


def _actions(value: Any) -> list[str]:
    if not isinstance(value, str):
        raise ConfigurationProblem("actions", f'expected text such as "enqueue, allocate", got {_kind(value)}')
    actions = [action.strip() for action in value.split(",")]
    for action in actions:
        if action in _OTHER_ACTIONS:
            raise ConfigurationProblem("actions", f'action "{action}" is not supported')
        if action not in _ACTIONS:
            raise ConfigurationProblem("actions", f'unknown action "{action}"{_similar(action, _ACTIONS)}')
        if actions.count(action) > 1:
            raise ConfigurationProblem("actions", f'action "{action}" is there twice')
    return actions


def _option(data: Mapping[str, Any], path: str) -> PluginOption:
    name = data.get("name")
    if not isinstance(name, str):
        raise ConfigurationProblem(f"{path}.name", f"expected the name of a plugin, got {_kind(name)}")
    if name in _OTHER_PLUGINS:
        raise _unsupported(name, path)
    if name not in _ARGUMENTS:
        raise ConfigurationProblem(f"{path}.name", f'unknown plugin "{name}"{_similar(name, _ARGUMENTS)}')
    known = ("name", "arguments", "enableHierarchy", *_FUNCTIONS, *_WITHOUT_EFFECT)
    disabled = set()
    for key, value in data.items():
        if key not in known:
            raise ConfigurationProblem(f"{path}.{key}", f"unknown field{_similar(str(key), known)}")
        if key in ("name", "arguments"):
            continue
        if not isinstance(value, bool):
            raise ConfigurationProblem(f"{path}.{key}", f"expected true or false, got {_kind(value)}")
        if key == "enableHierarchy" and value and name != "capacity":
            raise ConfigurationProblem(f"{path}.{key}", "hierarchical DRF is not supported")
        if key in _FUNCTIONS and not value:
            disabled.add(_FUNCTIONS[key])
    arguments = _mapping(data.get("arguments") or {}, f"{path}.arguments")
    is_hierarchical = data.get("enableHierarchy") is True
    return PluginOption(
        name, frozenset(disabled), is_hierarchical, dict(_checked(name, arguments, f"{path}.arguments"))
    )


def _checked(plugin: str, arguments: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The arguments with their values. YAML files quote numbers sometimes, which Volcano reads as numbers."""
    known = list(_ARGUMENTS[plugin])
    if plugin == "binpack":
        resources = arguments.get(_BINPACK_RESOURCES, "")
        if not isinstance(resources, str):
            raise ConfigurationProblem(
                f"{path}.{_BINPACK_RESOURCES}", f"expected names separated by commas, got {_kind(resources)}"
            )
        known += [f"{_BINPACK_RESOURCES}.{name}" for name in _names(resources)]
    for key, value in arguments.items():
        where = f"{path}.{key}"
        if key not in known:
            raise ConfigurationProblem(where, f"plugin {plugin} has no such argument{_similar(str(key), known)}")
        if key == _BINPACK_RESOURCES:
            yield key, value
        elif key in PREDICATES or key == _CACHE:
            if not isinstance(value, bool):
                raise ConfigurationProblem(where, f"expected true or false, got {_kind(value)}")
            yield key, value
        elif key == _SLA_WAITING_TIME:
            seconds = waiting_time(value)
            if seconds is None:
                raise ConfigurationProblem(where, f'expected a duration such as "1h30m", got {_kind(value)}')
            yield key, seconds
        elif key == _OVERCOMMIT_FACTOR:
            factor = _number(value, where)
            if factor < 1:
                raise ConfigurationProblem(where, f"is {value}, expected at least 1")
            yield key, factor
        elif key == _ANCESTOR_RECLAIM_LEVEL:
            level = _number(value, where)
            if level != int(level) or level < 0:
                raise ConfigurationProblem(where, f"is {value}, expected a whole number of at least 0")
            yield key, int(level)
        else:
            weight = _number(value, where)
            if weight != int(weight) or not 0 <= weight <= _MAX_SCORE_WEIGHT:
                raise ConfigurationProblem(where, f"is {value}, expected a whole number from 0 to {_MAX_SCORE_WEIGHT}")
            yield key, int(weight)
    if arguments.get("leastrequested.weight", 1) and arguments.get("mostrequested.weight", 0):
        raise ConfigurationProblem(
            f"{path}.mostrequested.weight", "cannot be combined with leastrequested.weight, which is 1 unless set to 0"
        )


def waiting_time(text: Any) -> float | None:
    """A positive duration in seconds; None for anything else."""
    try:
        seconds = Duration.parse(text).seconds if isinstance(text, str) else 0.0
    except ValueError:
        return None
    return seconds if seconds > 0 else None


def _number(value: Any, path: str) -> float:
    try:
        if not isinstance(value, bool) and isinstance(value, int | float | str):
            number = float(value)
            if number - number == 0:
                return number
    except ValueError:
        pass
    raise ConfigurationProblem(path, f"expected a number, got {_kind(value)}")


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationProblem(path, f"expected an object, got {_kind(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigurationProblem(path, f"expected a list, got {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _similar(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f', did you mean "{near[0]}"?' if near else ""
