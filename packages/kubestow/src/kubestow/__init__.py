"""kubestow: a Kubernetes scheduler in Python that makes the decisions of kube-scheduler v1.36.

The packages, from the bottom up (import contracts in pyproject.toml enforce the direction):

- :mod:`kubestow.api`: Kubernetes objects as the scheduler reads them; quantities; selectors
- :mod:`kubestow.config`: KubeSchedulerConfiguration v1: types, defaults, validation
- :mod:`kubestow.cluster`: the scheduler cache: nodes and pods as columns and counters
- :mod:`kubestow.framework`: the plugin interface, and the runtime that calls plugins
- :mod:`kubestow.plugins`: the in-tree plugins
- :mod:`kubestow.scheduling`: queue, scheduling cycle, binding cycle, event handlers
- :mod:`kubestow.client`, :mod:`kubestow_devcluster`, :mod:`kubestow_lab.simulation`: the backends a scheduler runs on
- :mod:`kubestow_lab.workloads`: generated clusters and pods
- :mod:`kubestow.observability`: metrics, logs, the last scheduling attempt of each pod
- :mod:`kubestow.flight_record`: the inputs and decisions of a scheduler in files, and their replay
- :mod:`kubestow.serving`: the secure port: health checks, metrics, debug endpoints
- :mod:`kubestow.extender`: plugins served to another scheduler as an extender
- :mod:`kubestow_lab.demo`: a workload scheduled on an embedded API server
- :mod:`kubestow.testing`: builders and a virtual cluster for tests, for plugin authors as well
- :mod:`kubestow.app`: the scheduler on a real cluster
- :mod:`kubestow.cli`: the commands

A program with plugins of its own calls :func:`kubestow.run`. Importing this package imports none of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubestow.cli.program import run
    from kubestow.version import VERSION as __version__  # noqa: N811

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from kubestow.version import VERSION

        return VERSION
    if name == "run":
        from kubestow.cli.program import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
