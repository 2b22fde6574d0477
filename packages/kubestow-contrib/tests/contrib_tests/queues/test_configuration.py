"""The args of JobQueues: what is read, and the mistakes that are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contrib_tests.queues.jobs_of_pods import job, profile
from kubestow.errors import ConfigurationError, InputError
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.queues.configuration import JobQueuesArgs, QueueArgs, read_queues
from kubestow_contrib.queues.job_queues import JobQueues
from kubestow_contrib.queues.queues_file import with_queues_file


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"queues": []}, "queues: expected at least one"),
        ({"queues": [{"name": "a"}, {"name": "a"}]}, 'queues[1].name is "a", expected a name of its own'),
        ({"queues": [{"name": "a", "parent": "b"}]}, 'queues[0].parent: there is no queue "b"'),
        (
            {"queues": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "queues[0].parent: is a cycle: a -> b -> a",
        ),
        ({"queues": [{"name": "a", "weight": 0}]}, "queues[0].weight is 0, expected a positive number"),
        (
            {"queues": [{"name": "a", "amounts": [{"flavor": "x"}]}]},
            'queues[0].amounts[0].flavor: there is no flavor "x"',
        ),
        (
            {"queues": [{"name": "a", "amounts": [{"limit": {"cpu": "x"}}]}]},
            "queues[0].amounts[0].limit.cpu",
        ),
        (
            {"queues": [{"name": "a", "amounts": [{"guaranteed": {"cpu": 2}, "limit": {"cpu": 1}}]}]},
            "queues[0].amounts[0].guaranteed.cpu: is above limit.cpu",
        ),
        ({"queues": [{"name": "a"}], "interval": "0s"}, "interval is 0s, expected a positive duration"),
        ({"queues": [{"name": "a"}], "maxWait": "soon"}, "maxWait: time: invalid duration"),
        ({"queues": [{"name": "a"}], "backfill": {"mode": "greedy"}}, "greedy"),
        ({"queues": [{"name": "a"}], "backfill": {"mod": "easy"}}, "mod"),
        ({"queues": [{"name": "a"}], "defaultQueue": "b"}, 'defaultQueue: there is no queue "b"'),
        ({"queues": [{"name": "a"}, {"name": "b", "parent": "a"}], "defaultQueue": "a"}, "is the parent of others"),
        ({"queues": [{"name": "a"}], "flavors": [{"name": "x", "nodeLabels": {}}]}, "expected at least one label"),
    ],
)
def test_mistakes_name_their_field(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match="JobQueues") as raised:
        PluginHarness(
            [node("n")],
            profile=profile()[0] | {"pluginConfig": [{"name": "JobQueues", "args": args}]},
            plugins=[JobQueues],
        )
    assert problem in str(raised.value)


def test_queues_can_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text("queues:\n- {name: a, amounts: [{limit: {cpu: 4}}]}\n- {name: b, parent: a}\n")
    queues = read_queues(with_queues_file(JobQueuesArgs(queues_file=str(path))))
    assert queues["b"].lineage == ("b", "a")
    assert queues["a"].limits[0].limit == {"cpu": 4000}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("queues: [", "queues.yaml"),
        ("queues:\n- {nam: a}\n", "queues.yaml"),
        ("queues:\n- {name: a, weight: -1}\n", "queues[0].weight is -1"),
    ],
)
def test_mistakes_in_a_file_name_the_file(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as raised:
        with_queues_file(JobQueuesArgs(queues_file=str(path)))
    assert problem in str(raised.value)
    with pytest.raises(InputError, match="excludes"):
        with_queues_file(JobQueuesArgs(queues_file=str(path), queues=[QueueArgs("a")]))


def test_the_contract_is_kept() -> None:
    args = JobQueuesArgs(queues=[QueueArgs("q")])
    check_plugin(JobQueues, args=args, pods=[*job("a", "q", 2), *job("b", "q", 3), pod("plain")])
