"""Replay of recorded kube-scheduler decisions: every result of every case agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.plugins import in_tree_registry
from kubestow.simulation.recorded_cases import read_cases
from kubestow.simulation.replay import replay

CORPUS = Path(__file__).parent / "corpus"
AREAS = sorted(path.name.removesuffix(".jsonl.gz") for path in CORPUS.glob("*.jsonl.gz"))


def test_the_corpus_has_all_areas() -> None:
    assert len(AREAS) == 23


@pytest.mark.parametrize("area", AREAS)
def test_every_recorded_case_agrees(area: str) -> None:
    registry = in_tree_registry()
    cases = list(read_cases(CORPUS / f"{area}.jsonl.gz"))
    assert [difference for case in cases for difference in replay(case, registry)] == []
