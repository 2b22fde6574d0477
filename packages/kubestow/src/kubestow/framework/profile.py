"""A profile: the plugins of one schedulerName, at each extension point in order.

It is built from the configuration and a registry of plugin classes. A plugin is constructed once per profile, whatever
the number of extension points that the configuration enables it at.

The configuration decodes the ``pluginConfig`` arguments of in-tree plugins itself. It does not know the classes of
other plugins, so their arguments are plain data; a plugin that declares ``Args`` gets them decoded into that struct. An
error names the profile, the plugin, the path, and what was expected there.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
from msgspec import inspect
from numpy.typing import NDArray

from kubestow import config
from kubestow.api.custom import CustomObject
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.config.expansion import KnowsAbsentPlugins
from kubestow.config.plugin_args import NODE_SAMPLING, NodeSamplingArgs
from kubestow.errors import ConfigurationError, KubestowError, PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.event_registration import EventRegistration
from kubestow.framework.gang import (
    GangPlacementPlugin,
    GangPlugin,
    GangPreemptionPlugin,
    GangSource,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PodGroupPostFilterPlugin,
)
from kubestow.framework.interface import (
    BindPlugin,
    FilterPlugin,
    Handle,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
)
from kubestow.framework.runtime.binding_runtime import BindingRuntime
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.gang_runtime import GangRuntime
from kubestow.framework.runtime.plugin_caller import PluginObserver, ProfilePlugins
from kubestow.framework.runtime.queueing_runtime import QueueingRuntime
from kubestow.framework.status import Status, Verdict
from kubestow.rules.minors import Behaviour

Registry = Mapping[str, type[Plugin]]
"""Plugin classes by name."""

P = TypeVar("P", bound=Plugin)

EXTENSION_POINTS: Mapping[ExtensionPoint, type[Plugin]] = MappingProxyType(
    {
        ExtensionPoint.PRE_ENQUEUE: PreEnqueuePlugin,
        ExtensionPoint.QUEUE_SORT: QueueSortPlugin,
        ExtensionPoint.PRE_FILTER: PreFilterPlugin,
        ExtensionPoint.FILTER: FilterPlugin,
        ExtensionPoint.POST_FILTER: PostFilterPlugin,
        ExtensionPoint.PRE_SCORE: PreScorePlugin,
        ExtensionPoint.SCORE: ScorePlugin,
        ExtensionPoint.RESERVE: ReservePlugin,
        ExtensionPoint.PERMIT: PermitPlugin,
        ExtensionPoint.PRE_BIND: PreBindPlugin,
        ExtensionPoint.BIND: BindPlugin,
        ExtensionPoint.POST_BIND: PostBindPlugin,
        ExtensionPoint.PLACEMENT_GENERATE: PlacementGeneratePlugin,
        ExtensionPoint.PLACEMENT_SCORE: PlacementScorePlugin,
        ExtensionPoint.POD_GROUP_POST_FILTER: PodGroupPostFilterPlugin,
    }
)
"""The base class of each extension point."""


def implements(registry: Registry) -> Mapping[str, frozenset[str]]:
    """The extension points that each plugin of a registry implements, by plugin name; looked up there as needed."""
    return _Implements(registry)


class _Implements(Mapping[str, frozenset[str]]):
    """Looks up a plugin only when its extension points are first read, because that may import it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        #: Building a profile reads the points of each plugin dozens of times.
        self._found: dict[str, frozenset[str]] = {}

    def __getitem__(self, name: str) -> frozenset[str]:
        found = self._found.get(name)
        if found is None:
            plugin = self._registry[name]
            implemented = frozenset(point for point, base in EXTENSION_POINTS.items() if issubclass(plugin, base))
            found = self._found[name] = implemented.union(plugin.inert_at)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._registry

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def absence(self, name: str) -> str:
        """What the registry knows of a plugin that it does not have."""
        return self._registry.absence(name) if isinstance(self._registry, KnowsAbsentPlugins) else ""


CLEARS_NOMINATION = PostFilterResult(Status.unschedulable(), nominated_node_name="")
"""Takes the place of PostFilter where there are no nodes or no PostFilter plugins (semantics 5.1)."""


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The plugins of one schedulerName, what calls them, and the cache of their results."""

    scheduler_name: str
    #: The percentage of nodes to score if so many are feasible; all nodes are filtered.
    percentage_of_nodes_to_score: int
    #: Whether 0 is kube-scheduler's adaptive percentage; else it means all nodes.
    samples_adaptively: bool
    #: All plugins, each once.
    plugins: Sequence[Plugin]
    runtime: FrameworkRuntime
    binding: BindingRuntime
    queueing: QueueingRuntime
    gangs: GangRuntime
    evaluations: EvaluationCache
    #: Takes the place of the PostFilter plugins if there are none.
    result_without_post_filter: PostFilterResult | None

    @property
    def samples_nodes(self) -> bool:
        """Whether only a sample of the feasible nodes is scored."""
        percentage = self.percentage_of_nodes_to_score
        return 0 < percentage < 100 or (percentage == 0 and self.samples_adaptively)


def build_profile(
    configured: config.KubeSchedulerProfile,
    registry: Registry,
    handle: Handle,
    *,
    percentage_of_nodes_to_score: int = 0,
    monotonic: Callable[[], float] | None = None,
    observer: PluginObserver | None = None,
) -> Profile:
    """Construct the plugins of a profile. ``monotonic``, a clock in seconds, measures their calls for the ``observer``.

    Raises ConfigurationError when a plugin is not in the registry or its args do not fit the ``Args`` it declares,
    PluginError when a plugin cannot be constructed.
    """
    instances = _Instances(configured, registry, handle)
    plugins = _by_extension_point(instances)
    slow_calls: dict[tuple[str, str], float] = {}
    runtime = FrameworkRuntime(plugins, monotonic=monotonic, observer=observer, slow_calls=slow_calls)
    percentage = configured.percentage_of_nodes_to_score
    sampling = configured.args.get(NODE_SAMPLING)
    reports_nodes_left_out = handle.emulates(Behaviour.NODES_LEFT_OUT_ARE_REPORTED)
    return Profile(
        configured.scheduler_name,
        percentage_of_nodes_to_score if percentage is None else percentage,
        isinstance(sampling, NodeSamplingArgs) and sampling.adaptive,
        tuple(instances.by_name.values()),
        runtime,
        BindingRuntime(plugins, monotonic=monotonic, observer=observer, slow_calls=slow_calls),
        QueueingRuntime(plugins, monotonic=monotonic, observer=observer),
        GangRuntime(plugins, monotonic=monotonic, observer=observer, slow_calls=slow_calls),
        EvaluationCache(runtime, handle.cluster, reports_nodes_left_out=reports_nodes_left_out),
        CLEARS_NOMINATION if handle.emulates(Behaviour.FAILURE_WITHOUT_POST_FILTER_CLEARS_NOMINATION) else None,
    )


class _Instances:
    """The plugin objects of a profile by name; each is constructed when an extension point first lists it."""

    def __init__(self, configured: config.KubeSchedulerProfile, registry: Registry, handle: Handle) -> None:
        self.by_name: dict[str, Plugin] = {}
        self._configured, self._registry, self._handle = configured, registry, handle
        self._enabled = config.expand(configured, implements(registry))

    def at(self, point: ExtensionPoint, base: type[P]) -> list[P]:
        """The plugins of an extension point in order."""
        return [plugin for plugin, _ in self.weighted(point, base)]

    def weighted(self, point: ExtensionPoint, base: type[P]) -> list[tuple[P, int]]:
        """The same with their weights."""
        found = []
        for name, weight in self._enabled[point]:
            if name not in self.by_name:
                self.by_name[name] = _construct(self._registry[name], self._configured, self._handle)
            plugin = self.by_name[name]
            if isinstance(plugin, base):
                found.append((plugin, weight))
            else:
                assert point in plugin.inert_at
        return found


def _by_extension_point(instances: _Instances) -> ProfilePlugins:
    pre_filters = instances.at(ExtensionPoint.PRE_FILTER, PreFilterPlugin)
    pre_scores = instances.at(ExtensionPoint.PRE_SCORE, PreScorePlugin)
    filters = [_checked_filter(p, pre_filters) for p in instances.at(ExtensionPoint.FILTER, FilterPlugin)]
    scores = [(_checked_score(p, pre_scores), w) for p, w in instances.weighted(ExtensionPoint.SCORE, ScorePlugin)]
    post_filters = instances.at(ExtensionPoint.POST_FILTER, PostFilterPlugin)
    generators = instances.at(ExtensionPoint.PLACEMENT_GENERATE, PlacementGeneratePlugin)
    return ProfilePlugins(
        queue_sort=instances.at(ExtensionPoint.QUEUE_SORT, QueueSortPlugin)[0],
        pre_enqueue=instances.at(ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin),
        pre_filter=pre_filters,
        filter=filters,
        post_filter=post_filters,
        pre_score=pre_scores,
        score=scores,
        reserve=instances.at(ExtensionPoint.RESERVE, ReservePlugin),
        permit=instances.at(ExtensionPoint.PERMIT, PermitPlugin),
        pre_bind=instances.at(ExtensionPoint.PRE_BIND, PreBindPlugin),
        bind=instances.at(ExtensionPoint.BIND, BindPlugin),
        post_bind=instances.at(ExtensionPoint.POST_BIND, PostBindPlugin),
        placement_generate=next(iter(generators), None),
        placement_score=instances.weighted(ExtensionPoint.PLACEMENT_SCORE, PlacementScorePlugin),
        # The first that defines and gates gangs, or else the first that only defines them.
        gang_source=min(
            (plugin for plugin in instances.by_name.values() if isinstance(plugin, GangSource)),
            key=lambda plugin: not isinstance(plugin, GangPlugin),
            default=None,
        ),
        gang_placement=next(
            (each for each in instances.by_name.values() if isinstance(each, GangPlacementPlugin)), None
        ),
        gang_preemption=_gang_preemption(instances, post_filters),
    )


def _gang_preemption(instances: _Instances, post_filters: Iterable[PostFilterPlugin]) -> GangPreemptionPlugin | None:
    of_pod_groups: list[Plugin] = [*instances.at(ExtensionPoint.POD_GROUP_POST_FILTER, PodGroupPostFilterPlugin)]
    others = [plugin for plugin in post_filters if not isinstance(plugin, PodGroupPostFilterPlugin)]
    return next((plugin for plugin in of_pod_groups + others if isinstance(plugin, GangPreemptionPlugin)), None)


def _construct(kind: type[Plugin], configured: config.KubeSchedulerProfile, handle: Handle) -> Plugin:
    args = decode_arguments(configured, kind)
    try:
        plugin = kind(args, handle)
        invalid = [event for event in plugin.events_to_register if not isinstance(event, EventRegistration)]
    except KubestowError:
        raise
    except Exception as error:
        raise PluginError(kind.name, "construction", f"{type(error).__name__}: {error}") from error
    if invalid:
        problem = (
            f"events_to_register holds {type(invalid[0]).__name__}, expected EventRegistration "
            "(see kubestow.framework.event_registration.on)"
        )
        raise PluginError(kind.name, "construction", problem)
    for watched in plugin.watched_kinds():
        if issubclass(watched, CustomObject):
            try:
                watched.address()
            except ValueError as error:
                raise PluginError(kind.name, "construction", str(error)) from None
    return plugin


def _checked_filter(plugin: FilterPlugin, pre_filters: Sequence[Plugin]) -> FilterPlugin:
    error = plugin.missing_pre_filter_error
    return plugin if error is None or plugin in pre_filters else _FilterWithoutPreFilter(plugin.name, error)


def _checked_score(plugin: ScorePlugin, pre_scores: Sequence[Plugin]) -> ScorePlugin:
    error = plugin.missing_pre_score_error
    return plugin if error is None or plugin in pre_scores else _ScoreWithoutPreScore(plugin.name, error)


class _FilterWithoutPreFilter(FilterPlugin):
    """Takes the place of a filter that does not work without PreFilter, which the profile disables."""

    label_keys = ()

    def __init__(self, name: str, problem: str) -> None:
        self.name = name  # type: ignore[misc]  # takes the place of another plugin
        self._problem = problem

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        """Fail on every node, as kube-scheduler does without the plugin's cycle state."""
        return Verdict.of(np.ones(len(nodes), np.int32), {1: Status.error(self._problem)})


class _ScoreWithoutPreScore(ScorePlugin):
    """Takes the place of a score that does not work without PreScore, which the profile disables."""

    label_keys = ()

    def __init__(self, name: str, problem: str) -> None:
        self.name = name  # type: ignore[misc]  # takes the place of another plugin
        self._problem = problem

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """Fail, as kube-scheduler does without the plugin's cycle state."""
        message = f'running Score plugins: plugin "{self.name}" failed with: {self._problem}'
        raise PluginError(self.name, "Score", self._problem, message=message)


#: Separates the problem and the path in messages of msgspec.
_PATH = " - at `$"
_TYPE_META = frozenset({"apiVersion", "kind"})


def decode_arguments(profile: config.KubeSchedulerProfile, kind: type[Plugin]) -> Any:
    """The ``args`` for a plugin of a profile. Raises ConfigurationError when they do not fit the plugin's ``Args``."""
    given = profile.args.get(kind.name)
    declared = kind.Args
    if declared is None or isinstance(given, declared):
        return given
    given = {} if given is None else given
    described = inspect.type_info(declared)
    problems = list(_unknown_fields(given, described, "", top=True))
    if not problems:
        try:
            return msgspec.convert(given, declared)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(_PATH)
            problems = [(path.rstrip("`"), f"{text[:1].lower()}{text[1:]}")]
    args = _path(profile, kind.name)
    raise ConfigurationError(
        f'profile "{profile.scheduler_name}"', [(args + path, f"plugin {kind.name}: {text}") for path, text in problems]
    )


def argument_errors(
    configuration: config.KubeSchedulerConfiguration, registry: Mapping[str, type[Plugin]]
) -> Iterator[config.FieldError]:
    """The errors of :func:`decode_arguments` for all plugins with ``args`` that are registered."""
    for index, profile in enumerate(configuration.profiles):
        for entry in profile.plugin_config:
            if entry.name not in registry:
                continue
            try:
                decode_arguments(profile, registry[entry.name])
            except ConfigurationError as error:
                for path, text in error.problems:
                    yield config.FieldError(f"profiles[{index}].{path}", text)


def _path(profile: config.KubeSchedulerProfile, plugin: str) -> str:
    names = [entry.name for entry in profile.plugin_config]
    return f"pluginConfig[{names.index(plugin)}].args" if plugin in names else "args"


def _unknown_fields(data: Any, kind: inspect.Type, path: str, *, top: bool = False) -> Iterator[tuple[str, str]]:
    """The path and the problem of every field that is not declared, at any depth; types are checked by msgspec."""
    match kind, data:
        case inspect.UnionType(types=types), _:
            structs = [member for member in types if isinstance(member, inspect.StructType)]
            if len(structs) == 1:
                yield from _unknown_fields(data, structs[0], path)
        case inspect.StructType(fields=fields, tag=None), Mapping():
            known = {field.encode_name: field for field in fields}
            for name, item in data.items():
                if name in known:
                    yield from _unknown_fields(item, known[name].type, f"{path}.{name}")
                elif not (top and name in _TYPE_META):
                    near = difflib.get_close_matches(str(name), known, n=1)
                    yield f"{path}.{name}", "unknown field" + (f', did you mean "{near[0]}"?' if near else "")
        case (inspect.ListType() | inspect.VarTupleType() | inspect.SetType()) as items, list():
            for index, item in enumerate(data):
                yield from _unknown_fields(item, items.item_type, f"{path}[{index}]")
        case inspect.DictType(value_type=value_type), Mapping():
            for name, item in data.items():
                yield from _unknown_fields(item, value_type, f"{path}.{name}")


@runtime_checkable
class BatchHandle(Handle, Protocol):
    """The handle of a scheduler with a queue; offline explanations, which have none, pass a handle without this."""

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by scheduler name, once all are built."""

    def suggest_node(self, pod: PodInfo, node_name: str) -> None:
        """Have a queued pod tried on this node first, as if ``status.nominatedNodeName`` named it (KEP-5278).

        All other nodes are tried if the pod does not fit there any more. No capacity is kept for it. The suggestion
        ends with the pod's next attempt or update; for a pod that is not queued it has no effect.
        """
