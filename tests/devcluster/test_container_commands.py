"""Commands whose end and output are known without running them."""

from __future__ import annotations

import pytest

from kubestow.devcluster.container_commands import ContainerCommand, command_of


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["true"], ContainerCommand(0, 0)),
        (["/bin/false"], ContainerCommand(0, 1)),
        (["sleep", "60"], ContainerCommand(60, 0)),
        (["sleep", "1.5m", "1"], ContainerCommand(91, 0)),
        (["sleep", "infinity"], ContainerCommand(float("inf"), 0)),
        (["echo", "a", "b"], ContainerCommand(0, 0, "a b\n")),
        (["sh", "-c", "exit 3"], ContainerCommand(0, 3)),
        (["/bin/bash", "-c", "echo hello; sleep 5 && exit 2; echo never"], ContainerCommand(5, 2, "hello\n")),
        (["sh", "-c", "false && sleep 9"], ContainerCommand(0, 1)),
        (["sh", "-c", "false; true"], ContainerCommand(0, 0)),
        (["sh", "-c", "\n echo 'a  b'\n exit 1\n"], ContainerCommand(0, 1, "a  b\n")),
    ],
)
def test_the_end_of_a_known_command(arguments: list[str], expected: ContainerCommand) -> None:
    assert command_of({"command": arguments}) == expected
    assert command_of({"command": arguments[:1], "args": arguments[1:]}) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nginx"],
        ["sleep"],
        ["sleep", "soon"],
        ["sh"],
        ["sh", "-x", "-c", "exit 1"],
        ["sh", "-c", "while true; do sleep 1; done"],
        ["sh", "-c", "exit $CODE"],
        ["sh", "-c", "false || true"],
        ["sh", "-c", "echo 'open"],
        ["sh", "-c", "exit 256"],
        ["sh", "-c", ""],
    ],
)
def test_any_other_command_is_unknown(arguments: list[str]) -> None:
    assert command_of({"command": arguments}) is None
