"""kubestow: a Kubernetes scheduler in Python that makes the decisions of kube-scheduler v1.36.

The packages, from the bottom up (import contracts in pyproject.toml enforce the direction):

- :mod:`kubestow.api`: Kubernetes objects as the scheduler reads them; quantities; selectors
- :mod:`kubestow.rules`: what Kubernetes defines about its own objects, each rule once
- :mod:`kubestow.config`: KubeSchedulerConfiguration v1: types, defaults, validation
- :mod:`kubestow.cluster`: the scheduler cache: nodes and pods as columns and counters
- :mod:`kubestow.framework`: the plugin interface, and the runtime that calls plugins
- :mod:`kubestow.plugins`: the in-tree plugins
- :mod:`kubestow.scheduling`: queue, scheduling cycle, binding cycle, event handlers
- :mod:`kubestow.client`: the backend of a scheduler on a real API server
- :mod:`kubestow.engine`: the same decisions without a living scheduler: files, virtual time, explanations
- :mod:`kubestow.observability`: metrics, logs, the last scheduling attempt of each pod
- :mod:`kubestow.dashboard`: what the scheduler knows, in a browser
- :mod:`kubestow.flight_record`: the inputs and decisions of a scheduler in files, and their replay
- :mod:`kubestow.http`: the HTTP server of all programs: listener, TLS, messages
- :mod:`kubestow.serving`: the secure port: health checks, metrics, debug endpoints
- :mod:`kubestow.extender`: plugins served to another scheduler as an extender
- :mod:`kubestow.descheduling`: which pods should leave their nodes, and the descheduler's program
- :mod:`kubestow.testing`: builders and a virtual cluster for tests, for plugin authors as well
- :mod:`kubestow.cli`: the commands

The laboratory, the development cluster and the plugins of other projects are distributions of their own.

In docstrings and comments, "semantics N.N" refers to a section of docs/semantics.md.

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
