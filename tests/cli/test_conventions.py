"""What all commands have in common: versions, verbosity, errors, help and completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from kubestow.cli import COMMANDS, main
from kubestow.cli import root_command as root
from kubestow.version import KUBERNETES_VERSION, VERSION

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; its exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(exited.value.code or 0), out, err


def commands() -> Iterator[tuple[str, ...]]:
    """The names of every command and of the commands in groups."""
    context = click.Context(root)
    for name in COMMANDS:
        yield (name,)
        command = root.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, nested) for nested in command.commands)


ALL = list(commands())
GROUPS = {command[:1] for command in ALL if len(command) > 1}


@pytest.mark.parametrize("command", [(), *ALL], ids=" ".join)
def test_every_command_shows_both_versions(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert run(capsys, *command, "--version") == (0, f"kubestow {VERSION} (Kubernetes {KUBERNETES_VERSION})\n", "")


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_every_command_has_help_without_ellipses(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *command, "--help")
    assert (status, err) == (0, "")
    assert not re.search(r"[a-z]\.\.\.$", out, re.MULTILINE)
    assert "--version" in out and "--help" in out
    assert command in GROUPS or "-v" in out


@pytest.mark.parametrize("command", [c for c in ALL if c not in GROUPS], ids=" ".join)
def test_an_unknown_option_is_one_line_with_the_command_that_explains_it(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *command, "--hepl")
    assert (status, out) == (1 if command in (("run",), ("deschedule",)) else 2, "")
    assert err.startswith("kubestow: No such option '--hepl'. Did you mean ")
    assert err.endswith(f"See 'kubestow {' '.join(command)} --help'.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["rn"], "No such command 'rn'. Did you mean 'run'? See 'kubestow --help'."),
        (["config", "chekc"], "No such command 'chekc'. Did you mean 'check'? See 'kubestow config --help'."),
        (["--verison"], "No such option '--verison'. Did you mean '--version'? See 'kubestow --help'."),
        (["config", "check"], "Missing argument 'FILE...'. See 'kubestow config check --help'."),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_is_one_line_with_a_suggestion(
    capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    assert run(capsys, *arguments) == (2, "", f"kubestow: {error}\n")


@pytest.mark.parametrize("arguments", [[], *map(list, sorted(GROUPS))], ids=" ".join)
def test_a_group_without_a_command_prints_its_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out.startswith("Usage: "), err) == (0, True, "")


@pytest.mark.parametrize("spelling", [["-v", "2"], ["-v2"], ["-v=2"], ["--v=2"]], ids=" ".join)
def test_verbosity_is_accepted_by_every_command(capsys: pytest.CaptureFixture[str], spelling: list[str]) -> None:
    assert run(capsys, "config", "show", *spelling)[0] == 0
    assert "not a valid verbosity" in run(capsys, "config", "show", "-v", "much")[2]


def test_the_exit_codes_are_documented() -> None:
    codes = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert codes == ["0", "1", "2", "130"]


def test_a_closed_output_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kubestow", "config", "show"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device of Linux that is always full")
def test_an_output_without_space_is_named() -> None:
    command = [sys.executable, "-m", "kubestow", "config", "show"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    error = "kubestow: standard output: cannot be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, error)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    status, out, _ = run(capsys, "completion", shell)
    assert (status, "_KUBESTOW_COMPLETE" in out, "kubestow" in out) == (0, True, True)
    assert f"kubestow completion {shell}" in PAGE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [("kubestow conf", "config"), ("kubestow run --leader-elect-ren", "--leader-elect-renew-deadline")],
)
def test_commands_and_options_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shell: str, words: str, expected: str
) -> None:
    last = words.split()[-1]
    monkeypatch.setenv("_KUBESTOW_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", last if shell == "fish" else str(len(words.split()) - 1))
    status, out, _ = run(capsys)
    assert status == 0
    assert expected in re.split(r"[\s,]", out)


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "kubestow"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubestow "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(kubestow completion bash); COMP_WORDS=(kubestow config ch); COMP_CWORD=2;"
        ' _kubestow_completion kubestow; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["check"], ended.stderr


#: What a shell does with the script: it prints the completions of a line.
IN_SHELLS = {
    "zsh": (
        "autoload -Uz compinit; compinit -u -D; source <(kubestow completion zsh);"
        ' _describe() { print -l -- "${(@P)3}" }; words=(kubestow config ch); CURRENT=3; $_comps[kubestow]'
    ),
    "fish": 'source (kubestow completion fish | psub); complete --do-complete "kubestow config ch"',
}


@pytest.mark.parametrize("shell", IN_SHELLS)
def test_zsh_and_fish_complete_with_the_script_and_whole_summaries(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = tmp_path / "kubestow"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kubestow "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    ended = subprocess.run(
        [shell, "-c", IN_SHELLS[shell]], env=environment, capture_output=True, text=True, check=False
    )
    summary = "Validate configurations and print all errors, as FILE:LINE:COLUMN: field: message."
    assert ended.stdout.replace("\t", ":") == f"check:{summary}\n", ended.stderr


def test_recorded_cases_are_verified_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    corpus = Path(__file__).parents[1] / "conformance" / "corpus" / "imagelocality.jsonl.gz"
    status, out, _ = run(capsys, "verify", "-o", "json", str(corpus))
    data = json.loads(out)
    assert (status, data["mismatches"], data["cases"]) == (0, [], data["agreeing"])
    assert yaml.safe_load(run(capsys, "verify", "-o", "yaml", str(corpus))[1]) == data


def test_the_recordings_of_a_folder_are_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    corpus = Path(__file__).parents[1] / "conformance" / "corpus"
    for name in ("nodename", "imagelocality"):
        (tmp_path / f"{name}.jsonl.gz").symlink_to(corpus / f"{name}.jsonl.gz")
    (tmp_path / "notes.md").write_text("of no importance")
    status, out, _ = run(capsys, "verify", str(tmp_path))
    assert (status, [line.split()[0] for line in out.splitlines()]) == (0, ["imagelocality", "nodename", "agree"])


def parameters(name: tuple[str, ...]) -> list[click.Parameter]:
    """The parameters of a command."""
    context = click.Context(root)
    command = root.get_command(context, name[0])
    if isinstance(command, click.Group):
        command = command.get_command(context, name[1])
    assert command is not None
    return command.params


#: Commands whose --kubeconfig has another meaning: a file that is written, and a cluster that is made for the purpose.
OTHER_KUBECONFIG = {("up",), ("bench",)}
#: Commands with kube-scheduler's flags, whose help is in a catalog.
WITH_FLAGS = {("run",), ("deschedule",)}


@pytest.mark.parametrize("command", [c for c in ALL if c not in GROUPS], ids=" ".join)
def test_commands_on_a_live_cluster_take_the_same_connection(command: tuple[str, ...]) -> None:
    connection = {"--kubeconfig", "--context", "--master"}
    found = {option for parameter in parameters(command) for option in parameter.opts} & connection
    assert found in (set(), connection) or command in OTHER_KUBECONFIG


@pytest.mark.parametrize("command", [c for c in ALL if c not in GROUPS | WITH_FLAGS], ids=" ".join)
def test_every_option_has_help(command: tuple[str, ...]) -> None:
    options = [parameter for parameter in parameters(command) if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["web-1"], "default/web-1"),
        (["shop/web-1"], "shop/web-1"),
        (["web-1", "-n", "shop"], "shop/web-1"),
        (["shop/web-1", "--namespace", "shop"], "shop/web-1"),
        (["shop/web-1", "-n", "store"], "the namespace is shop in shop/web-1, and store in --namespace"),
    ],
    ids=" ".join,
)
def test_a_pod_is_named_with_its_namespace_or_by_an_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], error: str
) -> None:
    dump = tmp_path / "dump.json"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4"}}}
    dump.write_text(json.dumps(node))
    status, out, err = run(capsys, "explain", *arguments, "--cluster", str(dump))
    assert (status > 0, out) == (True, "")
    assert error in err
