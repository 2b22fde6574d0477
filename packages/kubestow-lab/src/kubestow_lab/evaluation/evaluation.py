"""Evaluate a policy on a suite: run it in a confined process, check what it did, and measure that here.

The process of the policy answers with nothing but the node of each pod. Metrics are computed by this process from that
answer, on the same seeds, and a placement that exceeds a node is a failure of the policy: a program that changes the
engine it runs in gains nothing. What it could still do is know the pods that are to come, since they are in its memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from kubestow.errors import InputError
from kubestow.reports.model import Block, Paragraph, Table
from kubestow.reports.text import Displayed
from kubestow_lab.evaluation.suites import InvalidPlacement, Suite, find_suite

#: The bytes of an answer, of which ten thousand pods need some hundred thousand, and of what is shown of the output.
_LARGEST_ANSWER, _LARGEST_OUTPUT = 1 << 26, 2000
#: The process may use so much CPU time more than the wall clock allows, so that the deadline is what ends it.
_CPU_MARGIN = 5
_START = "import sys; sys.path[:] = {path!r}; from kubestow_lab.evaluation.policy_process import main; main()"


class Status(StrEnum):
    """How an evaluation ended."""

    OK = "ok"
    #: The file does not parse.
    SYNTAX_ERROR = "syntax-error"
    #: The file has no such function or plugin.
    MISSING = "missing"
    #: The policy raised an exception.
    EXCEPTION = "exception"
    #: Not one finite number per node.
    INVALID_RETURN = "invalid-return"
    #: The pods are where no scheduler may put them, or the process answered with something else.
    INVALID_PLACEMENT = "invalid-placement"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    #: The process ended without an answer, such as by a signal.
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Limits:
    """``seconds`` of wall clock from the start of the process to its answer, for all seeds together.

    ``memory`` are bytes of address space.
    """

    seconds: float = 60.0
    memory: int = 2 << 30

    def __post_init__(self) -> None:
        if not 0 < self.seconds < 1e6:
            raise InputError("timeout", f"expected more than 0 s, got {self.seconds:g} s")
        if self.memory < 256 << 20:
            raise InputError("memory", f"expected at least 256 MiB, got {self.memory} bytes")


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation(Displayed):
    """What a policy achieved. ``score`` is the mean objective over the seeds, 0 for a policy that failed.

    ``metrics`` are means over the seeds, ``baseline`` those of the default scheduler; both are empty for a policy that
    failed. ``feedback`` says in words what went wrong, or what is left to gain. ``line`` is in the policy's file,
    ``output`` the end of what it printed. ``sandbox`` says what this system lets the process do.
    """

    status: Status
    suite: str
    held_out: bool
    score: float
    metrics: Mapping[str, float]
    baseline: Mapping[str, float]
    runs: tuple[Mapping[str, float], ...]
    feedback: str
    line: int | None
    output: str
    sandbox: Mapping[str, str]
    seconds: float

    @property
    def is_ok(self) -> bool:
        """Whether the policy placed the pods of all seeds."""
        return self.status is Status.OK

    def as_json(self) -> dict[str, Any]:
        """Everything as data for JSON."""
        return {
            "kind": "Evaluation",
            "status": self.status.value,
            "suite": self.suite,
            "heldOut": self.held_out,
            "score": self.score,
            "metrics": dict(self.metrics),
            "baseline": dict(self.baseline),
            "runs": [dict(run) for run in self.runs],
            "feedback": self.feedback,
            "line": self.line,
            "output": self.output,
            "sandbox": dict(self.sandbox),
            "seconds": round(self.seconds, 3),
        }

    def blocks(self) -> Iterator[Block]:
        """The status, the metrics beside those of the default scheduler, and the feedback."""
        yield Paragraph(
            f"{self.suite}{', held-out seeds' if self.held_out else ''}: {self.status}, score {self.score:.4f}"
        )
        if self.is_ok:
            table = Table("metric", "policy", "default", right=("policy", "default"))
            for name, value in self.metrics.items():
                table.add(name, f"{value:,.4f}", f"{self.baseline[name]:,.4f}")
            yield table
        yield Paragraph(self.feedback)


def evaluate(
    policy: str, suite: str | Suite = "openb-small", *, limits: Limits | None = None, held_out: bool = False
) -> Evaluation:
    """Evaluate ``file.py:name``, a function of a pod and the feasible nodes, or a plugin class.

    The function gets a PodInfo and the Nodes on which it fits, as the ``score`` of a ScorePlugin does, and returns a
    number for each node; the pod goes to the node with the highest. The file cannot import others that are beside it.
    ``held_out``: on the seeds for publication instead of those for search.

    Whatever the policy does is data. Raises InputError for a file that cannot be read, or an unknown suite.
    """
    found = find_suite(suite) if isinstance(suite, str) else suite
    limits = limits or Limits()
    path, separator, name = policy.rpartition(":")
    if not separator or not path.endswith(".py") or not name.isidentifier():
        raise InputError("policy", f"expected file.py:name, got {policy!r}")
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(path, f"cannot be read: {reason}") from None
    seeds = found.held_out_seeds if held_out else found.seeds
    started = time.monotonic()
    answer, output = _answer(
        {
            "suite": found.name,
            "seeds": seeds,
            "filename": path,
            "source": source,
            "name": name,
            "limits": {"cpuSeconds": int(limits.seconds) + _CPU_MARGIN, "memoryBytes": limits.memory},
        },
        limits,
    )
    seconds = time.monotonic() - started
    runs, left_over = [], []
    if answer["status"] == "ok":
        try:
            placements = answer["placements"]
            if not (isinstance(placements, list) and len(placements) == len(seeds)):
                raise InvalidPlacement("the process did not answer with a placement for each seed")
            for seed, nodes in zip(seeds, placements, strict=True):
                if not (isinstance(nodes, list) and all(node is None or isinstance(node, str) for node in nodes)):
                    raise InvalidPlacement("the process did not answer with a node for each pod")
                values, text = found.measure(seed, nodes)
                runs.append(values)
                left_over.append(text)
        except (InvalidPlacement, KeyError) as error:
            answer = {**answer, "status": "invalid-placement", "message": str(error)}
            runs = []
    metrics: Mapping[str, float] = _means(runs)
    baseline: Mapping[str, float] = {}
    score = metrics.get(found.objective, 0.0)
    status = Status(answer["status"])
    if status is Status.OK:
        baseline = _baseline(found, seeds)
        gain = score - baseline[found.objective]
        feedback = (
            f"{found.objective} is {score:.4f}, {abs(gain):.4f} {'more' if gain >= 0 else 'less'} than the default"
            f" scheduler's {baseline[found.objective]:.4f}. Seed {seeds[0]}: {left_over[0]}"
        )
    else:
        feedback = str(answer.get("message", status.value))
    line = answer.get("line")
    return Evaluation(
        status,
        found.name,
        held_out,
        score,
        metrics,
        baseline,
        tuple(runs),
        f"line {line}: {feedback}" if line else feedback,
        line,
        output,
        answer.get("sandbox", {}),
        seconds,
    )


@lru_cache(maxsize=8)
def _baseline(suite: Suite, seeds: tuple[int, ...]) -> Mapping[str, float]:
    """The metrics of the default scheduler: once for all policies that a search evaluates in this process."""
    return _means([suite.measure(seed, suite.place(seed).nodes)[0] for seed in seeds])


def _means(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]} if runs else {}


def _answer(request: Mapping[str, Any], limits: Limits) -> tuple[dict[str, Any], str]:
    """The answer of the policy's process, and the end of what it printed. The process is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kubestow-policy-") as folder:
        printed = Path(folder) / "output.txt"
        with printed.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START.format(path=[path for path in sys.path if path])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=folder,
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "HOME": folder},
                start_new_session=True,
            )
        try:
            answer = _read_answer(process, json.dumps(request).encode(), limits.seconds)
        finally:
            # Its descendants too; those that have ended are no error.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        with printed.open("rb") as output:
            output.seek(max(0, printed.stat().st_size - _LARGEST_OUTPUT))
            text = output.read().decode("utf-8", "replace")
    if answer is None:
        answer = _crash(process.returncode, text)
    return answer, text


def _read_answer(process: subprocess.Popen[bytes], request: bytes, seconds: float) -> dict[str, Any] | None:
    """The decoded answer; None if the process ended without a valid one."""
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    with process.stdin, process.stdout:
        try:
            process.stdin.write(request)
            process.stdin.close()
        except BrokenPipeError:
            return None
        text = b""
        while True:
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return {"status": "timeout", "message": f"did not end within {seconds:g} s"}
            block = os.read(process.stdout.fileno(), 1 << 16)
            if not block:
                break
            text += block
            if len(text) > _LARGEST_ANSWER:
                return None
    if not text:
        return None
    try:
        found = json.loads(text)
        Status(found["status"])
        return found if isinstance(found, dict) else None
    except (ValueError, KeyError, TypeError):
        return {"status": "invalid-placement", "message": "the process answered with something that is no placement"}


def _crash(returncode: int, output: str) -> dict[str, Any]:
    if returncode == -signal.SIGXCPU:
        return {"status": "timeout", "message": "used more CPU time than it may"}
    if "MemoryError" in output or "cannot allocate memory" in output.lower():
        return {"status": "memory", "message": "the policy used more memory than it may"}
    how = f"signal {signal.Signals(-returncode).name}" if returncode < 0 else f"exit status {returncode}"
    return {"status": "crashed", "message": f"the process of the policy ended without an answer ({how})"}
