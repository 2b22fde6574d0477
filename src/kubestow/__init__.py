"""kubestow: a Kubernetes scheduler in Python, deciding as kube-scheduler v1.36 does.

The rooms, from the bottom up (a test holds the direction of the arrows):

- :mod:`kubestow.api`: Kubernetes objects as the scheduler reads them; quantities; selectors
- :mod:`kubestow.config`: KubeSchedulerConfiguration v1: types, defaults, validation
- :mod:`kubestow.cluster`: what the scheduler knows of the cluster, as columns and counters
- :mod:`kubestow.framework`: the contract with plugins, and the runtime that asks them
- :mod:`kubestow.plugins`: one module per in-tree plugin
- :mod:`kubestow.scheduling`: queue, scheduling cycle, binding cycle, event handlers
- :mod:`kubestow.client`, :mod:`kubestow.devcluster.apiserver`, :mod:`kubestow.simulation`: the worlds it runs in
- :mod:`kubestow.workloads`: clusters and pods to play with
- :mod:`kubestow.observability`: metrics, the log, what became of each pod's last attempt
- :mod:`kubestow.serving`: the secure port: health, metrics, why a pod is pending
- :mod:`kubestow.demo`: the main job on an embedded default
- :mod:`kubestow.testing`: builders and a world for tests, also those of plugin authors
- :mod:`kubestow.app`: the scheduler on a real cluster, put together
- :mod:`kubestow.cli`: the commands

A program that brings its own plugins calls :func:`kubestow.run`; importing the package alone loads nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubestow.app import run
    from kubestow.version import VERSION as __version__  # noqa: N811

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from kubestow.version import VERSION

        return VERSION
    if name == "run":
        from kubestow.app import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
