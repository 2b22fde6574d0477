"""Contributed plugins, which kube-scheduler does not have; none is enabled by default.

Those of scheduler-plugins, crane-scheduler and koordinator have the same names and args as the originals, and the
registry (:mod:`kubestow.plugins.registry`) knows them: a configuration enables them like in-tree plugins. None is
imported unless it is enabled. docs/contrib.md describes each, docs/fragmentation.md those for GPU sharing. The pod
groups of the co-scheduling plugin and of Volcano count for GangScheduling wherever this distribution is installed.
"""
