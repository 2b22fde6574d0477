"""``kubestow run``: schedule the pods of a cluster, with kube-scheduler's flags."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.flags.command import FlagCommand, Flags
from kubestow.cli.input.scheduler import newest_valid
from kubestow.log_fields import V, fields
from kubestow.rules.minors import NOT_COMPARED, Minor

if TYPE_CHECKING:
    from kubestow.cli.scheduler_app import SchedulerApp
    from kubestow.framework.interface import Plugin
    from kubestow.scheduling.scheduler import Scheduler

_log = logging.getLogger(__name__)


@click.command(cls=FlagCommand)
def run(flags: Flags) -> None:
    """Run the scheduler with the flags of kube-scheduler."""
    run_scheduler(flags)


def run_scheduler(
    flags: Flags,
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    source: Mapping[str, Any] | None = None,
    on_ready: Callable[[Scheduler], None] = lambda scheduler: None,
) -> None:
    """Run the scheduler until it ends, as the command does. Raises InputError, APIError and LeaseLost.

    ``plugins`` are registered in addition, by name; ``source`` is a configuration in place of the file of ``--config``;
    ``on_ready`` is called when scheduling begins.
    """
    from kubestow.cli.flags import effective

    effective.set_up_logs(flags)
    minor = effective.emulated_minor(flags)
    create = partial(_scheduler_app, flags, plugins, source)
    app = newest_valid(create) if minor is None else create(minor)
    if flags["write-config-to"] is not None:
        effective.write_configuration(app.configuration, flags["write-config-to"])
        return
    for name, value in sorted(flags.as_text().items()):
        _log.log(V(1), "FLAG", extra=fields(flag=f"--{name}", value=value, changed=name in flags.changed))

    def ready(scheduler: Scheduler) -> None:
        nodes, profiles = len(scheduler.cluster.nodes), list(scheduler.profiles)
        _log.info("Scheduling", extra=fields(nodes=nodes, profiles=profiles))
        on_ready(scheduler)

    def new_leader(identity: str) -> None:
        _log.info("New leader elected", extra=fields(identity=identity))

    kubeconfig = app.configuration.client_connection.kubeconfig
    where = {"kubeconfig": kubeconfig, "master": flags["master"], "context": flags["context"]}

    async def schedule() -> None:
        emulating = app
        if minor is None:
            version = await app.server_version(**where)
            if version is None:
                return
            emulated = Minor.of_server(version)
            _log.info("Emulating the API server's version", extra=fields(server=version, emulated=str(emulated)))
            emulating = app if emulated == app.gates.minor else create(emulated)
            emulating = replace(emulating, options=replace(emulating.options, server_version=version))
        else:
            _log.info("Emulating the version of --emulated-version", extra=fields(emulated=str(minor)))
        if not emulating.gates.minor.is_compared:
            _log.info(NOT_COMPARED, extra=fields())
        await emulating.run(**where, on_ready=ready, on_new_leader=new_leader)

    app.run_on_new_loop(schedule())
    _log.info("Stopped")


def _scheduler_app(
    flags: Flags, plugins: Mapping[str, type[Plugin]] | None, source: Mapping[str, Any] | None, minor: Minor
) -> SchedulerApp:
    """The configured scheduler. Raises InputError for invalid flags, and for invalid files that they name."""
    from kubestow.cli.flags import effective
    from kubestow.cli.scheduler_app import AppOptions, SchedulerApp

    app = SchedulerApp.create(
        plugin_references=flags["plugin"],
        plugins=plugins,
        source=flags["config"] if source is None else source,
        feature_gates=effective.feature_gates(flags),
        minor=minor,
        seed=effective.seed(flags),
    )
    options = AppOptions(
        serving=effective.serving_options(flags),
        flags=flags.as_text(),
        disabled_metrics=flags["disabled-metrics"],
        allowed_labels=effective.allowed_labels(flags),
        pod_max_in_unschedulable_pods=flags["pod-max-in-unschedulable-pods-duration"].seconds,
        flight_record=flags["flight-record"],
        flight_record_size=effective.flight_record_size(flags),
        otlp_endpoint=effective.otlp_endpoint(flags),
        trace_sampling=flags["trace-sampling"],
    )
    configuration = effective.configured(app.configuration, flags, app.gates)
    options = replace(options, partitions=effective.partitions(flags, configuration))
    return replace(app, configuration=configuration, options=options)
