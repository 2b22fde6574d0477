"""Logs of the benchmarks: they have the statistics that were published, and the readers of their formats read them."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import numpy as np
import pytest
from benchmarks.job_logs import ACME, HELIOS, LOG_FORMATS, PHILLY, ClusterStatistics

from kubestow_lab.traces.formats import read_trace


@pytest.mark.parametrize("name", LOG_FORMATS)
def test_a_log_is_read_as_it_was_drawn(name: str, tmp_path: Path) -> None:
    log_format = LOG_FORMATS[name]
    jobs = log_format.draw(120, 128, 0.9, Random(1))
    log_format.write(tmp_path, jobs, 16)
    assumed = ["nodes=16"] if log_format.assumes_nodes else []
    trace, _ = read_trace(f"{name}={tmp_path / log_format.path}", assumed=assumed)
    assert (len(trace.nodes), trace.left_out) == (16, {})
    drawn = Counter((job.submitted - jobs[0].submitted, job.run_time, job.queue) for job in jobs)
    read = {
        (round(task.created - trace.start), task.duration, task.queue, task.job or task.name) for task in trace.tasks
    }
    assert Counter(each[:3] for each in read) == drawn
    amounts = sum(
        task.count * (task.template.shape.gpus or task.template.shape.cpu_milli / 1000) for task in trace.tasks
    )
    assert amounts == pytest.approx(sum(job.processors for job in jobs), rel=0.02)
    if name == "swf":
        assert [task.requested_time for task in trace.tasks] == [job.requested_time for job in jobs]
        assert all(job.requested_time >= job.run_time for job in jobs)


@pytest.mark.parametrize(("statistics", "mean"), [(PHILLY, 18_006), (HELIOS, 13_041)])
def test_run_times_and_sizes_agree_with_published_means_and_shares_of_gpu_time(
    statistics: ClusterStatistics, mean: float
) -> None:
    [kind] = statistics.kinds
    assert kind.mean() == pytest.approx(mean, rel=0.06)
    assert sum(kind.sizes.values()) == pytest.approx(100, abs=0.1)
    times = {size: percent * size * kind.mean(kind.tilts()[size]) for size, percent in kind.sizes.items()}
    for size, percent in kind.gpu_time.items():
        assert 100 * times[size] / sum(times.values()) == pytest.approx(percent, abs=0.1)


def test_the_types_of_work_of_acme_have_about_their_published_parts_of_gpus_and_gpu_time() -> None:
    by_size, gpu_time = defaultdict[int, float](float), defaultdict[str, float](float)
    for kind in ACME.kinds:
        assert sum(kind.sizes.values()) == pytest.approx(100)
        for size, percent in kind.sizes.items():
            by_size[size] += kind.share * percent / 100
            gpu_time[kind.name] += kind.share * percent * size * kind.mean()
    assert [by_size[size] for size in (1, 2, 4, 8)] == pytest.approx([54.0, 11.4, 2.5, 28.8], abs=2)
    assert gpu_time["Pretrain"] / sum(gpu_time.values()) == pytest.approx(0.695, abs=0.06)


def test_jobs_come_at_the_hours_of_the_day_and_request_the_load() -> None:
    jobs = HELIOS.draw(3000, 64, 0.9, Random(2))
    hours = np.bincount([job.submitted // 3600 % 24 for job in jobs], minlength=24)
    assert hours[14:19].sum() > 3 * hours[4:9].sum()
    area = sum(job.processors * job.run_time for job in jobs)
    assert area / (64 * jobs[-1].submitted) == pytest.approx(0.9, rel=0.1)
    assert max(job.processors for job in jobs) == 32
