"""The process that runs a policy: it reads a request, confines itself, simulates, and writes where each pod went.

It is started by :mod:`.evaluation`, which has a deadline for it. Whatever goes wrong in the policy is part of its
answer, with the line of the policy's file and without the frames of this project.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from kubestow_lab.evaluation.confinement import forbid_processes, leave_network, limit_resources, restrict_files

#: The characters of a message.
_LONGEST = 2000
#: A file that the policy or its output may fill, in bytes, and the files that it may open.
_FILE_BYTES, _OPEN_FILES = 1 << 20, 64


class _Answer:
    """The answer of the process: the first one that is given, after which the process ends."""

    def __init__(self, descriptor: int, sandbox: dict[str, str]) -> None:
        self._descriptor, self._sandbox = descriptor, sandbox

    def give(self, status: str, **content: Any) -> NoReturn:
        """Write the answer, and end the process whatever else is going on in it."""
        text = json.dumps({"status": status, "sandbox": self._sandbox, **content}).encode()
        while text:
            text = text[os.write(self._descriptor, text) :]
        os._exit(0)

    def fail(self, error: BaseException, filename: str, status: str = "exception") -> NoReturn:
        """Answer with an exception of the policy, and where in its file it was raised."""
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
        message = f"{type(error).__name__}: {error}"[:_LONGEST]
        if isinstance(error, MemoryError):
            status, message = "memory", "the policy used more memory than it may"
        self.give(status, message=message, line=lines[-1] if lines else None)


def main() -> None:
    """Serve the request on standard input; the answer goes to what was standard output."""
    request = json.loads(sys.stdin.buffer.read())
    answers = os.dup(1)
    os.dup2(2, 1)  # what the policy prints goes to the parent's file
    network = leave_network()  # before the libraries start threads
    limits = request["limits"]
    limit_resources(
        cpu_seconds=limits["cpuSeconds"],
        memory_bytes=limits["memoryBytes"],
        file_bytes=_FILE_BYTES,
        open_files=_OPEN_FILES,
    )
    # All that the engine imports is read before the files are out of reach.
    from kubestow_lab.evaluation.suites import SUITES

    suite = SUITES[request["suite"]]
    files, tcp = restrict_files(writable=[Path.cwd()], readable=[])
    forbid_processes()
    sandbox = {
        "network": "none" if network else "no TCP" if tcp else "not restricted",
        "files": "restricted" if files else "not restricted",
    }
    answer = _Answer(answers, sandbox)
    policy = _load(request["filename"], request["source"], request["name"], answer)
    placements = []
    for seed in request["seeds"]:
        try:
            placed = suite.place(seed, *_scheduler(policy, request["filename"], answer))
        except Exception as error:
            answer.fail(error, request["filename"])
        if placed.failure:
            answer.give("exception", message=placed.failure[:_LONGEST], line=None)
        placements.append(placed.nodes)
    answer.give("ok", placements=placements)


def _load(filename: str, source: str, name: str, answer: _Answer) -> Any:
    """Run the policy's file as a module, and return what has the name."""
    try:
        code = compile(source, filename, "exec")
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        answer.give("syntax-error", message=f"{type(error).__name__}: {text}"[:_LONGEST], line=line)
    module = sys.modules["policy"] = ModuleType("policy")
    module.__file__ = filename
    try:
        exec(code, module.__dict__)
    except BaseException as error:
        answer.fail(error, filename)
    if not hasattr(module, name):
        found = ", ".join(sorted(key for key, value in vars(module).items() if callable(value))) or "nothing to call"
        answer.give("missing", message=f"has no {name}, it has {found}"[:_LONGEST], line=None)
    return getattr(module, name)


def _scheduler(policy: Any, filename: str, answer: _Answer) -> tuple[Any, list[Any]]:
    """The configuration and the plugin classes that make a policy the scheduler's only score."""
    from kubestow.framework.interface import Plugin
    from kubestow_lab.evaluation.suites import configuration_of

    if isinstance(policy, type) and issubclass(policy, Plugin):
        return configuration_of(policy), [policy]
    if not callable(policy):
        answer.give("missing", message=f"is a {type(policy).__name__}, expected a function or a plugin", line=None)
    plugin = _score_plugin(policy, filename, answer)
    return configuration_of(plugin), [plugin]


def _score_plugin(function: Callable[..., Any], filename: str, answer: _Answer) -> Any:
    """A Score plugin that ranks the feasible nodes by a function of the pod and these nodes."""
    import numpy as np

    from kubestow.cluster.nodes.views import Nodes
    from kubestow.cluster.pods.shapes import PodInfo
    from kubestow.framework.cycle_state import CycleState
    from kubestow.framework.interface import MAX_SCORE, ScorePlugin, Scores

    class Function(ScorePlugin):
        """Of the nodes, those with the function's highest value have 100, the others 0 to 99 in proportion."""

        name = "Function"
        scores_feasible_set = True

        def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
            try:
                found = function(pod, nodes)
            except BaseException as error:
                answer.fail(error, filename)
            try:
                values = np.asarray(found, dtype=np.float64)
            except (TypeError, ValueError) as error:
                answer.give("invalid-return", message=f"expected numbers: {error}"[:_LONGEST], line=None)
            if values.shape != (len(nodes),):
                got = f"expected {len(nodes)} numbers, one per node, got an array of shape {values.shape}"
                answer.give("invalid-return", message=got, line=None)
            if not np.isfinite(values).all():
                worst = float(values[~np.isfinite(values)][0])
                answer.give("invalid-return", message=f"expected finite numbers, got {worst}", line=None)
            low, high = values.min(), values.max()
            if low == high:
                return np.full(len(nodes), MAX_SCORE, np.int64)
            scores: Scores = ((values - low) / (high - low) * (MAX_SCORE - 1)).astype(np.int64)
            scores[values == high] = MAX_SCORE
            return scores

    return Function


if __name__ == "__main__":
    main()
