"""The tables of Tiresias and Gavel on few jobs, and that Gavel's jobs are the authors'."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from kubestow.errors import InputError
from kubestow_lab.papers import gavel, tiresias
from kubestow_lab.papers.paper import PAPERS, reproduce


def test_jobs_request_twice_the_gpus_of_tiresias() -> None:
    jobs = tiresias.jobs(1)
    load = (jobs.gpus * jobs.steps).sum() / (tiresias.GPUS * jobs.arrived[-1])
    assert load == pytest.approx(tiresias.LOAD, rel=0.15)
    assert set(jobs.gpus.tolist()) == {1, 2, 4, 8}


def test_every_order_is_faster_than_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiresias.hours, "__defaults__", (200,))
    table = reproduce(PAPERS["tiresias"], Path("absent"), tmp_path, seeds=[1], processes=1)
    found = {row.policy: row.measured.mean for row in table.rows if row.workload == tiresias.MEAN}
    assert found[tiresias.SRTF] < found[tiresias.FIFO]
    assert table.is_within


def test_drawn_jobs_have_the_mean_run_time_of_the_published_table() -> None:
    """At low load a job on one GPU takes its run time and half a round to begin: 17.58 h in the authors' notebook."""
    run_times = [run_time for _, _, run_time in islice(gavel.drawn_jobs(0, multiple=False), 5001)]
    published_at_low_load, waiting_and_ending = 17.58, 360 / 3600
    assert np.mean(run_times[4000:5001]) / 3600 == pytest.approx(published_at_low_load - waiting_and_ending, rel=0.01)
    assert {gpus for _, gpus, _ in islice(gavel.drawn_jobs(0, multiple=True), 200)} == {1, 2, 4, 8}


@pytest.fixture
def throughputs(tmp_path: Path) -> Path:
    """A file of throughputs in the published form: V100s are four times as fast as K80s."""
    keys = [(model, gpus) for model, several in gavel.MODELS for gpus in ((1, 2, 4, 8) if several else (1,))]
    speeds = {"v100": 4.0, "p100": 2.0, "k80": 1.0}
    document = {
        kind: {str((model, gpus)): {"null": speed * gpus} for model, gpus in keys} for kind, speed in speeds.items()
    }
    (tmp_path / gavel.THROUGHPUTS).write_text(json.dumps(document))
    return tmp_path


def test_the_table_of_gavel_has_every_policy(throughputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.setattr(gavel, "WATCHED", range(3, 7))
    monkeypatch.setattr(gavel, "_HOURS_AFTER", 1)
    table = reproduce(PAPERS["gavel"], throughputs, throughputs / "out", processes=1)
    assert table.seeds == (0,)
    found = {row.policy: row.measured.mean for row in table.rows}
    assert set(found) == {"FIFO", "FIFO, aware", "LAS", "LAS, aware", "FTF", "FTF, aware"}
    assert found["LAS, aware"] < found["LAS"]  # few jobs, and all of them on V100s if these are known to be faster


def test_throughputs_that_are_missing_or_wrong_are_named(throughputs: Path) -> None:
    with pytest.raises(InputError, match=r"simulation_throughputs\.json: No such file.*git clone"):
        gavel.read_throughputs(throughputs / "absent")
    (throughputs / gavel.THROUGHPUTS).write_text('{"v100": {"(1": 2}}')
    with pytest.raises(InputError, match="expected throughputs by type, model and GPUs"):
        gavel.read_throughputs(throughputs)
