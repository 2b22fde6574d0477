"""kubestow: a Kubernetes scheduler in Python, deciding as kube-scheduler v1.36 does.

The rooms, from the bottom up (a test holds the direction of the arrows):

- :mod:`kubestow.api`: Kubernetes objects as the scheduler reads them; quantities; selectors
- :mod:`kubestow.config`: KubeSchedulerConfiguration v1: types, defaults, validation
- :mod:`kubestow.cluster`: what the scheduler knows of the cluster, as columns and counters
- :mod:`kubestow.framework`: the contract with plugins, and the runtime that asks them
- :mod:`kubestow.plugins`: one module per in-tree plugin
- :mod:`kubestow.scheduling`: queue, scheduling cycle, binding cycle, event handlers
- :mod:`kubestow.client`, :mod:`kubestow.apiserver`, :mod:`kubestow.simulator`: the worlds it runs in
- :mod:`kubestow.workloads`: clusters and pods to play with
- :mod:`kubestow.demo`: the main job on an embedded default
- :mod:`kubestow.testing`: builders and a world for tests, also those of plugin authors
- :mod:`kubestow.cli`: the commands
"""

__version__ = "0.1.0"
