"""The cases of other projects' tests: a folder of tables, each a JSON file with numbered cases as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

Case = Mapping[str, Any]


class RecordedTables:
    """The tables of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, list[Case]] = {}

    def cases_of(self, table: str) -> list[Case]:
        """All cases of a table."""
        if table not in self._read:
            self._read[table] = json.loads((self.folder / f"{table}.json").read_text())["cases"]
        return self._read[table]

    def parameters(self, table: str, different: Mapping[int, str] | None = None) -> list[Any]:
        """The cases of a table as parameters; those ``different`` here, by number, are skipped for a reason."""
        found = []
        for case in self.cases_of(table):
            reason = (different or {}).get(case["number"])
            marks = [] if reason is None else [pytest.mark.skip(reason)]
            found.append(pytest.param(case, id=f"{table}-{case['number']}-{case['digest']}", marks=marks))
        return found
