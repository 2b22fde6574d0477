"""The reference of what kubestow reports: events, conditions and messages, against the code and recorded decisions."""

from __future__ import annotations

import ast
import gzip
import re
from pathlib import Path

import pytest
from tools.site import reference
from tools.site.messages import plugin_messages, scheduler_messages

from kubestow.plugins import IN_TREE

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "conformance" / "corpus"
#: The functions that make an event, with the position of its reason.
EVENT_CALLS = {"EventRecord": 1, "pod_event": 1, "record": 1}
RECORDINGS = [f"{plugin.name.lower()}.jsonl.gz" for plugin in IN_TREE]


@pytest.fixture(scope="module")
def events() -> str:
    return reference.pages()["events"]


def test_events_have_their_reason_action_and_note(events: str) -> None:
    assert "| `Scheduled` | Normal | Binding | Pod | `Successfully assigned {pod} to {node}` |" in events
    assert "| `FailedScheduling` | Warning | Scheduling | Pod | `{message}` |" in events
    assert "| `LeaderElection` | Normal | LeaderElection | Lease |" in events


def test_conditions_have_their_reasons(events: str) -> None:
    for row in (
        "Pod | `PodScheduled` | `Unschedulable`",
        "Pod | `PodScheduled` | `SchedulerError`",
        "Pod | `DisruptionTarget` | `PreemptionByScheduler`",
        "PodGroup | `PodGroupScheduled` | `Scheduled`",
    ):
        assert f"| {row} |" in events


def test_every_event_that_is_written_is_a_declared_one() -> None:
    """An event with a reason of its own would not be in the reference."""
    undeclared = []
    for source in sorted((ROOT / "packages").glob("*/src/**/*.py")):
        if "kubestow_devcluster" in source.parts:
            continue
        for node in ast.walk(ast.parse(source.read_bytes())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                arguments = [*node.args[EVENT_CALLS.get(name, len(node.args)) :][:1]]
                arguments += [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                if name in EVENT_CALLS and any(isinstance(value, ast.Constant) for value in arguments):
                    undeclared.append(f"{source.name}:{node.lineno}")
    assert undeclared == []


def test_every_recorded_rejection_is_in_the_reference() -> None:
    texts = [text for found in plugin_messages(IN_TREE).values() for text in found] + [*scheduler_messages()]
    known = re.compile("|".join(re.sub(r"\\{.*?\\}", ".+", re.escape(text)) for text in texts))
    recorded: set[str] = set()
    for name in RECORDINGS:
        if (CORPUS / name).exists():
            lines = gzip.decompress((CORPUS / name).read_bytes()).decode()
            for message in re.findall(r'"0/\d+ nodes are available: ((?:[^"\\]|\\.)*)"', lines):
                reasons = message.replace('\\"', '"').partition(". ")[0].removesuffix(".")
                recorded |= {reason for reason in re.split(r"(?:^|, )\d+ ", reasons) if reason}
    assert len(recorded) > 20
    assert sorted(message for message in recorded if not known.fullmatch(message)) == []
