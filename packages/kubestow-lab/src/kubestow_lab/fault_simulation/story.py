"""A failing run as a story that one can read, and as a test."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kubestow_lab.fault_simulation.scenario import Scenario
from kubestow_lab.fault_simulation.shrinking import rule_of
from kubestow_lab.fault_simulation.simulation import Outcome

_NAME = re.compile(r"\b(?:pod|node|job|tenant|victim|tree-of-job|data|gpu|pv)-[\w-]*\d\b|\bjob-\d+\b")
#: Trace lines that are always part of the story.
_TURNING_POINT = re.compile(
    r" (?:starts|stops|is killed|ends all faults|VIOLATION|the lease is held by)\b|^ *\S+ server +(?:is|restarts)"
)
_CHANGES = {"ADDED": "is created", "MODIFIED": "changes", "DELETED": "is deleted"}


def names_in(violation: str) -> set[str]:
    """The names of the objects that a violation is about."""
    return {name.removeprefix("uid-") for name in _NAME.findall(re.sub(r"\buid-(\d+)\b", r"pod-\1", violation))}


def tell(scenario: Scenario, outcome: Outcome, violation: str) -> str:
    """The story of a run: what there was, what happened to the objects that the violation is about, and the violation.

    Each line has the virtual time in seconds; ``>`` marks what the simulation did on purpose.
    """
    processes = "; ".join(", ".join(names) for names in scenario.processes)
    parts = ", ".join(sorted(scenario.parts)) or "nothing else"
    lines = [
        f"Kubernetes {scenario.minor}, up to {scenario.nodes} nodes and {scenario.pods} pods, "
        f"schedulers of {len(scenario.processes)} process(es): {processes}; with {parts}.",
        f"It takes {len(outcome.steps)} of these steps (>):",
        "",
        *_without_repetitions(sorted(_events(outcome, names_in(violation)), key=lambda event: event[:2])),
        "",
        f"So this does not hold: {violation}",
    ]
    return "\n".join(lines)


def _events(outcome: Outcome, names: set[str]) -> Iterator[tuple[float, int, str]]:
    """The events of the story: time, place among those of the same time, and text."""
    for step in outcome.steps:
        yield round(step.time, 4), -1, f"> {step.what}"
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)) or r"(?!)")
    for position, line in enumerate(outcome.trace):
        if words.search(line) or _TURNING_POINT.search(line):
            time, _, rest = line.strip().partition(" ")
            yield float(time), position, f"  {_plainly(rest.strip())}"


def _without_repetitions(events: Iterable[tuple[float, int, str]]) -> Iterator[str]:
    """The lines of the story. What happens in the same words again and again is one line, with a count."""
    events = list(events)
    times = Counter(text for _, _, text in events)
    printed: set[str] = set()
    for time, _, text in events:
        if text in printed and not text.startswith(">"):
            continue
        printed.add(text)
        again = f" ({times[text]} times in all)" if times[text] > 1 and not text.startswith(">") else ""
        yield f"{time:9.3f}  {text}{again}"


def _plainly(text: str) -> str:
    """A trace line in words: changes of objects as the server has them."""
    actor, _, rest = text.partition(" ")
    words = rest.split()
    if actor == "server" and words and words[0] in _CHANGES and len(words) >= 4:
        return f"server: {words[1]} {'/'.join(words[2:-2])} {_CHANGES[words[0]]} (version {words[-1]})"
    return f"{actor}: {' '.join(words)}"


def as_test(scenario: Scenario, violation: str) -> str:
    """A module with a test that fails as long as the rule is violated."""
    rule = rule_of(violation)
    name = re.sub(r"\W+", "_", rule).strip("_").lower()
    source = scenario.source().replace("\n", "\n    ")
    from_faults = "from kubestow_lab.fault_simulation.faults import Fault\n" if "Fault" in source else ""
    from_scenario = "Part, Scenario" if "Part." in source else "Scenario"
    return f'''"""A run of the fault simulation that was searched for and shrunk.

It violated: {violation}
"""

{from_faults}from kubestow_lab.fault_simulation.scenario import {from_scenario}
from kubestow_lab.fault_simulation.simulation import run_scenario


def test_{name}() -> None:
    scenario = {source}
    assert run_scenario(scenario).violations == []
'''
