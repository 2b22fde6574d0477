"""Results: JSON, the HTML page, and the comparison of two of them."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kubestow.cli import main
from kubestow.errors import InputError
from kubestow_lab.scheduler_perf.benchmark_result import (
    BenchmarkResult,
    Machine,
    WorkloadResult,
    compare_results,
    html_page,
    read_result,
    this_machine,
    write_result,
)
from kubestow_lab.scheduler_perf.phase import Distribution, PhaseResult, SchedulerUsage
from kubestow_lab.scheduler_perf.scheduler_metrics import DurationResult


def phase(throughput: float = 100.0, cpu: float = 1.0, memory: int = 2**27, name: str = "") -> PhaseResult:
    return PhaseResult(
        name=name,
        pods=100,
        seconds=100 / throughput,
        throughput=throughput,
        windows=Distribution(50.0, 50.0, 60.0, 60.0),
        latency=Distribution(0.1, 0.1, 0.2, 0.3),
        scheduler=SchedulerUsage(cpu, cpu / 100, memory, True),
        per_second=[50, 60],
        latency_percentiles=[0.01 * percent for percent in range(101)],
        durations=[DurationResult("Filter", "<Plugin>", 10, 0.001, 0.001, 0.002)],
    )


def result(*phases: PhaseResult, workload: str = "Case/small") -> BenchmarkResult:
    run = WorkloadResult(
        name=workload,
        parameters={"nodes": 5},
        cluster="in memory",
        scheduler="kubestow",
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
        phases=list(phases),
    )
    return BenchmarkResult(Machine("processor", 2, "Linux", "3.11", 0.5), [run])


def written(folder: Path, name: str, value: BenchmarkResult) -> str:
    file = folder / name
    file.write_bytes(write_result(value))
    return str(file)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    value = result(phase(), phase(name="second"))
    assert read_result(Path(written(tmp_path, "a.json", value))) == value


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "expected a result of kubestow bench -o json"),
        ('{"machine": {}, "workloads": []}', "expected a result of kubestow bench -o json"),
    ],
)
def test_a_file_without_a_result_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(content)
    with pytest.raises(InputError, match=problem):
        read_result(file)


def test_a_result_of_another_format_is_refused(tmp_path: Path) -> None:
    file = Path(written(tmp_path, "a.json", result(phase())))
    file.write_text(file.read_text().replace("benchmark/v1", "benchmark/v9"))
    with pytest.raises(InputError, match="expected the format kubestow-benchmark/v1, got 'kubestow-benchmark/v9'"):
        read_result(file)


def test_the_ratio_and_the_direction_of_each_figure() -> None:
    rows = {row.figure: row for row in compare_results(result(phase(100, 1.0)), result(phase(80, 1.2))).rows}
    assert rows["pods/s"].ratio == pytest.approx(0.8)
    assert rows["pods/s"].worse_by == pytest.approx(0.2)
    assert rows["CPU per pod, ms"].worse_by == pytest.approx(0.2)
    assert rows["peak memory, MiB"].worse_by == pytest.approx(0.0)


def test_only_what_is_worse_by_more_than_the_limit_is_a_regression() -> None:
    first, second = result(phase(100, 1.0)), result(phase(95, 1.2))
    assert [row.figure for row in compare_results(first, second, fail_above=0.1).regressions] == ["CPU per pod, ms"]
    assert compare_results(first, second, fail_above=0.3).regressions == []
    assert compare_results(first, second).regressions == []


def test_a_better_result_is_no_regression() -> None:
    assert compare_results(result(phase(100, 1.0)), result(phase(200, 0.5)), fail_above=0.0).regressions == []


def test_phases_of_one_result_only_are_named() -> None:
    comparison = compare_results(result(phase(), phase(name="more")), result(phase()))
    assert comparison.unmatched == ["Case/small (more)"]
    assert {row.workload for row in comparison.rows} == {"Case/small"}


def exit_status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments])
    return int(exited.value.code or 0)


def test_the_command_fails_beyond_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = written(tmp_path, "a.json", result(phase(100))), written(tmp_path, "b.json", result(phase(70)))
    assert exit_status("--compare", first, second) == 0
    assert exit_status("--compare", first, second, "--fail-above", "10%") == 1
    assert exit_status("--compare", first, second, "--fail-above", "50") == 0
    assert exit_status("--compare", second, first, "--fail-above", "10%") == 0
    assert "0.700" in capsys.readouterr().out
    assert exit_status("--compare", first, second, "--fail-above", "much") == 2


def test_results_without_a_common_workload_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = written(tmp_path, "a.json", result(phase()))
    second = written(tmp_path, "b.json", result(phase(), workload="Other/small"))
    assert exit_status("--compare", first, second) == 1
    assert "has no workload in common with" in capsys.readouterr().err


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.tags.append(tag)


def test_the_page_has_plots_and_refers_to_nothing_else() -> None:
    page = html_page(result(phase()))
    parser = _Tags()
    parser.feed(page)
    assert parser.tags.count("svg") == 3
    assert not {"script", "link", "img", "iframe"} & set(parser.tags)
    assert re.search(r"(?:src|href|url)\s*[=(]", page) is None
    assert "&lt;Plugin&gt;" in page and "<Plugin>" not in page


def test_the_machine_is_described() -> None:
    machine = this_machine()
    assert machine.processors >= 1 and machine.processor
