"""Forecasts of when jobs start: which of several queue systems answers."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from kubestow.engine import job_forecasts
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.job_forecasts import ForecastAnswer, forecast_jobs
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import InputError, UnknownJob


class Answer(ForecastAnswer):
    remarks = ()


ANSWER = Answer()


def knows(*_: Any) -> ForecastAnswer:
    return ANSWER


def has_no_such_job(cluster: Any, pods: Any, options: Any, name: str) -> ForecastAnswer:
    raise UnknownJob(name, "is in none of the queues")


def is_not_configured(cluster: Any, pods: Any, options: Any, name: str) -> ForecastAnswer:
    raise UnknownJob(name, "there are no queues")


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Have forecasters of this module be installed, by name."""

    def installed(**forecasters: str) -> None:
        points = (EntryPoint(name, f"{__name__}:{value}", "kubestow.forecasts") for name, value in forecasters.items())
        found = EntryPoints(points)
        monkeypatch.setattr(job_forecasts, "entry_points", lambda **selected: found.select(**selected))

    return installed


def ask() -> tuple[str, ForecastAnswer]:
    return forecast_jobs(ClusterObjects(), [], SchedulerOptions(), "job/train")


def test_the_queues_that_have_the_job_answer(install: Install) -> None:
    install(Airport="has_no_such_job", Bakery="knows")
    assert ask() == ("Bakery", ANSWER)


def test_without_an_answer_the_reason_of_each_is_named(install: Install) -> None:
    install(Bakery="is_not_configured", Airport="has_no_such_job")
    with pytest.raises(UnknownJob) as raised:
        ask()
    assert str(raised.value) == "job/train: Airport: is in none of the queues; Bakery: there are no queues"


def test_a_forecaster_that_cannot_be_loaded_is_named(install: Install) -> None:
    install(Airport="absent")
    with pytest.raises(InputError, match=r"entry point Airport .* cannot be loaded: AttributeError"):
        ask()


def test_without_any_the_package_to_install_is_named(install: Install) -> None:
    install()
    with pytest.raises(InputError, match="install kubestow-contrib"):
        ask()
