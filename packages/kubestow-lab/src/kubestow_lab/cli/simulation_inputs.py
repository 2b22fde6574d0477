"""What several commands take in: simulations and workloads, the options that name them, and their reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.command_group import grouped_options
from kubestow.cli.input.cluster import CONNECTION_OPTIONS, ClusterConnection, fetch_objects
from kubestow.cli.input.scheduler import SchedulerInput
from kubestow.cli.output import print_input

if TYPE_CHECKING:
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.input.documents import SourceObject
    from kubestow.engine.job_admission import AdmissionQueues
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
    from kubestow_lab.simulation.arrivals import Arrivals
    from kubestow_lab.simulation.plugin_failures import PluginFailure
    from kubestow_lab.simulation.simulation import SimulationOptions


@dataclass(frozen=True, slots=True)
class WorkloadInput(ClusterConnection):
    """The files of a cluster or where a live one is, and those of a workload; or a trace, and what is assumed about it.

    With ``reschedule``, the pods that run are part of the workload (:meth:`with_running_pods`).
    """

    clusters: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    trace: str | None = None
    pod_list: str = ""
    node_list: str = ""
    mapping: Path | None = None
    assumed: tuple[str, ...] = ()
    trace_window: str | None = None
    strict: bool = False
    reschedule: bool = False

    @property
    def has_source(self) -> bool:
        """Whether a cluster or a workload is given in any way."""
        return bool(self.clusters or self.workloads or self.trace is not None or self.is_given or self.reschedule)

    @property
    def is_live(self) -> bool:
        """Whether the cluster is a live one: also for a workload alone, which is about the cluster of kubectl."""
        return not self.clusters and self.trace is None

    def require_source(self) -> None:
        """Raise UsageError unless there is one source of a cluster or a workload, the latter only with a cluster."""
        sources = sum((bool(self.clusters), self.trace is not None, self.is_given))
        if sources > 1 or (not sources and not self.workloads) or (self.trace is not None and self.workloads):
            raise click.UsageError("expected either --cluster or --kubeconfig, with or without --workload, or --trace")
        if self.trace is None and (self.mapping or self.assumed or self.trace_window):
            raise click.UsageError("--mapping, --assume and --trace-window need --trace")

    def read(
        self, *schedulers: SchedulerInput, queued: Callable[[dict[str, Any]], bool] = lambda workload: False
    ) -> tuple[ClusterObjects, Arrivals]:
        """The cluster and the workload; what was read is printed on standard error.

        Of a live cluster, also the custom resources that plugins of the ``schedulers`` read. Workloads that are
        ``queued`` are kept as jobs. Raises UsageError, InputError, APIError and Unreachable.
        """
        from kubestow.engine.input.cluster_objects import ClusterObjects
        from kubestow_lab.simulation.arrivals import Arrivals

        self.require_source()
        if self.trace is not None:
            from kubestow_lab.traces.loading import load_trace, parse_window

            cluster, arrivals = load_trace(
                self.trace,
                pods=self.pod_list,
                nodes=self.node_list,
                assumed=self.assumed,
                mapping=self.mapping,
                window=None if self.trace_window is None else parse_window(self.trace_window),
            )
        else:
            if self.is_live:
                paths = {path: names for each in schedulers for path, names in each.custom_paths().items()}
                cluster = fetch_objects(self, paths).cluster(str(self))
            else:
                cluster = ClusterObjects.load(*self.clusters, strict=self.strict)
            arrivals = (
                Arrivals.load(*self.workloads, cluster=cluster, strict=self.strict, queued=queued)
                if self.workloads
                else Arrivals()
            )
        print_input("cluster", cluster.summary)
        if self.workloads or self.trace:
            print_input("workload", arrivals.summary)
        return cluster, arrivals

    def with_running_pods(self, cluster: ClusterObjects, *options: SchedulerOptions) -> ClusterObjects:
        """With ``reschedule``, the cluster with the running pods of these schedulers pending again; else as it is.

        Raises ConfigurationError.
        """
        from kubestow_lab.simulation.arrivals import rescheduled

        if not self.reschedule:
            return cluster
        configurations = (each.read_configuration() for each in options)
        names = {profile.scheduler_name for each in configurations for profile in each.profiles}
        return rescheduled(cluster, names)

    def arguments(self) -> Iterator[str]:
        """The same input on the command line of another installation. Raises UsageError for standard input."""
        if "-" in (*self.clusters, *self.workloads):
            raise click.UsageError("another installation cannot read standard input, expected files")
        for option, paths in (("--cluster", self.clusters), ("--workload", self.workloads)):
            for path in paths:
                yield from (option, path)
        if self.trace is not None:
            yield from ("--trace", self.trace, "--pod-list", self.pod_list, "--node-list", self.node_list)
            for setting in self.assumed:
                yield from ("--assume", setting)
            yield from () if self.mapping is None else ("--mapping", str(self.mapping))
            yield from () if self.trace_window is None else ("--trace-window", self.trace_window)
        yield from (["--strict"] if self.strict else [])
        yield from (["--reschedule"] if self.reschedule else [])


#: Those of a connection; without one of them and without a workload, no cluster is asked.
LIVE_OPTIONS = (
    click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of a live cluster, which is only read."),
    *CONNECTION_OPTIONS[1:],
)

#: Adds the options that say which cluster and workload are simulated; the command gets them as ``workload``.
workload_options = grouped_options(
    "workload",
    WorkloadInput,
    (
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
        *LIVE_OPTIONS,
        click.option(
            "--workload", "--filename", "-f", "workloads", multiple=True, help="Manifests of the pods to schedule."
        ),
        click.option(
            "--trace",
            metavar="FORMAT=PATH",
            help="A published trace, such as philly=FOLDER or swf=FILE; a folder alone is that of Alibaba's openb.",
        ),
        click.option("--pod-list", default="default", show_default=True, help="Pod list of openb."),
        click.option("--node-list", default="gpu_node", show_default=True, help="Node list of openb."),
        click.option(
            "--mapping",
            type=click.Path(path_type=Path, dir_okay=False),
            help="What the columns of --trace csv=FILE are.",
        ),
        click.option(
            "--assume",
            "assumed",
            multiple=True,
            metavar="KEY=VALUE",
            help="What is assumed where the trace says nothing; can be repeated.",
        ),
        click.option(
            "--trace-window", metavar="START:END", help="Only the pods that arrive then, in seconds from the first one."
        ),
        click.option("--strict", is_flag=True, help="Refuse input with any problem."),
        click.option(
            "--reschedule", is_flag=True, help="Schedule the running pods of controllers too, as if they were new."
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class QueueInput:
    """Whether the queues of another project, among the objects of the cluster, decide when jobs start."""

    kueue: bool
    queue_configuration: Path | None

    def require_dump(self, clusters: Sequence[str]) -> None:
        """Raise UsageError unless the cluster is a dump, or the queues do not decide."""
        if not self.kueue and self.queue_configuration is not None:
            raise click.UsageError("--queue-configuration needs --kueue")
        if self.kueue and not clusters:
            raise click.UsageError("--kueue needs --cluster with a dump that has Kueue's objects")

    def queued(self, clusters: Sequence[str]) -> Callable[[dict[str, Any]], bool]:
        """Which workloads wait in queues. Raises UsageError unless the cluster is a dump, and InputError."""
        self.require_dump(clusters)
        if not self.kueue:
            return lambda workload: False
        from kubestow.engine.job_admission import find_admission_system

        return find_admission_system("kueue").takes

    def admission(self, cluster: ClusterObjects, arrivals: Arrivals) -> Callable[[float], AdmissionQueues] | None:
        """Makes the queues of a cluster and a workload, which are read once now to report mistakes; None for none.

        Raises InputError.
        """
        if not self.kueue:
            return None
        open_queues = self.opener(arrivals.custom_resources)
        open_queues(cluster, 0.0)
        return lambda now: open_queues(cluster, now)

    def opener(self, further: Sequence[SourceObject] = ()) -> Callable[[ClusterObjects, float], AdmissionQueues]:
        """Makes the queues of any cluster, and ``further`` ones, at a time. Raises InputError, as does what is made."""
        from kubestow.engine.job_admission import find_admission_system
        from kubestow.errors import InputError

        system = find_admission_system("kueue")

        def open_queues(cluster: ClusterObjects, now: float) -> AdmissionQueues:
            found = system.open(cluster, further=further, configuration=self.queue_configuration, now=now)
            if found is None:
                raise InputError("--kueue", "the cluster has no ClusterQueue, expected Kueue's objects in the dump")
            return found

        return open_queues

    def arguments(self) -> Iterator[str]:
        """The same options on the command line of another installation."""
        yield from ("--kueue",) if self.kueue else ()
        if self.queue_configuration is not None:
            yield from ("--queue-configuration", str(self.queue_configuration))


#: Adds the options that say whether queues decide when jobs start; the command gets them as ``queues``.
queue_options = grouped_options(
    "queues",
    QueueInput,
    (
        click.option("--kueue", is_flag=True, help="Kueue's objects in the cluster decide when its jobs start."),
        click.option(
            "--queue-configuration",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Kueue's Configuration, or the ConfigMap with it, for fair sharing.",
        ),
    ),
)


def print_remarks(remarks: Iterable[str], simulation: str = "") -> None:
    """Print the remarks about a simulation, which can have a name, on standard error."""
    from kubestow.reports.text import printable

    for remark in remarks:
        click.echo(printable(": ".join(filter(None, ("remark", simulation, remark)))), err=True)


def report_plugin_failures(failures: Sequence[PluginFailure], simulation: str = "") -> bool:
    """Print on standard error which plugins failed how often in a simulation; whether any did."""
    from kubestow.reports.text import printable

    for failure in failures:
        click.echo(printable(": ".join(filter(None, ("kubestow", simulation, str(failure))))), err=True)
    return bool(failures)


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """The options of a simulation, as :class:`~kubestow_lab.simulation.simulation.SimulationOptions` has them."""

    seed: int
    ties: str
    departures: bool
    until: float | None
    measurements: Path | None
    driver: str

    def options(self) -> SimulationOptions:
        """The options, with the defaults of all that have no option on the command line. Raises InputError."""
        from kubestow_lab.simulation.node_metrics import Measurements
        from kubestow_lab.simulation.simulation import SimulationOptions

        measured = None if self.measurements is None else Measurements.load(self.measurements)
        return SimulationOptions(**asdict(self) | {"measurements": measured})

    def arguments(self) -> Iterator[str]:
        """The same options on the command line of another installation."""
        yield from ("--seed", str(self.seed), "--ties", self.ties)
        yield "--departures" if self.departures else "--no-departures"
        for option, value in (("--until", self.until), ("--measurements", self.measurements)):
            if value is not None:
                yield from (option, str(value))
        yield from () if self.driver == "auto" else ("--driver", self.driver)


def simulation_options(*, departures: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that say how a simulation is run; the command gets them as ``simulation``.

    ``departures`` is the default of the option with that name.
    """
    return grouped_options(
        "simulation",
        SimulationInput,
        (
            click.option("--seed", default=0, show_default=True, help="Seed of all random choices."),
            click.option(
                "--ties",
                type=click.Choice(["random", "name"]),
                default="random",
                show_default=True,
                help="Among nodes with equal scores, choose at random or the first by name.",
            ),
            click.option(
                "--departures/--no-departures", default=departures, show_default=True, help="Whether pods end."
            ),
            click.option(
                "--measurements",
                type=click.Path(path_type=Path, dir_okay=False),
                help="Metrics of nodes for plugins: what load-watcher answers, or a NodeMetricsList.",
            ),
            click.option("--until", type=click.FloatRange(min=0), help="End of the simulation, in virtual seconds."),
            click.option(
                "--driver",
                type=click.Choice(["auto", "scheduler"]),
                default="auto",
                show_default=True,
                help="Run the engine alone where that has the same result, or always the whole scheduler.",
            ),
        ),
    )
