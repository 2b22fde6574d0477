"""The types of a KubeSchedulerConfiguration (semantics 2.1, 2.2, 2.6).

Field for field the v1 API in Python spelling. What :func:`kubestow.config.load` returns is complete: every default is
filled in, every profile carries its merged plugin sets and the arguments of every in-tree plugin it enables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import field

from kubestow.api.duration import Duration

__all__ = [
    "API_VERSION",
    "GROUP",
    "KIND",
    "ClientConnectionConfiguration",
    "Extender",
    "ExtenderManagedResource",
    "ExtenderTLSConfig",
    "ExtensionPoint",
    "KubeSchedulerConfiguration",
    "KubeSchedulerProfile",
    "LeaderElectionConfiguration",
    "PluginConfig",
    "PluginEntry",
    "PluginSet",
    "Plugins",
]

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"

# A bare int is an int32, see the decoder.
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ExtensionPoint(StrEnum):
    """The points at which a profile's plugins are called, as the configuration names them.

    The order is that in which the reference builds a profile, so the first problem it would meet is the first told.
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

    @property
    def interface(self) -> str:
        """What the reference calls a plugin of this point: "PreFilterPlugin"."""
        return f"{self.value[0].upper()}{self.value[1:]}Plugin"

    @property
    def scores(self) -> bool:
        """Whether plugins of this point have a weight."""
        return self in (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)


class _ConfigObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of what a configuration is made of."""


class ClientConnectionConfiguration(_ConfigObject, frozen=True):
    """How to talk to the API server. ``qps`` and ``burst`` are None where the file does not give them (or gives 0)."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float | None = None
    burst: int | None = None


class LeaderElectionConfiguration(_ConfigObject, frozen=True):
    """Whether and how replicas elect the one that schedules."""

    leader_elect: bool = True
    lease_duration: Duration = Duration.of(seconds=15)
    renew_deadline: Duration = Duration.of(seconds=10)
    retry_period: Duration = Duration.of(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class PluginEntry(_ConfigObject, frozen=True):
    """A plugin in a set; ``weight`` counts only where plugins score."""

    name: str = ""
    weight: int | None = None


class PluginSet(_ConfigObject, frozen=True):
    """The plugins enabled at a point and those disabled there ("*": all that would be there by default)."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()

    @property
    def disabled_names(self) -> frozenset[str]:
        """The names of the disabled plugins, perhaps with "*"."""
        return frozenset(entry.name for entry in self.disabled)


class Plugins(_ConfigObject, frozen=True):
    """A profile's plugin sets: one for each extension point, and ``multi_point`` for all a plugin implements."""

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

    def at(self, point: ExtensionPoint) -> PluginSet:
        """The set of one extension point."""
        plugin_set: PluginSet = getattr(self, point.name.lower())
        return plugin_set

    @property
    def enabled_names(self) -> frozenset[str]:
        """The names of all plugins enabled at any point."""
        sets = (self.multi_point, *(self.at(point) for point in ExtensionPoint))
        return frozenset(entry.name for plugin_set in sets for entry in plugin_set.enabled)


class PluginConfig(_ConfigObject, frozen=True):
    """The arguments of one plugin: a Struct of :mod:`plugin_args` for an in-tree plugin, else as written (or None)."""

    name: str = ""
    args: Any = None


class KubeSchedulerProfile(_ConfigObject, frozen=True):
    """One way of scheduling, chosen by a pod's ``schedulerName``."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments of each plugin that has any, by plugin name."""
        return MappingProxyType({config.name: config.args for config in self.plugin_config})


class ExtenderManagedResource(_ConfigObject, frozen=True):
    """An extended resource that an extender looks after, perhaps alone (``ignored_by_scheduler``)."""

    name: str = ""
    ignored_by_scheduler: bool = False


class ExtenderTLSConfig(_ConfigObject, frozen=True):
    """TLS towards an extender; the data of a certificate or key goes before its file."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class Extender(_ConfigObject, frozen=True):
    """An HTTP service that takes part in filtering, scoring, preemption or binding; an empty verb is not supported.

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
    """A whole KubeSchedulerConfiguration. ``percentage_of_nodes_to_score`` 0 adapts to the size of the cluster."""

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
