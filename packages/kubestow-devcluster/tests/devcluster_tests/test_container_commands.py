"""Commands whose end and output are known without running them."""

from __future__ import annotations

import pytest

from kubestow_devcluster.container_commands import ContainerCommand, command_of


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
        (["sh", "-c", "false || true"], ContainerCommand(0, 0)),
        (["sh", "-c", "true && false || exit 4"], ContainerCommand(0, 4)),
        (["sh", "-c", "false && nginx"], ContainerCommand(0, 1)),
        (["sh", "-c", "# a comment\nN=7; exit $N"], ContainerCommand(0, 7)),
        (["sh", "-c", 'N="a b"; echo "$N"; echo ${N}c'], None),
        (["sh", "-c", "N=ab; echo \"<$N>\" '$N'; exit $((2 * (3 + 1) % 5))"], ContainerCommand(0, 3, "<ab> $N\n")),
        (["sh", "-c", "exit $(expr 7 / 2)"], ContainerCommand(0, 3)),
        (["sh", "-c", "if [ 3 -gt 2 ]; then exit 1; else nginx; fi"], ContainerCommand(0, 1)),
        (["sh", "-c", 'if [[ "$X" == b ]]\nthen exit 1\nelif test -z ""; then sleep 2; fi'], None),
        (
            ["sh", "-c", 'X=c; if [[ "$X" == b ]]\nthen exit 1\nelif test -z ""; then sleep 2; fi'],
            ContainerCommand(2, 0),
        ),
        (["sh", "-c", "if ! [ a = b ]; then exit 1; fi"], None),
        (["sh", "-c", "if [ ! a = b ]; then exit 5; fi"], ContainerCommand(0, 5)),
        (["sh", "-c", "\n echo 'a  b'\n exit 1\n"], ContainerCommand(0, 1, "a  b\n")),
    ],
)
def test_the_end_of_a_known_command(arguments: list[str], expected: ContainerCommand | None) -> None:
    assert command_of({"command": arguments}, {}) == expected
    assert command_of({"command": arguments[:1], "args": arguments[1:]}, {}) == expected


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
        ["sh", "-c", "echo 'open"],
        ["sh", "-c", "exit 256"],
        ["sh", "-c", ""],
    ],
)
def test_any_other_command_is_unknown(arguments: list[str]) -> None:
    assert command_of({"command": arguments}, {}) is None


@pytest.mark.parametrize(("index", "code"), [("0", 0), ("1", 1), ("3", 1)])
def test_a_script_can_depend_on_environment_variables_of_the_metadata(index: str, code: int) -> None:
    label = "batch.kubernetes.io/job-completion-index"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
    script = "\nif [ $(expr ${JOB_COMPLETION_INDEX} % 2) -ne 0 ]; then\n  exit 1\nelse\n  exit 0\nfi\n"
    container = {
        "command": ["sh", "-c"],
        "args": [script],
        "env": [{"name": "JOB_COMPLETION_INDEX", "valueFrom": source}],
    }
    assert command_of(container, {"labels": {label: index}}) == ContainerCommand(0, code)
    assert command_of(container, {}) is None


def test_references_in_arguments_are_expanded() -> None:
    environment = [{"name": "CODE", "value": "3"}, {"name": "BOTH", "value": "$(CODE)1"}]
    container = {"command": ["echo", "$(CODE)", "$(BOTH)", "$$(CODE)", "$(NONE)"], "env": environment}
    assert command_of(container, {}) == ContainerCommand(0, 0, "3 31 $(CODE) $(NONE)\n")
