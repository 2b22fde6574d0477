"""The search: trials of candidates in generations, each trial one or more simulations of the same workload.

A space that is no larger than the number of trials is searched completely. Otherwise a third of the trials are random
candidates, and the others are children of the best so far, in generations. Which candidates are tried depends on the
seed and on earlier results alone: a generation has a fixed size, however many processes evaluate it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.machinery import PathFinder
from multiprocessing import current_process
from random import Random

from kubestow import config
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import Configuration, SchedulerOptions, emulating
from kubestow.errors import InputError, KubestowError
from kubestow.framework.interface import Plugin
from kubestow_lab.process_pool import ForkingPool, usable_cores
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.loaded_cluster import LoadedCluster
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.tuning.objectives import check_objectives, measure
from kubestow_lab.tuning.search_space import Candidate, SearchSpace
from kubestow_lab.tuning.tuning_result import Trial, TuningResult

#: The trials of a generation, which are evaluated together.
_GENERATION = 16
_ATTEMPTS = 200
#: A cluster is large with so many nodes and pods: to put them into a scheduler takes longer than to fork a process that
#: has done so.
_LARGE = 5000
Figures = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """How to search: ``trials`` candidates beside the base configuration, with ``runs`` simulations each.

    The simulations of a trial have the seeds ``simulation.seed``, ``simulation.seed + 1``, …; objectives are means.
    ``seed`` determines which candidates are tried.
    """

    trials: int = 64
    runs: int = 1
    seed: int = 0
    simulation: SimulationOptions = field(default_factory=lambda: SimulationOptions(departures=False))

    def __post_init__(self) -> None:
        for name in ("trials", "runs"):
            if getattr(self, name) < 1:
                raise InputError(name, f"expected 1 or more, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class _Problem:
    """What all trials have in common. It is sent to other processes."""

    cluster: ClusterObjects
    arrivals: Arrivals
    base: config.KubeSchedulerConfiguration
    plugins: tuple[type[Plugin], ...]
    gates: config.FeatureGates
    space: SearchSpace
    objectives: tuple[str, ...]
    prices: dict[str, float]
    simulation: SimulationOptions

    def evaluate(self, candidate: Candidate | None, run: int, loaded: LoadedCluster | None = None) -> Figures | str:
        """The objectives of a run of a candidate, None for the base configuration; the message of an error.

        ``loaded`` is the cluster as a scheduler has listed it, which is used up.
        """
        try:
            tried: Configuration = self.base if candidate is None else self.space.document(self.base, candidate)
            options = replace(self.simulation, seed=self.simulation.seed + run)
            result = self._simulation(tried, options).run(loaded=loaded)
            if result.plugin_failures:
                return str(result.plugin_failures[0])
        except KubestowError as error:  # as text, because it may come from another process
            return str(error)
        return measure(result, self.objectives, self.prices)

    def load_cluster(self) -> LoadedCluster | None:
        """The cluster as a scheduler with the base configuration has listed it; None if each has to do so."""
        try:
            return self._simulation(self.base, self.simulation).load_cluster()
        except KubestowError:  # of which the first run tells
            return None

    def _simulation(self, tried: Configuration, options: SimulationOptions) -> Simulation:
        return Simulation(self.cluster, self.arrivals, tried, self.plugins, self.gates, options=options)


def tune(
    cluster: ClusterObjects,
    arrivals: Arrivals,
    space: SearchSpace,
    configuration: Configuration = None,
    *,
    objectives: Sequence[str] = ("pending", "fragmentation"),
    plugins: Sequence[type[Plugin]] = (),
    gates: config.FeatureGates | None = None,
    options: TuningOptions | None = None,
    processes: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    emulated_version: str = "",
) -> TuningResult:
    """Search a space of configurations for those that no other one beats in all objectives.

    ``configuration`` is the base: a KubeSchedulerConfiguration as a file, plain data or decoded, None for the defaults.
    ``executor`` runs the trials; without one, ``processes`` processes do (by default one for each core, 1: this one).
    The result does not depend on either. Plugins that other processes cannot import are run in this one. ``progress``
    is called with the finished trials and their number. ``emulated_version`` is the minor version to decide as, such as
    "1.33"; without it, that of the gates.

    Raises ConfigurationError for an invalid base, InputError for what is wrong with the space or the objectives and for
    a candidate that cannot be simulated, or for a worker that cannot run trials.
    """
    options, gates = options or TuningOptions(), emulating(gates or config.FeatureGates(), emulated_version)
    scheduler = SchedulerOptions(configuration, plugins, gates)
    base = scheduler.read_configuration()
    space.check(base, scheduler.registry(), gates)
    problem = _Problem(
        cluster=cluster.altered(),  # without its manifests, which no trial reads
        arrivals=arrivals,
        base=base,
        plugins=tuple(plugins),
        gates=gates,
        space=space,
        objectives=tuple(objectives),
        prices=check_objectives(objectives, space, cluster),
        simulation=options.simulation,
    )
    search = _Search(space, options)
    own = _forking_pool(problem, processes) if executor is None else None
    with own or nullcontext():
        evaluate = _evaluation(problem, executor, own)
        for generation in search.generations():
            runs = [(candidate, run) for candidate in generation for run in range(options.runs)]
            results = _gathered(evaluate(runs), executor)
            for candidate in generation:
                search.add(candidate, _mean(space, candidate, [next(results) for _ in range(options.runs)]))
                progress(len(search.trials), search.total)
    return TuningResult(tuple(objectives), tuple(search.trials), space, base, options.seed)


def _mean(space: SearchSpace, candidate: Candidate | None, results: Sequence[Figures | str]) -> Figures:
    """The means of the objectives of all runs of a candidate. Raises InputError if one has failed."""
    figures = []
    for result in results:
        if isinstance(result, str):
            what = "the base configuration cannot be simulated"
            if candidate is not None:
                values = ", ".join(f"{name}={value}" for name, value in space.values(candidate).items())
                what = f"the values {values} cannot be simulated together"
            raise InputError(space.subject, f"{what}: {result}")
        figures.append(result)
    return tuple(sum(values) / len(values) for values in zip(*figures, strict=True))


def _gathered(results: Iterator[Figures | str], executor: Executor | None) -> Iterator[Figures | str]:
    """The results in order. Raises InputError for what the caller's ``executor``, or a pool without one, fails with."""
    failures: type[Exception] = BrokenExecutor if executor is None else Exception
    while True:
        try:
            figures = next(results)
        except StopIteration:
            return
        except failures as error:
            problem = f"a trial cannot be run: {type(error).__name__}: {error}"
            remedy = "workers need this version of kubestow, and the modules of all plugins"
            raise InputError("workers", f"{problem}; {remedy}") from error
        yield figures


def _forking_pool(problem: _Problem, count: int | None) -> ForkingPool | None:
    """A pool of processes, one for each core that this process may use unless ``count`` is given.

    None if the runs are to be made in this process: if there should be only one and the cluster is not large, if other
    processes cannot import the plugins, or if there can be none.
    """
    # A module that was loaded from a file is known in this process only.
    packages = {plugin.__module__.partition(".")[0] for plugin in problem.plugins}
    if any(name == "__main__" or PathFinder.find_spec(name) is None for name in packages):
        return None
    count = usable_cores() if count is None else count
    is_large = len(problem.cluster.nodes) + len(problem.cluster.pods) >= _LARGE
    if not hasattr(os, "fork") or current_process().daemon or (count == 1 and not is_large):
        return None  # a daemonic process may have no children
    return ForkingPool(count, _load, problem, preload=__name__)


def _evaluation(
    problem: _Problem, executor: Executor | None, own: ForkingPool | None
) -> Callable[[Sequence[tuple[Candidate | None, int]]], Iterator[Figures | str]]:
    """How runs of candidates are evaluated, in order.

    The workers of an ``executor`` are sent the problem, since they may be on other machines.
    """
    if own is not None:
        return lambda runs: own.map(_evaluate_in_fork, *zip(*runs, strict=True))
    if executor is None:
        return lambda runs: (problem.evaluate(*run) for run in runs)
    encoded = pickle.dumps(problem, pickle.HIGHEST_PROTOCOL)
    return lambda runs: executor.map(_evaluate, [encoded] * len(runs), *zip(*runs, strict=True))


def _load(problem: _Problem) -> tuple[_Problem, LoadedCluster | None]:
    return problem, problem.load_cluster()


def _evaluate_in_fork(
    made: tuple[_Problem, LoadedCluster | None], candidate: Candidate | None, run: int
) -> Figures | str:
    problem, loaded = made
    return problem.evaluate(candidate, run, loaded)


def _evaluate(encoded: bytes, candidate: Candidate | None, run: int) -> Figures | str:
    return _decoded(encoded).evaluate(candidate, run)


@lru_cache(maxsize=1)
def _decoded(encoded: bytes) -> _Problem:
    """The problem as it was sent, decoded once per process."""
    problem: _Problem = pickle.loads(encoded)
    return problem


class _Search:
    """Which candidates to try, given the results so far."""

    def __init__(self, space: SearchSpace, options: TuningOptions) -> None:
        self._space, self._random = space, Random(options.seed)
        self._left = min(options.trials, space.size)
        self._complete = space.size <= options.trials
        self._random_trials = 0 if self._complete else max(1, options.trials // 3)
        self._seen: set[Candidate] = set()
        self.trials: list[Trial] = []
        #: The number of trials in the end, the base configuration included.
        self.total = self._left + 1

    def generations(self) -> Iterator[list[Candidate | None]]:
        """The candidates in generations; the results of one must be added before the next is asked for."""
        yield [None]
        if self._complete:
            yield [self._space.candidate(number) for number in range(self._space.size)]
            return
        while self._left:
            generation = [self._next() for _ in range(min(self._left, _GENERATION))]
            self._left -= len(generation)
            yield list(generation)

    def add(self, candidate: Candidate | None, figures: Figures) -> None:
        """Add a result."""
        values = {} if candidate is None else self._space.values(candidate)
        self.trials.append(Trial(len(self.trials), candidate, values, figures))

    def _next(self) -> Candidate:
        """A candidate that has not been tried yet."""
        parents = [trial.candidate for trial in TuningResult.undominated(self.trials) if trial.candidate is not None]
        breed = len(self._seen) >= self._random_trials and bool(parents)
        for attempt in range(_ATTEMPTS):
            if breed and attempt < _ATTEMPTS // 2:
                found = self._space.child(self._random.choice(parents), self._random.choice(parents), self._random)
            else:
                found = self._space.random(self._random)
            if found not in self._seen:
                break
        else:  # most of the space has been tried
            found = next(c for c in map(self._space.candidate, range(self._space.size)) if c not in self._seen)
        self._seen.add(found)
        return found
