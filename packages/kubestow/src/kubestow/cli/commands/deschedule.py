"""``kubestow deschedule``: evict pods by a descheduler policy or a plan, or report what that would do.

The flags are the descheduler's.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING

import click

from kubestow.cli.flags.command import FlagCommand, Flags
from kubestow.cli.flags.descheduler import DESCHEDULE
from kubestow.cli.output import print_result
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.cli.input.scheduler import SchedulerInput
    from kubestow.descheduling.descheduler_policy import DeschedulerPolicy
    from kubestow.descheduling.dry_run.loop_report import LoopReport
    from kubestow.descheduling.dry_run.rescheduling import Mode
    from kubestow.descheduling.interface import DeschedulingPlugin


@click.command(cls=FlagCommand, catalog=DESCHEDULE)
def deschedule(flags: Flags) -> int:
    """Evict pods by a DeschedulerPolicy, once or in a loop, or by a plan of defragmentation.

    With --dry-run nothing is evicted: the report names the pods that would be, from where and why, and where the
    scheduler would put those that come back. The cluster of a dry run is a dump, or the live one of a kubeconfig.
    """
    from kubestow.descheduling.descheduler_policy import load_policy
    from kubestow.descheduling.strategies.plugin_registry import find_plugins
    from kubestow.files import read_file

    if flags["plan"] is not None:
        return _carry_out(flags)
    for name in ("cordon", "move-timeout"):
        if name in flags.changed:
            raise InputError(f"--{name}", "is for a plan (--plan)")
    if flags["policy-config-file"] is None:
        raise InputError("--policy-config-file", "must be set")
    registry, file = find_plugins(flags["plugin"]), flags["policy-config-file"]
    policy = load_policy(read_file(file), registry=registry, subject=str(file))
    if flags["cluster"] and not flags["dry-run"]:
        raise InputError("--cluster", "a cluster of a file can only be descheduled with --dry-run")
    interval = flags["descheduling-interval"].nanoseconds
    if interval < 0:
        raise InputError("--descheduling-interval", f"must not be negative, got {flags['descheduling-interval']}")
    if flags["cluster"] and interval:
        raise InputError("--cluster", "a cluster of a file does not change, so there is no --descheduling-interval")
    if flags["now"] and not flags["cluster"]:
        raise InputError("--now", "is for a dry run with --cluster; a live cluster is descheduled at the present time")
    if not flags["cluster"]:
        return _run(flags, policy, registry)
    run = _dry_run(flags, policy, registry)
    for error in run.result.errors:
        click.echo(f"kubestow: {error}", err=True)
    _print(flags, run)
    return 1 if run.result.errors else 0


# -- live --------------------------------------------------------------------------------------------------------------


def _run(flags: Flags, policy: DeschedulerPolicy, registry: dict[str, type[DeschedulingPlugin]]) -> int:
    """Run on a live cluster, once or in a loop, until a signal. Raises KubestowError.

    The exit status is 1 if a plugin failed in the last loop.
    """
    from kubestow.cli.ending import run_until, wait_for_signal
    from kubestow.cli.flags import effective
    from kubestow.client.leader_election import LeaseTimings
    from kubestow.client.rest.transport import RateLimit
    from kubestow.descheduling.program.descheduler_app import DeschedulerApp, DeschedulerOptions, LeaseOptions

    effective.set_up_logs(flags)
    lease = None
    if flags["leader-elect"]:
        if flags["leader-elect-resource-lock"] != "leases":
            lock = flags["leader-elect-resource-lock"]
            raise InputError("--leader-elect-resource-lock", f"expected leases, got {lock}")
        durations = (flags[f"leader-elect-{name}"] for name in ("lease-duration", "renew-deadline", "retry-period"))
        lease = LeaseOptions(
            flags["leader-elect-resource-namespace"],
            flags["leader-elect-resource-name"],
            LeaseTimings(*(duration.seconds for duration in durations)),
        )
    reports_once = flags["dry-run"] and not flags["descheduling-interval"].nanoseconds
    options = DeschedulerOptions(
        interval=flags["descheduling-interval"].seconds,
        dry_run=flags["dry-run"],
        mode=_mode(flags),
        scheduler=_scheduler_input(flags).read_for_server(),
        serving=None if flags["disable-metrics"] or reports_once else effective.serving_options(flags),
        lease=lease,
        rate_limit=RateLimit(flags["client-connection-qps"], flags["client-connection-burst"]),
        seed=_seed(flags["seed"]),
    )
    status = 0

    def report(run: LoopReport) -> None:
        nonlocal status
        status = 1 if run.result.errors else 0
        if flags["dry-run"]:
            _print(flags, run)

    subject = str(flags["policy-config-file"])
    app = DeschedulerApp(policy, registry, options, subject=subject, on_result=report)
    running = app.run(
        kubeconfig=flags["client-connection-kubeconfig"] or flags["kubeconfig"],
        master=flags["master"],
        context=flags["context"],
    )
    asyncio.run(run_until(running, wait_for_signal()))
    return status


# -- a plan ------------------------------------------------------------------------------------------------------------


def _carry_out(flags: Flags) -> int:
    """Carry out a plan, or check whether it holds. Raises KubestowError. The exit status is 1 if it was stopped."""
    from kubestow.cli.ending import run_until, wait_for_signal
    from kubestow.cli.flags import effective
    from kubestow.client.rest.transport import RateLimit
    from kubestow.descheduling.defragmentation.plan import read_plan
    from kubestow.descheduling.defragmentation.progress import progress_of
    from kubestow.descheduling.program.plan_execution import (
        ExecutionOptions,
        PlanExecution,
        PlanExecutor,
        rehearsal_of,
    )
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.files import read_file, read_standard_input

    for name in ("policy-config-file", "now", "rescheduling", "descheduling-interval", "leader-elect"):
        if name in flags.changed:
            raise InputError(f"--{name}", "is for a policy, not for a plan")
    if flags["move-timeout"].nanoseconds < 0:
        raise InputError("--move-timeout", f"must not be negative, got {flags['move-timeout']}")
    file = flags["plan"]
    plan = read_plan(read_standard_input() if str(file) == "-" else read_file(file), str(file))
    ended: list[PlanExecution] = []
    if flags["cluster"]:
        if not flags["dry-run"]:
            raise InputError("--cluster", "a plan can only be carried out on a live cluster; use --dry-run")
        cluster = ClusterObjects.load(*flags["cluster"])
        progress = progress_of(plan, cluster, _scheduler_input(flags).read(cluster), cordons=flags["cordon"])
        ended.append(rehearsal_of(plan, progress, server_version=cluster.server_version))
    else:
        effective.set_up_logs(flags)
        options = ExecutionOptions(
            dry_run=flags["dry-run"],
            cordons=flags["cordon"],
            move_timeout=flags["move-timeout"].seconds,
            scheduler=_scheduler_input(flags).read_for_server(),
            rate_limit=RateLimit(flags["client-connection-qps"], flags["client-connection-burst"]),
        )
        running = PlanExecutor(plan, options).run(
            kubeconfig=flags["client-connection-kubeconfig"] or flags["kubeconfig"],
            master=flags["master"],
            context=flags["context"],
            on_end=ended.append,
        )
        asyncio.run(run_until(running, wait_for_signal()))
    for execution in ended:
        print_result(execution.document, execution, flags["output"])
    return int(any(execution.problem for execution in ended) or not ended)


# -- dry run -----------------------------------------------------------------------------------------------------------


def _dry_run(flags: Flags, policy: DeschedulerPolicy, registry: dict[str, type[DeschedulingPlugin]]) -> LoopReport:
    from kubestow.cli.output import print_input
    from kubestow.descheduling.descheduler_policy import with_priority_thresholds
    from kubestow.descheduling.dry_run.loop_report import read_snapshot, run_loop
    from kubestow.descheduling.dry_run.rescheduling import Mode, Rescheduler
    from kubestow.descheduling.loop import Descheduler
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.input.documents import Problems, read_objects
    from kubestow.rules.pods import is_terminal
    from kubestow.scheduling.decision.node_selection import RandomTie

    now, mode = _now(flags["now"]), _mode(flags)
    problems = Problems()
    snapshot, usable = read_snapshot(read_objects(flags["cluster"], problems), problems)
    policy = with_priority_thresholds(policy, snapshot.priority_classes, subject=str(flags["policy-config-file"]))
    cluster = ClusterObjects.of_sources(usable, problems, subject=", ".join(flags["cluster"]))
    if cluster.summary.problems:
        print_input("cluster", cluster.summary)
    known = {pod.metadata.uid for pod in cluster.pods}
    snapshot.pods = [pod for pod in snapshot.pods if pod.metadata.uid in known or is_terminal(pod.status.phase)]
    rescheduler = None
    if mode is not None:
        options = _scheduler_input(flags).read(cluster)
        rescheduler = Rescheduler(cluster, options, now=now, ties=RandomTie(Random(_seed(flags["seed"]))))
    descheduler = Descheduler(policy, registry)
    run = run_loop(descheduler, snapshot, now=now, rescheduler=rescheduler, mode=mode or Mode.REPORT)
    return replace(run, server_version=cluster.server_version)


def _scheduler_input(flags: Flags) -> SchedulerInput:
    from kubestow.cli.input.scheduler import SchedulerInput

    gates = [gate for gate in flags["feature-gates"] if not gate.startswith("EvictionsInBackground=")]
    return SchedulerInput(flags["config"], flags["scheduler-plugin"], ",".join(gates), flags["emulated-version"])


def _mode(flags: Flags) -> Mode | None:
    """What is done about pods that come back to no use; None if the scheduler is not asked."""
    from kubestow.descheduling.dry_run.rescheduling import Mode

    chosen = flags["rescheduling"]
    if chosen == "auto":
        chosen = "refuse" if flags["dry-run"] else "off"
    return None if chosen == "off" else Mode(chosen)


def _now(text: str) -> datetime:
    if not text:
        return datetime.now(UTC)
    try:
        now = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("--now", f'expected a time such as 2026-07-01T00:00:00Z, got "{text}"') from None
    return now if now.tzinfo is not None else now.replace(tzinfo=UTC)


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError("--seed", f'expected an integer, got "{text}"') from None


def _print(flags: Flags, run: LoopReport) -> None:
    from kubestow.descheduling.dry_run.loop_report import document

    print_result(lambda: document(run), run, flags["output"])
    sys.stdout.flush()
