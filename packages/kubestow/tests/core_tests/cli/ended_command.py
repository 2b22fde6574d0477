"""Commands that end by themselves, called in a thread of the tests' process.

They do and print what they do and print in a process of their own, which takes a second of CPU time to start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import NamedTuple
from unittest.mock import patch

import pytest

from core_tests.hang_limit import HANG_LIMIT
from kubestow.cli import main


class Ended(NamedTuple):
    """The exit status, standard output and standard error of a command."""

    status: int
    out: str
    err: str


async def ended(*arguments: str, environment: Mapping[str, str] | None = None) -> Ended:
    """Call a command with further variables in the environment, while the event loop runs on."""
    logger = logging.getLogger("kubestow")
    level = logger.level
    try:
        with patch.dict(os.environ, environment or {}):
            return await asyncio.wait_for(asyncio.to_thread(_called, *arguments), HANG_LIMIT)
    finally:
        logger.setLevel(level)  # some commands log less


def _called(*arguments: str) -> Ended:
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as exited:
        main(list(arguments))
    printed, errors = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert "Traceback" not in errors
    return Ended(int(exited.value.code or 0), printed, errors)
