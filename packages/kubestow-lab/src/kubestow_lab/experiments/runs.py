"""The runs of an experiment, in parallel, into a folder from which anyone can reproduce every number.

    study/
      manifest.json            the experiment, the versions of what computed it, and the SHA-256 of each input file
      runs/openb.packed.0/     one folder per run
        metrics.parquet        all metrics: metric, value
        pods.parquet, nodes.parquet, timeline.parquet
        run.json               what ran, its remarks, the SHA-256 of its metrics; or why it failed

The folder of a run appears under its name once it is complete, so an interrupted experiment has lost at most the runs
that were under way, and resuming runs the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError, KubestowError
from kubestow.version import VERSION
from kubestow_lab.experiments.experiment_file import Experiment, Run, as_data
from kubestow_lab.metrics.energy_and_cost import NodeUsage
from kubestow_lab.metrics.run_metrics import metrics_of
from kubestow_lab.process_pool import ForkingPool, usable_cores
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.loaded_cluster import LoadedCluster
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import write_parquet

MANIFEST, RUNS, RUN, METRICS = "manifest.json", "runs", "run.json", "metrics.parquet"
#: What can change a number, besides kubestow itself.
_LIBRARIES = ("numpy", "msgspec", "polars")
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run that has ended: the SHA-256 of its metrics, or what it failed with."""

    run: Run
    digest: str = ""
    error: str = ""
    remarks: tuple[str, ...] = ()


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    resume: bool = False,
    processes: int | None = None,
    ended: Callable[[RunRecord, int, int], None] = lambda record, done, total: None,
) -> list[RunRecord]:
    """Run all of an experiment that ``folder`` does not have yet, in ``processes`` processes, one per core by default.

    ``ended`` is called with each run that has ended, the number of those that have, and of all. Runs that fail are
    records with an error, and run again when the experiment is resumed. Returns the records of all runs.

    Raises InputError if the folder holds something else, or another version of this experiment; without ``resume``, if
    it holds anything; and for input that no run can be made of.
    """
    _require_polars()
    for policy in experiment.policies:
        experiment.scheduler(policy)
    manifest = _manifest(experiment)
    _prepare(folder, manifest, resume=resume)
    runs = list(experiment.runs())
    records = {run: record for run in runs if (record := read_record(folder, run)) is not None and not record.error}
    for number, record in enumerate(records.values(), start=1):
        ended(record, number, len(runs))
    missing = [run for run in runs if run not in records]
    count = usable_cores() if processes is None else processes
    pool = None
    if count > 1 and len(missing) > 1:
        pool = ForkingPool(count, Inputs.read, experiment, missing, preload=__name__)
    with pool or nullcontext():
        for record in _ended_runs(experiment, folder, missing, pool):
            records[record.run] = record
            ended(record, len(records), len(runs))
    return [records[run] for run in runs]


def _ended_runs(
    experiment: Experiment, folder: Path, runs: Sequence[Run], pool: ForkingPool | None
) -> Iterator[RunRecord]:
    """The records of runs as they end. Raises InputError if a process is killed."""
    if pool is None:
        inputs = Inputs(experiment)
        for run in runs:
            yield _run(inputs, folder, run)
        return
    futures = [pool.submit(_run, folder, run) for run in runs]
    try:
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        problem = "a process ended in the middle of a run, maybe for want of memory; --resume goes on with what is left"
        raise InputError(str(folder), problem) from None
    finally:
        for future in futures:
            future.cancel()


def _run(inputs: Inputs, folder: Path, run: Run) -> RunRecord:
    """Run one simulation of an experiment, and write its folder."""
    target, partial = folder / RUNS / run.name, folder / RUNS / (run.name + _PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        record = _simulate(inputs, partial, run)
    except KubestowError as error:
        record = RunRecord(run, error=str(error))
    _write_json(partial / RUN, {**asdict(record), "remarks": list(record.remarks)})
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
    return record


def _simulate(inputs: Inputs, folder: Path, run: Run) -> RunRecord:
    experiment = inputs.experiment
    cluster, given = inputs.workload(run)
    cluster, arrivals = experiment.ordered(run, cluster, given)
    result = _simulation(experiment, run, cluster, arrivals).run(loaded=inputs.loaded.get(experiment.source_of(run)))
    if result.plugin_failures:
        return RunRecord(run, error=str(result.plugin_failures[0]), remarks=result.remarks)
    document = experiment.document
    usage = NodeUsage(cluster, arrivals, result)
    values = metrics_of(result) | usage.metrics(
        prices=document.prices, powers=document.power, intensities=document.carbon, subject=experiment.subject
    )
    write_parquet(result, folder)
    _write_metrics(values, folder / METRICS)
    return RunRecord(run, metrics_digest(values), remarks=result.remarks)


def _simulation(experiment: Experiment, run: Run, cluster: ClusterObjects, arrivals: Arrivals) -> Simulation:
    scheduler = experiment.scheduler(run.policy)
    return Simulation(
        cluster,
        arrivals,
        scheduler.configuration,
        scheduler.plugins,
        scheduler.gates,
        options=experiment.options(run),
    )


@dataclass(slots=True)
class Inputs:
    """The clusters and pods of an experiment, read once for all runs that have them in common.

    Without ``read`` those of the latest run are kept. ``loaded`` are the clusters that a scheduler has listed, of which
    each serves one run of this process.
    """

    experiment: Experiment
    workloads: dict[Run, tuple[ClusterObjects, Arrivals]] = field(default_factory=dict)
    loaded: dict[Run, LoadedCluster | None] = field(default_factory=dict)

    @classmethod
    def read(cls, experiment: Experiment, runs: Sequence[Run]) -> Inputs:
        """Read what more than one run needs, but for samples, which depend on the seed and take no time.

        Clusters are listed for policies without plugins of their own, whose modules may start threads.
        """
        inputs = cls(experiment)
        needed = Counter(source for run in runs if not (source := experiment.source_of(run)).seed)
        in_tree = {policy.name for policy in experiment.document.policies if not policy.plugins}
        for run in runs:
            source = experiment.source_of(run)
            with suppress(KubestowError):  # the runs fail with it, each with a record of its own
                if needed[source] > 1 and source not in inputs.workloads:
                    inputs.workloads[source] = experiment.workload(source)
                if source in inputs.workloads and source not in inputs.loaded and run.policy in in_tree:
                    simulation = _simulation(experiment, run, *inputs.workloads[source])
                    inputs.loaded[source] = simulation.load_cluster()
        return inputs

    def workload(self, run: Run) -> tuple[ClusterObjects, Arrivals]:
        """The cluster and the pods of a run, as they are in the files. Raises InputError."""
        source = self.experiment.source_of(run)
        found = self.workloads.get(source)
        if found is None:
            found = self.experiment.workload(source)
            self.workloads = {source: found}
        return found


def metrics_digest(values: Mapping[str, float]) -> str:
    """The SHA-256 of metrics, with each value exactly as it is."""
    lines = (f"{name} {float(value).hex()}\n" for name, value in sorted(values.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


# -- the folder ------------------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder. Raises InputError for a folder that has none."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or found.get("kind") != "Experiment":
            raise ValueError
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}; expected the folder of an experiment") from None
    except ValueError:
        raise InputError(str(path), "is not the manifest of an experiment") from None
    return found


def read_record(folder: Path, run: Run) -> RunRecord | None:
    """The record of a run; None if it has not ended."""
    try:
        found = json.loads((folder / RUNS / run.name / RUN).read_bytes())
        return RunRecord(run, found["digest"], found["error"], tuple(found["remarks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_metrics(folder: Path, run: Run) -> dict[str, float]:
    """The metrics of a run. Raises InputError if they cannot be read."""
    import polars as pl

    path = folder / RUNS / run.name / METRICS
    try:
        frame = pl.read_parquet(path)
        return dict(zip(frame["metric"].to_list(), frame["value"].to_list(), strict=True))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None


def _manifest(experiment: Experiment) -> dict[str, Any]:
    return {
        "kind": "Experiment",
        "experiment": as_data(experiment),
        "inputs": experiment.inputs(),
        "versions": {
            "kubestow": VERSION,
            "python": platform.python_version(),
            **{name: found for name in _LIBRARIES if (found := _version(name))},
        },
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
        "command": ["kubestow", *sys.argv[1:]],
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _prepare(folder: Path, manifest: dict[str, Any], *, resume: bool) -> None:
    """Write the manifest into a new folder, or check that of an existing one. Raises InputError."""
    try:
        is_empty = not folder.exists() or not any(folder.iterdir())
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(folder), f"cannot be used: {error.strerror}") from None
    if not is_empty:
        if not resume:
            raise InputError(str(folder), "is not empty; --resume goes on with an experiment, -d names another folder")
        _require_same(folder, read_manifest(folder), manifest)
        for partial in (folder / RUNS).glob("*" + _PARTIAL):
            shutil.rmtree(partial, ignore_errors=True)
    _write_json(folder / MANIFEST, manifest)


def _require_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise InputError unless both are one experiment, but for the seeds and what is shown of the results."""
    subject, free = str(folder / MANIFEST), ("seeds", "metrics", "level", "interval")
    remedy = "run it into another folder (-d)"
    was, is_now = (
        {name: value for name, value in each["experiment"].items() if name not in free} for each in (before, now)
    )
    for name in was.keys() | is_now.keys():
        if was.get(name) != is_now.get(name):
            raise InputError(subject, f"the experiment has other {name} now; {remedy}", place=f"experiment.{name}")
    for name in sorted(before["inputs"].keys() | now["inputs"].keys()):
        if before["inputs"].get(name) != now["inputs"].get(name):
            raise InputError(subject, f"this file has changed since; {remedy}", place=f"inputs[{name}]")
    if before["versions"]["kubestow"] != now["versions"]["kubestow"]:
        problem = f"was written by kubestow {before['versions']['kubestow']}, this is {now['versions']['kubestow']}"
        raise InputError(subject, f"{problem}; {remedy}", place="versions.kubestow")


def _write_metrics(values: Mapping[str, float], path: Path) -> None:
    import polars as pl

    frame = pl.DataFrame({"metric": list(values), "value": [float(value) for value in values.values()]})
    frame.write_parquet(path)


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file that is complete or not there."""
    partial = path.with_name(path.name + _PARTIAL)
    partial.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)


def _require_polars() -> None:
    try:
        import polars  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("experiment", "needs polars, install kubestow-lab[experiment]") from None
