"""The scheduler as part of a program with plugins of its own: ``kubestow.run`` is ``kubestow run`` for Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubestow.cli.commands.run import run_scheduler
from kubestow.cli.flags.command import parse_flags
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.framework.interface import Plugin
    from kubestow.scheduling.scheduler import Scheduler


def run(
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    config: Path | str | Mapping[str, Any] | None = None,
    kubeconfig: Path | str = "",
    master: str = "",
    feature_gates: str = "",
    emulated_version: str = "",
    seed: int | None = None,
    flags: Sequence[str] = (),
    on_ready: Callable[[Scheduler], None] = lambda scheduler: None,
) -> None:
    """Schedule the pods of a cluster until SIGINT or SIGTERM, as ``kubestow run`` does.

    ``plugins`` maps names to plugin classes, which are registered in addition to the in-tree plugins and those of
    installed packages; ``config``, a KubeSchedulerConfiguration as a file or plain data, enables and configures them.
    ``kubeconfig`` and ``master`` select the cluster. ``feature_gates`` is spelled ``Name=true,Other=false``.
    ``emulated_version`` is the minor version of Kubernetes to emulate, such as "1.33", by default that of the API
    server. ``seed`` makes the choice among nodes of equal score repeatable. ``flags`` are flags of ``kubestow run`` as
    on the command line, such as ``sys.argv[1:]``, and override the arguments before them. Health checks and metrics are
    served on ``--secure-port``, 10259 by default. ``on_ready`` is called once, when scheduling begins.

    Waits for an API server that is not available yet. Raises InputError for invalid input, APIError if the API server
    rejects the credentials, LeaseLost if leadership is lost.
    """
    source = config if isinstance(config, Mapping) else None
    arguments = {
        "config": "" if source is not None or config is None else str(config),
        "kubeconfig": str(kubeconfig),
        "master": master,
        "feature-gates": feature_gates,
        "emulated-version": emulated_version,
        "seed": "" if seed is None else str(seed),
    }
    parsed = parse_flags([*(f"--{name}={text}" for name, text in arguments.items() if text), *flags])
    if source is not None and parsed["config"] is not None:
        raise InputError("--config", "cannot be used with a configuration in the program")
    run_scheduler(parsed, plugins=plugins, source=source, on_ready=on_ready)
