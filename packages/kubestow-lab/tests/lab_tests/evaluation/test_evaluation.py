"""Policies of unknown origin: whatever they do is data, and nothing they say about themselves is believed."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubestow.errors import InputError
from kubestow_lab.cli.evaluate import evaluate as command
from kubestow_lab.evaluation.evaluation import Evaluation, Limits, Status, evaluate
from kubestow_lab.evaluation.suites import SUITES, InvalidPlacement

SMALL = SUITES["openb-small"]


def evaluated(folder: Path, body: str, *, name: str = "score", limits: Limits | None = None) -> Evaluation:
    """The evaluation of a file."""
    path = folder / "policy.py"
    path.write_text(body)
    return evaluate(f"{path}:{name}", SMALL, limits=limits)


def test_a_function_is_measured_beside_the_default_scheduler(tmp_path: Path) -> None:
    found = evaluated(
        tmp_path, "def score(pod, nodes):\n    print('hello')\n    return nodes.requested('cpu') / 1000\n"
    )
    assert found.is_ok
    assert (
        found.score == found.metrics[SMALL.objective] == pytest.approx(sum(r[SMALL.objective] for r in found.runs) / 3)
    )
    assert found.metrics.keys() == found.baseline.keys()
    assert 0.8 < found.score < 1
    assert found.output.endswith("hello\n")
    assert "default scheduler's" in found.feedback
    assert "pods are pending" in found.feedback
    total = found.metrics["pending"] + found.metrics["placed"]
    assert total == found.baseline["pending"] + found.baseline["placed"]


def test_a_plugin_gives_what_the_same_function_gives(tmp_path: Path) -> None:
    plugin = (
        "import numpy as np\n"
        "from kubestow.framework.interface import ScorePlugin\n"
        "class Mine(ScorePlugin):\n"
        "    name = 'Mine'\n"
        "    def score(self, state, pod, nodes):\n"
        "        return 100 - nodes.pod_count.astype(np.int64)\n"
        "def score(pod, nodes):\n"
        "    return -nodes.pod_count\n"
    )
    by_class, by_function = (evaluated(tmp_path, plugin, name=name) for name in ("Mine", "score"))
    assert by_class.is_ok, by_class.feedback
    assert by_class.runs == by_function.runs


@pytest.mark.parametrize(
    ("body", "status", "feedback"),
    [
        ("def score(pod, nodes) return 3", Status.SYNTAX_ERROR, "line 1: SyntaxError: expected ':'"),
        (
            "x = 1\nimport absent_module",
            Status.EXCEPTION,
            "line 2: ModuleNotFoundError: No module named 'absent_module'",
        ),
        ("def other(pod, nodes): ...", Status.MISSING, "has no score, it has other"),
        ("score = 3", Status.MISSING, "is a int, expected a function or a plugin"),
        ("def score(pod, nodes):\n    return 1 / 0", Status.EXCEPTION, "line 2: ZeroDivisionError: division by zero"),
        ("def score(pod, nodes):\n    raise SystemExit(3)", Status.EXCEPTION, "line 2: SystemExit: 3"),
        ("def score(pod, nodes):\n    return [1.0]", Status.INVALID_RETURN, "expected 100 numbers, one per node"),
        ("def score(pod, nodes):\n    return [float('nan')] * len(nodes)", Status.INVALID_RETURN, "expected finite"),
        ("def score(pod, nodes):\n    return 'abc'", Status.INVALID_RETURN, "expected numbers: could not convert"),
        ("import os\nos.abort()", Status.CRASHED, "the process of the policy ended without an answer (signal SIGABRT)"),
    ],
)
def test_failures_are_data(tmp_path: Path, body: str, status: Status, feedback: str) -> None:
    found = evaluated(tmp_path, body)
    assert (found.status, found.score, found.metrics) == (status, 0.0, {})
    assert found.feedback.startswith(feedback)


def test_time_and_memory_are_limited(tmp_path: Path) -> None:
    found = evaluated(tmp_path, "while True: pass", limits=Limits(seconds=0.5))
    assert (found.status, found.feedback) == (Status.TIMEOUT, "did not end within 0.5 s")
    hog = "def score(pod, nodes):\n    return bytearray(1 << 31)\n"
    found = evaluated(tmp_path, hog, limits=Limits(memory=1 << 30))
    assert (found.status, found.line) == (Status.MEMORY, 2)


def test_the_environment_is_not_that_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    found = evaluated(tmp_path, "import os\nraise ValueError(sorted(os.environ))")
    assert "SECRET_TOKEN" not in found.feedback
    assert "PATH" in found.feedback


@pytest.mark.skipif(sys.platform != "linux", reason="needs Landlock or network namespaces")
def test_files_and_network_are_out_of_reach_where_the_system_says_so(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("abc")
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = (
            "import socket\n"
            "reached = []\n"
            "for name, act in {\n"
            f"    'read': lambda: open({str(secret)!r}).read(),\n"
            f"    'write': lambda: open({str(tmp_path / 'owned')!r}, 'w').write('x'),\n"
            "    'own': lambda: open('mine', 'w').write('x'),\n"
            f"    'network': lambda: socket.create_connection({server.getsockname()!r}),\n"
            "}.items():\n"
            "    try:\n"
            "        act()\n"
            "        reached.append(name)\n"
            "    except OSError:\n"
            "        pass\n"
            "def score(pod, nodes):\n"
            "    raise ValueError(' '.join(reached))\n"
        )
        found = evaluated(tmp_path, body)
    assert found.status is Status.EXCEPTION
    reached = set(found.feedback.rpartition(": ")[2].split())
    assert "own" in reached
    if found.sandbox["files"] == "restricted":
        assert not reached & {"read", "write"}
    if found.sandbox["network"] != "not restricted":
        assert "network" not in reached
    assert (tmp_path / "owned").exists() == ("write" in reached)


def test_a_forged_answer_is_checked(tmp_path: Path) -> None:
    forged = {"status": "ok", "placements": [["node-0000"] * 799] * 3, "sandbox": {}}
    body = (
        "import os\n"
        f"text = {json.dumps(forged)!r}.encode()\n"
        "for descriptor in range(3, 20):\n"
        "    try:\n"
        "        os.write(descriptor, text)\n"
        "    except OSError:\n"
        "        pass\n"
        "os._exit(0)\n"
    )
    found = evaluated(tmp_path, body)
    assert found.status is Status.INVALID_PLACEMENT
    assert found.score == 0.0


def test_placements_that_exceed_a_node_are_invalid() -> None:
    nodes = SMALL.place(0).nodes
    values, _ = SMALL.measure(0, nodes)
    assert values["placed"] == sum(1 for node in nodes if node)
    with pytest.raises(InvalidPlacement, match=r"node node-0000 has more \S+ requested than it has"):
        SMALL.measure(0, ["node-0000"] * len(nodes))
    with pytest.raises(InvalidPlacement, match="is on node nowhere, which does not exist"):
        SMALL.measure(0, ["nowhere", *nodes[1:]])


def test_seeds_for_searching_and_for_publication_are_different() -> None:
    assert all(not set(suite.seeds) & set(suite.held_out_seeds) for suite in SUITES.values())


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    path.write_text("def score(pod, nodes):\n    return 1 / 0\n")
    arguments = [f"{path}:score", "--timeout", "1m", "-o", "json"]
    found = CliRunner().invoke(command, arguments, standalone_mode=False)
    document = json.loads(found.stdout)
    assert (found.return_value, document["status"], document["line"]) == (1, "exception", 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy"], "policy: expected file.py:name, got 'policy'"),
        (["absent.py:score"], "absent.py: cannot be read: No such file or directory"),
        (["a.py:score", "--suite", "x"], "suite: no suite 'x', expected one of openb-small, openb-full"),
        (["a.py:score", "--timeout", "x"], '--timeout: time: invalid duration "x"'),
        (["a.py:score", "--memory", "x"], '--memory: "x" is not a resource quantity'),
        (["a.py:score", "--memory", "1Mi"], "memory: expected at least 256 MiB"),
    ],
)
def test_bad_arguments_are_errors(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(command, arguments)
    assert isinstance(found.exception, InputError)
    assert str(found.exception).startswith(message)
