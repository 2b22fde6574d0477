"""docs/operate.md lists exactly the flags with their defaults and the metrics with their labels."""

from __future__ import annotations

import re
from pathlib import Path

from kubestow.cli.flags.scheduler import RUN
from kubestow.config import FeatureGates
from kubestow.observability.observability import Observability
from kubestow.process import WallClock

PAGE = (Path(__file__).parents[6] / "docs" / "operate.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_flag_is_documented_with_its_default() -> None:
    documented = {
        row[0].strip("`").removeprefix("-v` / `--"): row[1].strip("`")
        for row in ROWS
        if row[0].startswith(("`--", "`-v"))
    }
    flags = {f"--{flag.name}": flag for flag in RUN.by_name.values()}
    written = {name if name.startswith("--") else f"--{name}": default for name, default in documented.items()}
    assert written.keys() == flags.keys()
    for name, default in written.items():
        flag = flags[name]
        assert default in (flag.type.format(flag.default), "" if flag.default in ((), {}) else default)


def test_every_metric_is_documented_with_its_labels() -> None:
    documented = {
        row[0].strip("`"): re.findall(r"`(\w+)`", row[1])
        for row in ROWS
        if re.match(r"`(scheduler|kubestow|rest|auth[a-z]+|kubernetes|leader)_", row[0])
    }
    assert documented == {
        family.name: list(family.label_names) for family in Observability(WallClock(), FeatureGates()).metrics.families
    }
