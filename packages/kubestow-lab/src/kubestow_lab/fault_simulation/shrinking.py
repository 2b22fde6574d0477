"""Shrinking: the few steps of a failing run that matter, found by leaving out more and more of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.scenario import Scenario
from kubestow_lab.fault_simulation.simulation import Outcome


def rule_of(violation: str) -> str:
    """The rule that is violated, or what else has gone wrong."""
    return violation.partition(":")[0]


class Shrinking:
    """Shrinks scenarios that violate one rule. ``run`` is called at most ``budget`` times."""

    def __init__(self, rule: str, run: Callable[[Scenario], Outcome], budget: int) -> None:
        self._rule, self._run, self._budget = rule, run, budget

    @property
    def budget(self) -> int:
        """How many runs are left."""
        return self._budget

    def shrink(self, scenario: Scenario) -> Scenario:
        """The smallest scenario found that still violates the rule; the same one if nothing can be left out."""
        failing = self._with_fewer_steps(self._without_parts(self._without_faults(self._smaller(scenario))))
        return self._without_parts(failing)

    def _fails(self, scenario: Scenario) -> bool:
        return self._failure(scenario) is not None

    def _failure(self, scenario: Scenario) -> Outcome | None:
        """The outcome of a scenario if it violates the rule, and if there are runs left."""
        if self._budget <= 0:
            return None
        self._budget -= 1
        outcome = self._run(scenario)
        return outcome if any(rule_of(violation) == self._rule for violation in outcome.violations) else None

    def _without_faults(self, failing: Scenario) -> Scenario:
        """Without any faults, or else without as many groups of kinds of them as possible."""
        for group in (list(Fault), *(list(Fault)[start : start + 4] for start in range(0, len(Fault), 4))):
            changed = replace(failing, rates={**failing.rates, **dict.fromkeys(group, 0.0)})
            if self._fails(changed):
                failing = changed
                if len(group) == len(Fault):
                    break
        return failing

    def _without_parts(self, failing: Scenario) -> Scenario:
        for part in sorted(failing.parts):
            if self._fails(changed := failing.without(part)):
                failing = changed
        return failing

    def _with_fewer_steps(self, failing: Scenario) -> Scenario:
        """Leave out all steps after one, then ever smaller groups of those before it."""
        outcome = self._failure(failing)
        if outcome is None:
            return failing
        low, high = 0, max((step.number for step in outcome.steps), default=-1) + 1
        while low < high:
            middle = (low + high) // 2
            if self._fails(replace(failing, end=middle)):
                high = middle
            else:
                low = middle + 1
        ended = replace(failing, end=high)
        outcome = self._failure(ended)
        if outcome is None:
            return failing
        kept = [step.number for step in outcome.steps]
        size = max(1, len(kept) // 2)
        while kept:
            is_smaller = False
            for start in reversed(range(0, len(kept), size)):
                fewer = kept[:start] + kept[start + size :]
                outcome = self._failure(replace(failing, kept_steps=frozenset(fewer)))
                if outcome is not None:
                    kept, is_smaller = [step.number for step in outcome.steps], True
            if (size == 1 and not is_smaller) or self._budget <= 0:
                break
            size = max(1, size // 2)
        shrunk = replace(failing, kept_steps=frozenset(kept))
        return shrunk if self._fails(shrunk) or (self._budget <= 0 and kept) else ended

    def _smaller(self, failing: Scenario) -> Scenario:
        """With one process, two nodes and few seconds, as far as possible."""
        for changes in ({"processes": failing.processes[:1]}, {"nodes": 2}, {"seconds": 5.0}):
            changed: Scenario = replace(failing, **changes)
            if changed != failing and self._fails(changed):
                failing = changed
        return failing
