"""A bounded part of the fuzzing of everything that parses foreign bytes; see :mod:`tests.security.fuzz`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_tests.hang_limit import HANG_LIMIT
from tests.security.fuzz.findings import FINDINGS
from tests.security.fuzz.readers import READERS

#: Inputs of each reader.
_INPUTS = 400


def test_mutated_inputs_are_read_or_rejected(tmp_path: Path) -> None:
    """In processes with limits: a signal, running out of memory and of CPU time are failures like any exception."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OPENBLAS_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [sys.executable, "-m", "tests.security.fuzz.bounded", str(_INPUTS), "1", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=HANG_LIMIT, check=False, errors="replace"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "content"), FINDINGS)
def test_what_fuzzing_has_found_is_rejected(name: str, content: bytes) -> None:
    with pytest.raises(READERS[name].rejections):
        READERS[name].read(content)
