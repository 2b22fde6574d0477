"""What the command of a container does, for a few commands that tests and examples use.

No process runs on a simulated node. ``true``, ``false``, ``sleep``, ``echo`` and ``exit`` are understood, alone and in
sequences of a shell (``sh -c 'echo a; sleep 5 && exit 3'``). Any other command is unknown, with everything after it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["ContainerCommand", "command_of"]

_SHELLS = ("ash", "bash", "dash", "sh")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)([smhd]?)")
#: Statements and what separates them; anything else of a shell's syntax makes the script unknown.
_SEPARATOR = re.compile(r"\s*(&&|;|\n)\s*")
_SHELL_SYNTAX = re.compile(r"[|&<>$`(){}*?\[\]#!]")
_MAX_SCRIPT = 4096


class ContainerCommand(NamedTuple):
    """How long a command runs in seconds (infinity: it does not exit), its exit code, and its output."""

    duration: float
    exit_code: int
    output: str = ""


def command_of(container: dict[str, Any]) -> ContainerCommand | None:
    """What the command of a container does; None if it has none or an unknown one."""
    if not container.get("command") and not container.get("args"):
        return None
    arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
    if arguments and _program(arguments[0]) in _SHELLS:
        return _script(arguments[2]) if len(arguments) == 3 and arguments[1] == "-c" else None
    return _statement(arguments)


def _script(script: str) -> ContainerCommand | None:
    if len(script) > _MAX_SCRIPT:
        return None
    parts = _SEPARATOR.split(script.strip().rstrip(";"))
    total, skip = ContainerCommand(0.0, 0), False
    for number, text in enumerate(parts):
        if number % 2:
            skip = text == "&&" and total.exit_code != 0
            continue
        if _SHELL_SYNTAX.search(text):
            return None
        try:
            arguments = shlex.split(text)
        except ValueError:
            return None
        result = _statement(arguments)
        if result is None:
            return None
        if not skip:
            total = ContainerCommand(total.duration + result.duration, result.exit_code, total.output + result.output)
            if _program(arguments[0]) == "exit":
                break
    return total


def _statement(arguments: Sequence[str]) -> ContainerCommand | None:
    if not arguments:
        return None
    match _program(arguments[0]), *arguments[1:]:
        case ["true" | ":"]:
            return ContainerCommand(0.0, 0)
        case ["false"]:
            return ContainerCommand(0.0, 1)
        case ["exit"]:
            return ContainerCommand(0.0, 0)
        case ["exit", code] if code.isdecimal() and int(code) < 256:
            return ContainerCommand(0.0, int(code))
        case ["echo", *words]:
            return ContainerCommand(0.0, 0, " ".join(words) + "\n")
        case ["sleep", *durations] if durations:
            seconds = [_seconds(duration) for duration in durations]
            return None if None in seconds else ContainerCommand(sum(filter(None, seconds)), 0)
    return None


def _program(path: str) -> str:
    return path.rpartition("/")[2]


def _seconds(text: str) -> float | None:
    if text in ("infinity", "inf"):
        return float("inf")
    match = _DURATION.fullmatch(text)
    return None if match is None else float(match[1]) * _UNITS[match[2]]
