"""Public tools for tests, of plugins and of kubestow itself.

:func:`pod` and :func:`node` build API objects in a line. A :class:`World` is a cluster to ask for decisions, without
time. A :class:`MemoryCluster` is one to run the scheduler on, and :func:`in_virtual_time` tells a story of a
:class:`Living` scheduler without waiting. :func:`check_plugin` runs a plugin through its contract.
"""

from kubestow.testing.builders import node, nodes, pod, pods
from kubestow.testing.contract import check_plugin
from kubestow.testing.living import Living, in_virtual_time
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.world import World

__all__ = ["Living", "MemoryCluster", "World", "check_plugin", "in_virtual_time", "node", "nodes", "pod", "pods"]
