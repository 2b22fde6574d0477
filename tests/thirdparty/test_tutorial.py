"""The tutorial's code runs as it stands, block after block."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TUTORIAL = Path(__file__).parents[2] / "docs" / "plugins.md"


def test_every_block_of_the_tutorial_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)
