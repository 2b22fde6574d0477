"""Decisions about single pods of a cluster that was read from files: the cache, the profiles and the pipeline."""

from __future__ import annotations

import difflib
import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubestow import config
from kubestow.api.core import Namespace, Pod
from kubestow.api.custom import CustomObject
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.engine.input.cluster_objects import ClusterObjects, custom_objects
from kubestow.engine.pipeline.static_handle import DEFAULT_TIME, StaticHandle
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.log_fields import fields
from kubestow.plugins.configuration_file import never_enabled, read_configuration
from kubestow.plugins.registry import find_plugins, find_pod_group_apis
from kubestow.reports.model import counted
from kubestow.reports.text import short_repr
from kubestow.rules.minors import Minor
from kubestow.scheduling.decision.node_selection import FirstByName, TieBreak
from kubestow.scheduling.decision.pipeline import DecisionPipeline

_log = logging.getLogger(__name__)

#: So many similar names are suggested.
_MOST_SIMILAR = 3

Configuration = config.KubeSchedulerConfiguration | Path | str | Mapping[str, Any] | None
"""A KubeSchedulerConfiguration: decoded, a file, plain data, or None for the defaults."""


class SchedulerOptions(msgspec.Struct, frozen=True):
    """The scheduler's configuration, further plugin classes, and feature gates.

    ``emulated_version`` is the minor version to decide as, such as "1.33"; without it, that of the gates. Raises
    InputError for one that is not supported, or that does not have the gates.
    """

    configuration: Configuration = None
    plugins: Sequence[type[Plugin]] = ()
    gates: config.FeatureGates = msgspec.field(default_factory=config.FeatureGates)
    emulated_version: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "gates", emulating(self.gates, self.emulated_version))

    def __repr__(self) -> str:
        """Where the configuration comes from, the plugin classes and the minor version."""
        given = self.configuration
        source = str(given) if isinstance(given, Path | str) else "defaults" if given is None else "given configuration"
        plugins = "".join(f", plugin {plugin.name}" for plugin in self.plugins)
        return short_repr("SchedulerOptions", f"{source}{plugins}, Kubernetes {self.gates.minor}")

    def registry(self) -> Registry:
        """All plugin classes by name. Raises InputError if two have the same name."""
        return find_plugins(classes={plugin.name: plugin for plugin in self.plugins}, minor=self.gates.minor)

    def read_configuration(self) -> config.KubeSchedulerConfiguration:
        """The decoded configuration. Raises InputError, and ConfigurationError for an invalid one."""
        if isinstance(self.configuration, config.KubeSchedulerConfiguration):
            return self.configuration
        registry = self.registry()
        configuration = read_configuration(self.configuration, self.gates, registry)
        for name in never_enabled([plugin.name for plugin in self.plugins], configuration, registry):
            _log.warning("no profile enables plugin %s, so it is never called", name, extra=fields(plugin=name))
        return configuration

    def decoded(self) -> SchedulerOptions:
        """These options with the decoded configuration. Raises as :meth:`read_configuration`."""
        return msgspec.structs.replace(self, configuration=self.read_configuration())


def emulating(gates: config.FeatureGates, emulated_version: str) -> config.FeatureGates:
    """Gates in a minor version such as "1.33"; "" stands for the version that they have. Raises InputError."""
    if not emulated_version:
        return gates
    return gates.emulating(Minor.emulated(emulated_version, subject="emulated_version"))


class OfflineScheduler:
    """A cluster cache with everything of a cluster, maybe without one pod, and the pipeline that decides about pods.

    Raises ConfigurationError for an invalid configuration, and PluginError when a plugin cannot be constructed.
    """

    def __init__(
        self,
        cluster: ClusterObjects,
        options: SchedulerOptions,
        *,
        without: Pod | None = None,
        ties: TieBreak | None = None,
    ) -> None:
        """``ties`` chooses among nodes of equal score, by default the first by name."""
        registry, source = options.registry(), options.read_configuration()
        self.cache = ClusterCache(find_pod_group_apis(), gates=options.gates)
        handle = StaticHandle(self.cache, options.gates, cluster.time(DEFAULT_TIME))
        self.profiles: dict[str, Profile] = {
            profile.scheduler_name: build_profile(
                profile, registry, handle, percentage_of_nodes_to_score=source.percentage_of_nodes_to_score
            )
            for profile in source.profiles
        }
        self.extenders = len(source.extenders)
        self.pipeline = DecisionPipeline(self.cache, self.profiles, ties or FirstByName())
        put_objects(self.cache, cluster, self.profiles.values())
        self.absent = tuple(_absent(cluster, custom_kinds(self.profiles.values())))
        for info in (self.cache.shapes.info(pod) for pod in cluster.pods if pod is not without):
            self.cache.observe_pod(info)
            if info.spec.node_name:
                self.cache.put_pod(info)
            elif info.status.nominated_node_name:
                self.cache.nominate(info, info.status.nominated_node_name)

    def profile(self, pod: Pod) -> Profile:
        """The profile of a pod. Raises InputError if there is none."""
        profile = self.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            names = ", ".join(self.profiles)
            problem = f"spec.schedulerName is {pod.spec.scheduler_name}, the profiles of the configuration are: {names}"
            raise InputError(f"pod {pod.key}", problem)
        return profile


def with_all_candidate_nodes(profile: config.KubeSchedulerProfile) -> config.KubeSchedulerProfile:
    """The profile with a preemption that considers every node, instead of some after a random one."""
    every_node = DefaultPreemptionArgs(min_candidate_nodes_percentage=100)
    return msgspec.structs.replace(
        profile,
        plugin_config=tuple(
            msgspec.structs.replace(entry, args=every_node) if isinstance(entry.args, DefaultPreemptionArgs) else entry
            for entry in profile.plugin_config
        ),
    )


def find_pod(cluster: ClusterObjects, name: str) -> Pod:
    """The pod that is called ``namespace/name``, or ``name`` in the namespace default. Raises InputError."""
    namespace, _, pod_name = name.rpartition("/")
    wanted = f"{namespace or 'default'}/{pod_name}"
    for pod in cluster.pods:
        if pod.metadata.name == pod_name and pod.key == wanted:
            return pod
    problem = "no such pod in the cluster, finished pods aside"
    raise InputError(f"pod {wanted}", problem + similar(wanted, (pod.key for pod in cluster.pods)))


def similar(wanted: str, known: Iterable[str]) -> str:
    """``; similar: …`` with names that begin with a wanted one, else those closest to it; empty if none is close."""
    names = list(known)
    found = heapq.nsmallest(_MOST_SIMILAR, (name for name in names if name.startswith(wanted)))
    found = found or difflib.get_close_matches(wanted, names, n=_MOST_SIMILAR)
    return f"; similar: {', '.join(found)}" if found else ""


def extenders_text(count: int) -> str:
    """A remark about the extenders of a configuration, which are not called offline."""
    called = counted(count, "extender of the configuration was", "extenders of the configuration were")
    return f"{called} not called"


def is_attempted(pod: Pod) -> bool:
    """Whether a scheduler attempts a pending pod: one that is not being deleted, without scheduling gates."""
    return not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None


def unbound(pod: Pod) -> Pod:
    """The pod as it would be if it was new: without its node, its nomination, and the resources reported for it."""
    status = msgspec.structs.replace(
        pod.status,
        nominated_node_name="",
        conditions=[],
        container_statuses=[],
        init_container_statuses=[],
        resources=None,
        allocated_resources={},
    )
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""), status=status)


def put_objects(
    cache: ClusterCache,
    cluster: ClusterObjects,
    profiles: Iterable[Profile],
    *,
    excluded_nodes: frozenset[str] = frozenset(),
    kinds: frozenset[str] | None = None,
) -> None:
    """Put nodes and all other objects but pods into a cache, with the custom resources that plugins of profiles read.

    ``kinds`` are the only kinds that are put beside nodes and namespaces; None stands for all. Raises InputError for a
    custom resource that cannot be decoded, and for a kind that the input leaves out: plugins would decide as if there
    was no object of it.
    """
    for node in cluster.nodes:
        if node.metadata.name not in excluded_nodes:
            cache.add_node(node)
    for obj in cluster.objects:
        if isinstance(obj, Namespace):
            cache.put_namespace(obj.metadata.name, obj.metadata.labels)
        elif kinds is None or type(obj).__name__ in kinds:
            cache.catalog(type(obj)).put(obj)
    read = {kind: names for kind, names in custom_kinds(profiles).items() if kinds is None or kind.__name__ in kinds}
    for kind, names in read.items():
        if cluster.listed is not None and "/".join(kind.address()) not in cluster.listed:
            problem = f"left out, but {names} decides by them; take the snapshot with the same --config and --plugin"
            raise InputError("the cluster", problem, place=kind.resource)
    for obj in custom_objects(cluster.custom_resources, read):
        cache.catalog(type(obj)).put(obj)


def custom_kinds(profiles: Iterable[Profile]) -> dict[type[CustomObject], str]:
    """The custom kinds that the plugins of profiles read, each with the names of these plugins."""
    found: dict[type[CustomObject], dict[str, None]] = {}
    for plugin in (plugin for profile in profiles for plugin in profile.plugins):
        for kind in plugin.watched_kinds():
            if issubclass(kind, CustomObject):
                found.setdefault(kind, {})[plugin.name] = None
    by_name = sorted(found, key=lambda kind: (kind.resource, kind.__qualname__))
    return {kind: ", ".join(found[kind]) for kind in by_name}


def _absent(cluster: ClusterObjects, read: Mapping[type[CustomObject], str]) -> Iterator[str]:
    """Remarks about the custom kinds that plugins read and of which the cluster cannot have any object."""
    for kind, names in read.items():
        decided = f"{names} decides as if there was none"
        if cluster.listed is not None and not cluster.listed["/".join(kind.address())]:
            yield f"the API server does not serve {kind.resource}: {decided}"
        elif (
            cluster.listed is None
            and cluster.sources
            and not any((source.api_version, source.kind) == kind.api_type() for source in cluster.custom_resources)
        ):
            yield f"the input has no {kind.__name__} ({kind.resource}): {decided}"
