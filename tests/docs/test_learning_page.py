"""The example of docs/learning.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"


def test_the_example_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert re.fullmatch(r"\d+% of the cluster allocated, \d+ pods pending\n", capsys.readouterr().out)
