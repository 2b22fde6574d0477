"""The reference's verdict on recorded configurations: accepted or refused, and which fields it names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kubestow import config
from kubestow.simulation.refusals import names_same_fields
from tests.config.builders import IN_TREE

_CORPUS = Path(__file__).parents[1] / "conformance" / "corpus" / "configerrors.jsonl.gz"
_CASES = [json.loads(line) for line in gzip.decompress(_CORPUS.read_bytes()).splitlines()]


def _checked(case: dict[str, Any]) -> list[config.Problem]:
    gates = config.FeatureGates(case.get("featureGates"))
    return config.check(case["config"], gates=gates, implements=IN_TREE)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_a_configuration_is_accepted_or_refused_as_by_the_reference(case: dict[str, Any]) -> None:
    problems = _checked(case)
    assert bool(problems) == ("config_error" in case), problems


@pytest.mark.parametrize("case", [c for c in _CASES if "config_error" in c], ids=lambda case: case["name"])
def test_a_refusal_names_the_fields_that_the_reference_names(case: dict[str, Any]) -> None:
    problems = [(problem.path, problem.text) for problem in _checked(case)]
    assert names_same_fields(problems, case["config_error"]), problems


@pytest.mark.parametrize(
    "case",
    [c for c in _CASES if c.get("config_error", "").startswith("initializing profiles")],
    ids=lambda case: case["name"],
)
def test_what_cannot_be_built_is_first_told_in_the_words_of_the_reference(case: dict[str, Any]) -> None:
    assert _checked(case)[0].text == case["config_error"]


def test_the_recording_has_all_its_cases() -> None:
    assert (len(_CASES), sum("config_error" in case for case in _CASES)) == (150, 116)
