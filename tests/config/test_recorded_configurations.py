"""The reference's verdict on recorded configurations: accepted or refused, and which fields it names."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kubestow import config
from tests.config.builders import IN_TREE

_CORPUS = Path(__file__).parents[1] / "conformance" / "corpus" / "configerrors.jsonl.gz"
_CASES = [json.loads(line) for line in gzip.decompress(_CORPUS.read_bytes()).splitlines()]
_FIELD = r"[A-Za-z]+(?:\[\d+\])?(?:\.[A-Za-z]+(?:\[\d+\])*)*"
_RULE = r"(?:Invalid value|Required value|Duplicate value|Unsupported value|Forbidden)"
_NESTED = re.compile(r"decoding \.(profiles\[\d+\]\.pluginConfig\[\d+\]):")


def _checked(case: dict[str, Any]) -> list[config.Problem]:
    gates = config.FeatureGates(case.get("featureGates"))
    return config.check(case["config"], gates=gates, implements=IN_TREE)


def _named_by_reference(text: str) -> set[str]:
    """The paths in the reference's text. Go names a field of the wrong type by its struct and without indices."""
    nested = _NESTED.search(text)
    prefix = f"{nested[1]}.args." if nested else ""
    paths = {prefix + path for path in re.findall(r'unknown field "([^"]+)"', text)}
    for path in re.findall(r"Go struct field \w+\.(\S+) of type", text):
        paths.add(re.sub(r"\[\d+\]", "", prefix + path.removeprefix("DebuggingConfiguration.")))
    return paths | set(re.findall(rf"({_FIELD}): {_RULE}", text))


def _named_by_us(problems: list[config.Problem], *, indices: bool) -> set[str]:
    text = "\n".join(str(problem) for problem in problems)
    paths = set(re.findall(rf"({_FIELD}): {_RULE}", text)) | {p.path for p in problems if p.path}
    return paths if indices else {re.sub(r"\[\d+\]", "", path) for path in paths}


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_a_configuration_is_accepted_or_refused_as_by_the_reference(case: dict[str, Any]) -> None:
    problems = _checked(case)
    assert bool(problems) == ("config_error" in case), problems


@pytest.mark.parametrize("case", [c for c in _CASES if "config_error" in c], ids=lambda case: case["name"])
def test_a_refusal_names_the_fields_that_the_reference_names(case: dict[str, Any]) -> None:
    named = _named_by_reference(case["config_error"])
    if named:
        assert _named_by_us(_checked(case), indices="Go struct field" not in case["config_error"]) == named


@pytest.mark.parametrize(
    "case",
    [c for c in _CASES if c.get("config_error", "").startswith("initializing profiles")],
    ids=lambda case: case["name"],
)
def test_what_cannot_be_built_is_first_told_in_the_words_of_the_reference(case: dict[str, Any]) -> None:
    assert _checked(case)[0].text == case["config_error"]


def test_the_recording_has_all_its_cases() -> None:
    assert (len(_CASES), sum("config_error" in case for case in _CASES)) == (150, 116)
