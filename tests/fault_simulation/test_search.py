"""The search, the shrinking of what it finds, and the story and test that are made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.marks import Mark
from kubestow_lab.fault_simulation.scenario import Part, Scenario, draw, mutated
from kubestow_lab.fault_simulation.search import Search, features
from kubestow_lab.fault_simulation.shrinking import Shrinking, rule_of
from kubestow_lab.fault_simulation.simulation import Outcome, run_scenario, simulate
from kubestow_lab.fault_simulation.story import as_test, names_in, tell
from kubestow_lab.fault_simulation.trace import Step, StepRandom, Steps


def _outcome(scenario: Scenario, violation: str = "", total: int = 40) -> Outcome:
    """The outcome of a run whose steps are numbers, in place of a simulation."""
    steps = Steps(lambda: 0.0, scenario.kept_steps, scenario.end)
    for number in range(total):
        steps.takes(f"user: step {number}")
    taken = {step.number for step in steps.taken}
    breaks = {7, 31} <= taken and Part.HTTP in scenario.parts
    violations = ["rule: it breaks"] if breaks else ["other: rule"]
    return Outcome(scenario.seed, "", 0, 0, violations, (), {}, steps.taken)


def test_the_scenario_of_a_seed_gives_the_run_of_the_seed() -> None:
    scenario, _ = draw(5)
    assert run_scenario(scenario).fingerprint == simulate(5).fingerprint


def test_a_run_is_shrunk_to_the_steps_and_parts_that_matter() -> None:
    scenario = Scenario(
        seed=1, parts=frozenset({Part.HTTP, Part.VOLUMES, Part.LARGE}), nodes=5, processes=(("one",), ("two",))
    )
    shrunk = Shrinking("rule", _outcome, 200).shrink(scenario)
    assert shrunk.kept_steps == frozenset({7, 31})
    assert shrunk.parts == {Part.HTTP}
    assert (shrunk.nodes, shrunk.processes) == (2, (("one",),))
    assert shrunk.rates == dict.fromkeys(Fault, 0.0)


def test_shrinking_keeps_within_its_budget_and_what_fails() -> None:
    calls = []

    def run(scenario: Scenario) -> Outcome:
        calls.append(scenario)
        return _outcome(scenario)

    scenario = Scenario(seed=1, parts=frozenset({Part.HTTP}))
    shrunk = Shrinking("rule", run, 10).shrink(scenario)
    assert len(calls) == 10
    assert _outcome(shrunk).violations == ["rule: it breaks"]


def test_steps_that_are_left_out_do_not_happen() -> None:
    steps = Steps(lambda: 1.5, frozenset({0, 2}), end=2)
    assert [steps.takes(name) for name in "abc"] == [True, False, False]
    assert steps.taken == [Step(0, 1.5, "a")]


def test_independent_steps_draw_the_same_whatever_the_others_draw() -> None:
    def second_draw(first_draws: int) -> float:
        source = StepRandom(Random(0), "users", is_independent=True)
        random = source.next()
        for _ in range(first_draws):
            random.random()
        return source.next().random()

    assert second_draw(0) == second_draw(5)


def test_a_scenario_is_written_as_the_expression_that_makes_it() -> None:
    scenario, _ = draw(3)
    scenario = replace(scenario, kept_steps=frozenset({3, 1}), rates={Fault.SLOW: 0.1}, plugins=("mine.py:Mine",))
    names = {"Scenario": Scenario, "Part": Part, "Fault": Fault}
    assert eval(scenario.source(), names) == scenario
    silent = replace(scenario, rates=dict.fromkeys(Fault, 0.0))
    assert eval(silent.source(), names) == silent


def test_the_test_that_is_printed_fails_as_the_run_does() -> None:
    scenario = Scenario(seed=1, parts=frozenset({Part.HTTP}))
    names: dict[str, object] = {}
    exec(as_test(scenario, "no pod is lost: pod-1"), names)
    assert "test_no_pod_is_lost" in names
    assert names["Part"] is Part


def test_the_story_has_the_steps_and_what_happens_to_the_objects_of_the_violation() -> None:
    trace = [
        "    1.0000 server     ADDED Pod default pod-1 uid-1 4",
        "    2.0000 server     ADDED Pod default pod-2 uid-2 5",
        "    3.0000 1-0        decides default/pod-1 node-0",
        "    4.0000 1-0        decides default/pod-1 node-0",
    ]
    outcome = Outcome(1, "", 4, 0, [], trace, {}, [Step(0, 1.0, "user: create pod")])
    story = tell(Scenario(seed=1), outcome, "rule: pod uid-1 is lost")
    assert [line.strip() for line in story.splitlines() if line.startswith("    ")] == [
        "1.000  > user: create pod",
        "1.000    server: Pod default/pod-1 is created (version 4)",
        "3.000    1-0: decides default/pod-1 node-0 (2 times in all)",
    ]


def test_names_of_objects_are_found_in_violations() -> None:
    assert names_in("rule: pod-4 (uid-4) is pending, node-1, job-2-0 are feasible") == {"pod-4", "node-1", "job-2-0"}
    assert rule_of("a rule: pod-4") == "a rule"


def test_the_search_varies_what_has_reached_something_new() -> None:
    search = Search(1)
    scenario, _ = draw(1)
    outcome = Outcome(1, "", 0, 0, [], ["    1.0000 server     ADDED Pod a"], {Mark.FLUSHED: 3}, [])
    search.learn(scenario, outcome)
    search.learn(scenario, outcome)
    assert search.corpus == [scenario]
    assert features(outcome) == {(Mark.FLUSHED, 2)}
    chosen = search.next_scenarios(20)
    assert len({each.seed for each in chosen}) == 20
    assert any(each.seed > 100 for each in chosen)


def test_the_same_search_makes_the_same_choices() -> None:
    assert Search(4).next_scenarios(5) == Search(4).next_scenarios(5)
    scenario, _ = draw(9)
    assert mutated(scenario, Random(1)) == mutated(scenario, Random(1))


_CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: any
  plugins: {score: {disabled: [{name: ImageLocality}]}}
"""


def test_schedulers_have_the_profiles_of_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(_CONFIGURATION)
    silent = dict.fromkeys(Fault, 0.0)
    scenario = Scenario(
        seed=2, configuration=str(path), rates=silent, flushes=False, pod_constraints=False, end=30, min_events=0
    )
    outcome = run_scenario(scenario)
    assert outcome.violations == []
    assert outcome.bound > 0
