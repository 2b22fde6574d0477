"""The documented gates without effect are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from kubestow.config import feature_specs
from kubestow.config.feature_gates import NOT_IMPLEMENTED

DOCS = Path(__file__).parents[2] / "docs"


def test_the_semantics_name_every_gate_and_those_that_are_not_implemented() -> None:
    section = (DOCS / "semantics.md").read_text().partition("# 3. Feature gates")[2].partition("\n# ")[0]
    rows = re.findall(r"^\| ([A-Z][\w, ]+) \| (?:GA|Beta|Alpha), .*\| ([^|]+) \|$", section, re.MULTILINE)
    effects = {name: effect for names, effect in rows for name in names.split(", ")}
    assert effects.keys() == feature_specs().keys()
    assert {name for name, effect in effects.items() if effect == "no"} == NOT_IMPLEMENTED & effects.keys()
    assert [name for name in NOT_IMPLEMENTED - effects.keys() if f"{name} (" not in section] == [], "of older versions"


def test_the_guide_for_operators_lists_the_gates_that_are_not_implemented() -> None:
    table = (DOCS / "operate.md").read_text().partition("| Gate | What is not implemented |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == NOT_IMPLEMENTED
