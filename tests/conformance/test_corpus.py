"""Replay of recorded decisions, capacity reports and descheduling loops: every result of every case agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.plugins import in_tree_registry
from kubestow_lab.conformance.replay import replay_file

CORPUS = Path(__file__).parent / "corpus"
AREAS = sorted(path.name.removesuffix(".jsonl.gz") for path in CORPUS.glob("*.jsonl.gz"))


def test_the_corpus_has_all_areas() -> None:
    assert len(AREAS) == 25


@pytest.mark.parametrize("area", AREAS)
def test_every_recorded_case_agrees(area: str) -> None:
    replayed = replay_file(CORPUS / f"{area}.jsonl.gz", in_tree_registry)
    assert [difference for _, found in replayed for difference in found] == []
