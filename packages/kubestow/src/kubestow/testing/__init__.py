"""Test tools for plugins and for kubestow itself.

:func:`pod` and :func:`node` build API objects. A :class:`PluginHarness` evaluates scheduling decisions on a static
cluster. A :class:`MemoryCluster` is an in-memory cluster to run the scheduler on, and :func:`in_virtual_time` runs a
scenario with a running scheduler, a :class:`SchedulerHarness`, in virtual time. :func:`check_plugin` verifies a
plugin's contract.
"""

from kubestow.testing.builders import node, nodes, pod, pods
from kubestow.testing.contract import check_plugin
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.plugin_harness import PluginHarness
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

__all__ = [
    "MemoryCluster",
    "PluginHarness",
    "SchedulerHarness",
    "check_plugin",
    "in_virtual_time",
    "node",
    "nodes",
    "pod",
    "pods",
]
