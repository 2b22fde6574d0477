"""``kubestow vopr``: search for the run of a scheduler under faults that breaks a rule, and shrink it."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import click

from kubestow.cli.input.scheduler import plugin_option
from kubestow.reports.model import counted


@click.command()
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="How long to search. Default: by --seeds.")
@click.option("--seeds", type=click.IntRange(1), help="How many runs to make. Default: 100; no limit with --minutes.")
@click.option("--first", default=1, show_default=True, help="The first seed; the search follows from it.")
@click.option("--jobs", type=click.IntRange(1), help="How many to run in parallel. Default: one for each core.")
@plugin_option
@click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path),
    help="KubeSchedulerConfiguration with the profiles of the schedulers. Default: the plugins, and in-tree ones.",
)
@click.option(
    "--test",
    "test_file",
    type=click.Path(path_type=Path),
    help="The file to which a test is written that fails as the run does. Default: it is printed.",
)
@click.option(
    "--shrink", "budget", type=click.IntRange(0), default=300, show_default=True, help="Runs for shrinking, at most."
)
def vopr(
    minutes: float | None,
    seeds: int | None,
    first: int,
    jobs: int | None,
    plugins: tuple[str, ...],
    configuration: Path | None,
    test_file: Path | None,
    budget: int,
) -> int:
    """Search for a run under faults that breaks a rule of schedulers, and shrink it.

    Each run has schedulers, users, kubelets and controllers in virtual time, with faults of the API server, of watches,
    of processes and of plugins. Runs that reach something new are varied further. The first run that breaks a rule is
    shrunk to the few steps that matter, and printed as a story and as a test; the exit status is 1 then.
    """
    from kubestow import config
    from kubestow.engine.input.documents import read_yaml
    from kubestow.plugins.registry import referenced_plugins
    from kubestow_lab.fault_simulation.scenario import Scenario
    from kubestow_lab.fault_simulation.search import Search, failing_runs
    from kubestow_lab.fault_simulation.shrinking import Shrinking, rule_of
    from kubestow_lab.fault_simulation.simulation import run_scenario
    from kubestow_lab.fault_simulation.story import as_test, tell

    base = None
    if configuration is not None:
        config.load(read_yaml(configuration), subject=str(configuration))  # fails here rather than in every run
    if plugins or configuration is not None:
        referenced_plugins(plugins)  # likewise
        path = "" if configuration is None else str(configuration.resolve())
        base = Scenario(seed=first, plugins=plugins, configuration=path, flushes=False, pod_constraints=False)
    limit = seeds if seeds is not None or minutes is not None else 100
    ends = None if minutes is None else monotonic() + 60.0 * minutes
    search = Search(first, base)

    def is_over() -> bool:
        return ends is not None and monotonic() >= ends

    for scenario, outcome in failing_runs(search, runs=limit, is_over=is_over, jobs=jobs):
        violation = outcome.violations[0]
        click.echo(f"run {search.runs}, seed {scenario.seed}: {violation}")
        click.echo("shrinking it …", err=True)
        shrunk = Shrinking(rule_of(violation), run_scenario, budget).shrink(scenario)
        outcome = run_scenario(shrunk)
        found = next(each for each in outcome.violations if rule_of(each) == rule_of(violation))
        click.echo("\n" + tell(shrunk, outcome, found))
        source = as_test(shrunk, found)
        if test_file is None:
            click.echo("\n" + source)
        else:
            test_file.write_text(source, encoding="utf-8")
            click.echo(f"\n{test_file} has the test")
        return 1
    reached = len(search.marks)
    click.echo(
        f"{counted(search.runs, 'run')} from seed {first}: no rule is broken, {reached} rare paths reached, "
        f"{search.features:,} things seen that guide the search, in {counted(len(search.corpus), 'run')}"
    )
    return 0
