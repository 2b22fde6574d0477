"""The objects of a cluster that was read from files, in the cluster cache of a scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.api.core import Namespace
from kubestow.api.custom import CustomObject
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.engine.input.cluster import Cluster
from kubestow.framework.profile import Profile

__all__ = ["put_objects"]


def put_objects(
    cache: ClusterCache,
    cluster: Cluster,
    profiles: Iterable[Profile],
    *,
    excluded_nodes: frozenset[str] = frozenset(),
    kinds: frozenset[str] | None = None,
) -> None:
    """Put nodes and all other objects but pods into a cache, with the custom resources that plugins of profiles read.

    ``kinds`` are the only kinds that are put beside nodes and namespaces; None stands for all. Raises InputError for a
    custom resource that cannot be decoded.
    """
    for node in cluster.nodes:
        if node.metadata.name not in excluded_nodes:
            cache.add_node(node)
    for obj in cluster.objects:
        if isinstance(obj, Namespace):
            cache.put_namespace(obj.metadata.name, obj.metadata.labels)
        elif kinds is None or type(obj).__name__ in kinds:
            cache.catalog(type(obj)).put(obj)
    plugins = (plugin for profile in profiles for plugin in profile.plugins)
    custom = {kind for plugin in plugins for kind in plugin.watched_kinds() if issubclass(kind, CustomObject)}
    for obj in cluster.custom_objects(kind for kind in custom if kinds is None or kind.__name__ in kinds):
        cache.catalog(type(obj)).put(obj)
