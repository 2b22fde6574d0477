"""``kubestow run``: schedule the pods of a cluster, with kube-scheduler's flags."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import click

from kubestow.cli.flags.command import FlagCommand, Flags

if TYPE_CHECKING:
    from kubestow.app import SchedulerApp
    from kubestow.scheduling.scheduler import Scheduler

__all__ = ["run"]

_log = logging.getLogger(__name__)


@click.command(cls=FlagCommand)
@click.version_option(package_name="kubestow", message="kubestow %(version)s (Kubernetes v1.36.2)")
def run(flags: Flags) -> None:
    """Run the scheduler with the flags of kube-scheduler."""
    from kubestow.cli.flags import effective
    from kubestow.observability import logs

    split = flags["log-json-split-stream" if flags["logging-format"] == "json" else "log-text-split-stream"]
    logs.set_up(
        verbosity=flags["v"],
        json_format=flags["logging-format"] == "json",
        by_file=flags["vmodule"],
        split_stream=split,
    )
    app = _scheduler_app(flags)
    if flags["write-config-to"] is not None:
        effective.write_configuration(app.configuration, flags["write-config-to"])
        return
    for name, value in sorted(flags.as_text().items()):
        _log.log(logs.V(1), "FLAG", extra=logs.fields(flag=f"--{name}", value=value, changed=name in flags.changed))
    kubeconfig = effective.kubeconfig(app.configuration, flags)
    asyncio.run(app.run(kubeconfig=kubeconfig, master=flags["master"], on_ready=_log_ready, on_new_leader=_log_leader))
    _log.info("Stopped")


def _scheduler_app(flags: Flags) -> SchedulerApp:
    """The configured scheduler. Raises InputError for invalid flags, and for invalid files that they name."""
    from dataclasses import replace

    from kubestow.app import AppOptions, SchedulerApp
    from kubestow.cli.flags import effective

    app = SchedulerApp.create(
        plugin_references=flags["plugin"],
        source=flags["config"],
        feature_gates=effective.feature_gates(flags),
        seed=effective.seed(flags),
    )
    options = AppOptions(
        serving=effective.serving_options(flags),
        flags=flags.as_text(),
        disabled_metrics=flags["disabled-metrics"],
        allowed_labels=effective.allowed_labels(flags),
        pod_max_in_unschedulable_pods=flags["pod-max-in-unschedulable-pods-duration"].seconds,
    )
    configuration = effective.configured(app.configuration, flags, app.gates)
    return replace(app, configuration=configuration, options=options)


def _log_leader(identity: str) -> None:
    from kubestow.observability.logs import fields

    _log.info("New leader elected", extra=fields(identity=identity))


def _log_ready(scheduler: Scheduler) -> None:
    from kubestow.observability.logs import fields

    _log.info("Scheduling", extra=fields(nodes=len(scheduler.cluster.nodes), profiles=list(scheduler.profiles)))
