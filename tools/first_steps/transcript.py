"""A page of Markdown whose ``console`` blocks are run.

A line that begins with ``$`` is a command, the lines up to the next one are what it prints. A block in another language
whose first line is a comment with a file name is that file. Commands run in one folder, with these rules:

- ``export NAME=value`` holds for the commands after it,
- a command that ends in ``&`` runs in the background; it is waited for until it prints ``ready``,
- ``kill %1`` ends it, and prints what it still printed.

What differs from run to run is replaced: ports, ages and hashes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w.-]+)\n")
_VOLATILE = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:40000"),
    (re.compile(r"(?<= )(?:\d+m)?\d+s$", re.MULTILINE), "5s"),
    (re.compile(r"(?<= )(?:\d+m)?\d+s(?=  )"), "5s"),
    (re.compile(r"(?<=kubestow-configuration-)[0-9a-z]{10}\b"), "th4f2725dk"),
)


class Session:
    """Runs commands in ``folder``, which needs to exist. Ends what runs in the background on exit."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._background: subprocess.Popen[str] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._background is not None:
            self._end_background()

    def write(self, name: str, content: str) -> None:
        """Write a file of the page."""
        (self._folder / name).write_text(content, encoding="utf-8")

    def run(self, command: str) -> str:
        """Run a command; what it prints, standard error included, without what differs from run to run."""
        if command.endswith("&"):
            return _stable(self._start(command.removesuffix("&")))
        if command == "kill %1":
            return _stable(self._end_background())
        if command.startswith("export "):
            name = command.removeprefix("export ").partition("=")[0]
            self._environment[name] = self._shell(f"{command}; printf %s ${name}")
            return ""
        return _stable(self._shell(command))

    def _shell(self, command: str) -> str:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        ).stdout

    def _start(self, command: str) -> str:
        assert self._background is None, "one command at a time runs in the background"
        self._background = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._background.stdout is not None
        lines = []
        for line in self._background.stdout:
            lines.append(line)
            if line == "ready\n":
                break
        return "".join(lines)

    def _end_background(self) -> str:
        process, self._background = self._background, None
        assert process is not None, "nothing runs in the background"
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
        return printed


def rewritten(page: str, session: Session, *, installs: bool = True) -> str:
    """The page with what its commands print now. Without ``installs`` the first console block stays as it is."""
    skipped = 0 if installs else 1

    def block(match: re.Match[str]) -> str:
        nonlocal skipped
        language, content = match.groups()
        if language != "console":
            if named := _FILE.match(content):
                session.write(named[1], content)
            return match[0]
        if skipped:
            skipped -= 1
            return match[0]
        return f"```console\n{''.join(_transcript(content, session))}```"

    return _BLOCK.sub(block, page)


def _transcript(content: str, session: Session) -> Iterator[str]:
    for line in content.splitlines():
        if line.startswith("$ "):
            printed = "\n".join(text.rstrip() for text in session.run(line.removeprefix("$ ")).splitlines())
            yield f"{line}\n{printed}\n" if printed else f"{line}\n"


def same(one: str, other: str) -> bool:
    """Whether two pages differ in nothing but the widths of columns."""
    return re.sub(r" +", " ", one) == re.sub(r" +", " ", other)


def _stable(text: str) -> str:
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def environment(home: Path, *folders: Path) -> dict[str, str]:
    """The environment of a new user: ``home`` is empty; ``folders`` precede the PATH. Proxies and such are kept."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "PYTHON", "VIRTUAL_ENV"))}
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])
    return kept | {
        "HOME": str(home),
        "PATH": path,
        "COLUMNS": "100",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
