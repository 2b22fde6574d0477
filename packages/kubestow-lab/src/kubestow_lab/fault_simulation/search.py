"""The search: runs that differ from those before, guided by what they have reached, until one violates a rule.

Half of the runs are drawn from new seeds. The others are near runs that have reached something new: a mark, a mark more
often than any run before (by powers of two), or two kinds of events one after the other. Runs are evaluated in batches,
so that the same seeds give the same search on any number of cores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from kubestow.rules.minors import DEFAULT_MINOR
from kubestow_lab.fault_simulation.marks import Mark
from kubestow_lab.fault_simulation.scenario import Part, Scenario, draw, mutated
from kubestow_lab.fault_simulation.simulation import Outcome, run_scenario
from kubestow_lab.process_pool import process_pool

#: Runs that are chosen before their outcomes are known.
_BATCH = 8
_EVENT = re.compile(
    r"^ *\S+ (?P<actor>\S+) +"
    r"(?P<what>receives a list|receives [A-Z]+|requests [a-z]+|[A-Z]+ [A-Z]\w+|decides|[A-Za-z]+)"
)


@dataclass
class Search:
    """The scenarios tried, and what they have reached. ``base`` has the plugins and configuration of all runs."""

    seed: int
    base: Scenario | None = None
    marks: Counter[Mark] = field(default_factory=Counter)
    runs: int = 0
    #: The scenarios that have reached something new.
    corpus: list[Scenario] = field(default_factory=list)
    _seen: set[Hashable] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = Random(f"{self.seed} search")

    @property
    def features(self) -> int:
        """How many different things have been reached."""
        return len(self._seen)

    def next_scenarios(self, count: int) -> list[Scenario]:
        """The scenarios to run next."""
        return [self._next() for _ in range(count)]

    def _next(self) -> Scenario:
        self.runs += 1
        if self.corpus and self._random.random() < 0.5:
            return self._with_base(mutated(self._random.choice(self.corpus), self._random))
        scenario, _ = draw(self.seed + self.runs - 1)
        return self._with_base(scenario)

    def _with_base(self, scenario: Scenario) -> Scenario:
        scenario = replace(scenario, independent_steps=True)
        if self.base is None:
            return scenario
        return replace(
            scenario,
            parts=scenario.parts - {Part.STALLS, Part.RECORDS},
            minor=str(DEFAULT_MINOR),
            plugins=self.base.plugins,
            configuration=self.base.configuration,
            flushes=self.base.flushes,
            pod_constraints=self.base.pod_constraints,
        )

    def learn(self, scenario: Scenario, outcome: Outcome) -> None:
        """Take note of what a scenario has reached."""
        self.marks.update(outcome.marks)
        new = features(outcome) - self._seen
        if new:
            self._seen |= new
            self.corpus.append(scenario)


def features(outcome: Outcome) -> set[Hashable]:
    """What a run has reached, as far as the search is guided by it."""
    reached: set[Hashable] = {(mark, count.bit_length()) for mark, count in outcome.marks.items()}
    kinds = [_kind(line) for line in outcome.trace]
    return reached | set(pairwise(kinds))


def _kind(line: str) -> str:
    """The kind of an event: what has happened, without names, and whether it happened on the server."""
    found = _EVENT.match(line)
    if found is None:
        return ""
    actor = found["actor"] if found["actor"] in ("server", "simulation") else "scheduler"
    return f"{actor} {found['what']}"


def failing_runs(
    search: Search, *, runs: int | None = None, is_over: Callable[[], bool] = lambda: False, jobs: int | None = None
) -> Iterator[tuple[Scenario, Outcome]]:
    """Search for so many runs, or until it ``is_over``, which is asked between batches; those that violate a rule."""
    pool = process_pool(jobs, preload=__name__)
    try:
        while not is_over() and (runs is None or search.runs < runs):
            scenarios = search.next_scenarios(_BATCH if runs is None else min(_BATCH, runs - search.runs))
            outcomes: Sequence[Outcome] = list(
                map(run_scenario, scenarios) if pool is None else pool.map(run_scenario, scenarios)
            )
            for scenario, outcome in zip(scenarios, outcomes, strict=True):
                search.learn(scenario, outcome)
            for scenario, outcome in zip(scenarios, outcomes, strict=True):
                if outcome.violations:
                    yield scenario, outcome
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
