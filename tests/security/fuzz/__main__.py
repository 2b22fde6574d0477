"""Fuzz readers under the guidance of coverage, one after the other, and print what was covered and found.

    python -m pip install --no-deps --require-hashes --requirement requirements/fuzz.txt
    python -m tests.security.fuzz --seconds 60 [READER...]

Each reader runs in a process of its own for so many seconds. Its corpus stays in build/fuzz/READER, so a later run goes
on from it; its findings are there as well, each an input with the traceback beside it. The exit status is 1 if there is
a finding: an exception that is not one of the reader's, a signal, running out of memory or of CPU time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.security.fuzz.readers import READERS

_COVERED = re.compile(rb"cov: (\d+) ft: (\d+) corp: (\d+)")
_EXECUTED = re.compile(rb"stat::number_of_executed_units: +(\d+)")


def fuzz(name: str, folder: Path, seconds: int) -> list[str]:
    """Fuzz one reader, print a line about it, and return its findings."""
    command = [sys.executable, "-m", "tests.security.fuzz.guided", name, str(folder), str(seconds)]
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w+b") as log:
        status = subprocess.run(command, stdout=log, stderr=log, check=False).returncode
        log.seek(0)
        text = log.read()
    covered, executed = _COVERED.findall(text), _EXECUTED.findall(text)
    edges, _, inputs = covered[-1] if covered else (b"?", b"", b"?")
    runs = executed[-1] if executed else b"?"
    findings = [file.read_text().partition("\n")[0] for file in sorted(folder.glob("findings/*.txt"))]
    if status:
        findings.append(f"exit status {status}, see {folder}/log; the input is in {folder}/current")
    print(f"{name:24} {runs.decode():>9} runs {edges.decode():>7} edges {inputs.decode():>6} inputs", flush=True)  # noqa: T201
    for finding in findings:
        print(f"    {finding}", flush=True)  # noqa: T201
    return findings


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description=__doc__)
    parser.add_argument("readers", nargs="*", default=list(READERS), metavar="READER")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="default: %(default)s")
    options = parser.parse_args()
    found = [fuzz(name, (options.folder / name).absolute(), options.seconds) for name in options.readers]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
