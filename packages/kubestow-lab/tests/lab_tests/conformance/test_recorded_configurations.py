"""Recorded configurations: accepted or rejected as by kube-scheduler, with errors at the same fields."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.config.builders import IN_TREE
from core_tests.config.recorded import CASES
from kubestow import config
from kubestow_lab.conformance.scheduling_replay import report_same_fields


def _checked(case: dict[str, Any]) -> list[config.FieldError]:
    gates = config.FeatureGates(case.get("featureGates"))
    return config.check(case["config"], gates=gates, implements=IN_TREE)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_configuration_is_accepted_or_rejected_as_by_kube_scheduler(case: dict[str, Any]) -> None:
    errors = _checked(case)
    assert bool(errors) == ("config_error" in case), errors


@pytest.mark.parametrize("case", [c for c in CASES if "config_error" in c], ids=lambda case: case["name"])
def test_errors_name_the_same_fields_as_kube_scheduler(case: dict[str, Any]) -> None:
    errors = [(error.path, error.message) for error in _checked(case)]
    assert report_same_fields(errors, case["config_error"]), errors


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.get("config_error", "").startswith("initializing profiles")],
    ids=lambda case: case["name"],
)
def test_the_first_construction_error_equals_kube_schedulers(case: dict[str, Any]) -> None:
    assert _checked(case)[0].message == case["config_error"]


def test_the_recording_is_complete() -> None:
    assert (len(CASES), sum("config_error" in case for case in CASES)) == (150, 116)
