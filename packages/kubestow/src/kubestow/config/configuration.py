"""The types of a KubeSchedulerConfiguration (semantics 2.1, 2.2, 2.6).

The fields mirror the v1 API in snake case. :func:`kubestow.config.load` returns a complete configuration: every default
is set, and every profile has its merged plugin sets and the arguments of each in-tree plugin that it enables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import field

from kubestow.api.formats.duration import Duration
from kubestow.rules.minors import Behaviour, Minor

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"

# A bare int is an int32, see the decoder.
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ExtensionPoint(StrEnum):
    """The extension points of a profile, by their names in the configuration.

    In the order in which kube-scheduler builds a profile, so that the first error reported is the same.
    """

    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    RESERVE = "reserve"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
    PERMIT = "permit"
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"
    POD_GROUP_POST_FILTER = "podGroupPostFilter"

    @property
    def interface(self) -> str:
        """The name of the plugin interface in kube-scheduler: "PreFilterPlugin"."""
        return f"{self.value[0].upper()}{self.value[1:]}Plugin"

    @property
    def scores(self) -> bool:
        """Whether plugins of this point have a weight."""
        return self in (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)


_ADDED = {
    ExtensionPoint.PLACEMENT_GENERATE: Behaviour.PLACEMENT_EXTENSION_POINTS,
    ExtensionPoint.PLACEMENT_SCORE: Behaviour.PLACEMENT_EXTENSION_POINTS,
    ExtensionPoint.POD_GROUP_POST_FILTER: Behaviour.POD_GROUP_POST_FILTER,
}


def extension_points(minor: Minor) -> tuple[ExtensionPoint, ...]:
    """The extension points of a minor version, in the order of :class:`ExtensionPoint`."""
    return tuple(point for point in ExtensionPoint if point not in _ADDED or minor.has(_ADDED[point]))


class _ConfigObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of all configuration types."""


class ClientConnectionConfiguration(_ConfigObject, frozen=True):
    """The connection to the API server. ``qps``, requests per second, is unlimited if it is not positive.

    kube-scheduler limits requests to 50 per second by default; 0 stands for the default, too.
    """

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = -1.0
    burst: int = 100


class LeaderElectionConfiguration(_ConfigObject, frozen=True):
    """Leader election between replicas of the scheduler."""

    leader_elect: bool = True
    lease_duration: Duration = Duration.of(seconds=15)
    renew_deadline: Duration = Duration.of(seconds=10)
    retry_period: Duration = Duration.of(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class PluginEntry(_ConfigObject, frozen=True):
    """A plugin in a set; ``weight`` applies to Score and PlacementScore only."""

    name: str = ""
    weight: int | None = None


class PluginSet(_ConfigObject, frozen=True):
    """The plugins enabled and disabled at an extension point; "*" disables all default plugins."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()

    @property
    def disabled_names(self) -> frozenset[str]:
        """The names of the disabled plugins, which may include "*"."""
        return frozenset(entry.name for entry in self.disabled)


class Plugins(_ConfigObject, frozen=True):
    """A profile's plugin sets: one per extension point, and ``multi_point`` for every point a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()

    def at(self, point: ExtensionPoint) -> PluginSet:
        """The plugin set of one extension point."""
        plugin_set: PluginSet = getattr(self, point.name.lower())
        return plugin_set

    @property
    def enabled_names(self) -> frozenset[str]:
        """The names of all plugins enabled at any point."""
        sets = (self.multi_point, *(self.at(point) for point in ExtensionPoint))
        return frozenset(entry.name for plugin_set in sets for entry in plugin_set.enabled)


class PluginConfig(_ConfigObject, frozen=True):
    """The arguments of one plugin: a Struct of :mod:`plugin_args` for an in-tree plugin, else plain data or None."""

    name: str = ""
    args: Any = None


class KubeSchedulerProfile(_ConfigObject, frozen=True):
    """A scheduling profile, selected by the ``schedulerName`` of a pod."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of each configured plugin, by plugin name."""
        return MappingProxyType({config.name: config.args for config in self.plugin_config})


class ExtenderManagedResource(_ConfigObject, frozen=True):
    """An extended resource managed by an extender; NodeResourcesFit skips it if ``ignored_by_scheduler``."""

    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderTLSConfig(_ConfigObject, frozen=True):
    """The TLS client configuration of an extender; inline data takes precedence over files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class Extender(_ConfigObject, frozen=True):
    """A scheduler extender: an HTTP webhook for filter, prioritize, preempt or bind. An empty verb is not called.

    ``http_timeout`` 0 means the default of five seconds.
    """

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: _Int64 = 0
    bind_verb: str = ""
    enable_https: bool = field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLSConfig | None = None
    http_timeout: Duration = Duration()
    node_cache_capable: bool = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: bool = False


class KubeSchedulerConfiguration(_ConfigObject, frozen=True):
    """A KubeSchedulerConfiguration.

    ``percentage_of_nodes_to_score`` 0, the default, scores every feasible node; kube-scheduler samples adaptively
    there, as does a profile with the arguments ``NodeSampling: {adaptive: true}``.
    """

    parallelism: int = 16
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int = 0
    pod_initial_backoff_seconds: _Int64 = 1
    pod_max_backoff_seconds: _Int64 = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
