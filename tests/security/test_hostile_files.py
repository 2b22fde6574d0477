"""Every command that reads a file, on hostile files: one line about the file, one exit status, little memory.

Each runs in a process of its own with a limit of memory, so that a segmentation fault, running out of memory and an
endless loop count as failures.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest

from core_tests.hang_limit import HANG_LIMIT
from kubestow.files import MAX_FILE

#: Bytes of address space: what the programs need, libraries included, and half a gigabyte for one file.
_MEMORY = 3 << 29

NODE = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"allocatable":{"cpu":"4","pods":"9"}}}'
POD = (
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i",'
    b'"imagePullPolicy":"Always","terminationMessagePolicy":"File"}],"restartPolicy":"Always",'
    b'"dnsPolicy":"ClusterFirst","terminationGracePeriodSeconds":30}}'
)
POLICY = b'{"apiVersion":"descheduler/v1alpha2","kind":"DeschedulerPolicy","profiles":[]}'


def _bomb() -> bytes:
    levels = [b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)]
    return b"a0: &a0 [%s]\n" % (b"x" * 1000) + b"".join(levels)


def _merges() -> bytes:
    levels = [b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (n, n, n - 1, n - 1) for n in range(1, 60)]
    return b"a0: &a0 {}\n" + b"".join(levels)


def _compressed_bomb() -> bytes:
    """A gigabyte of spaces."""
    return gzip.compress(b" " * (1 << 20), 9) * 1024


#: The content of each hostile file by its name; a path for a device.
HOSTILE: dict[str, Callable[[], bytes | Path]] = {
    "question-marks.yaml": lambda: b"? " * 100_000,
    "dashes.yaml": lambda: b"- " * 100_000,
    "brackets.yaml": lambda: b"[" * 100_000,
    "indented.yaml": lambda: b"".join(b" " * n + b"a:\n" for n in range(1500)),
    "deep.json": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep-list.json": lambda: b"[" * 100_000 + b"]" * 100_000,
    "bomb.yaml": _bomb,
    "merges.yaml": _merges,
    "digits.yaml": lambda: b"apiVersion: v1\nkind: Pod\na: " + b"9" * 100_000 + b"\n",
    "digits.json": lambda: b'{"apiVersion":"v1","kind":"Pod","a":' + b"9" * 100_000 + b"} {}",
    "tag.yaml": lambda: b"a: !!timestamp x\n",
    "compressed.gz": _compressed_bomb,
    "device": lambda: Path("/dev/zero"),
    "large": lambda: b"#" * (MAX_FILE + 1),
    "binary": lambda: bytes(range(256)) * 100,
    "field.csv": lambda: b'"' + b"x" * 200_000 + b'",u,1\n',
}

#: One file of each kind. All commands read files by the same readers, so that only a few commands meet all files.
_OF_EACH_KIND = {"question-marks.yaml", "bomb.yaml", "deep.json", "digits.json", "device", "binary"}
_MEET_ALL = {"simulate-cluster", "config-check", "run-kubeconfig"}

#: The commands; {file} is the hostile file, {good} a dump, {pod} a pod.
COMMANDS = {
    "simulate-cluster": "simulate --cluster {file}",
    "simulate-workload": "simulate --cluster {good} --workload {file}",
    "simulate-config": "simulate --cluster {good} --workload {pod} --config {file}",
    "config-check": "config check {file}",
    "config-convert": "config convert {file}",
    "config-show": "config show {file}",
    "capacity-cluster": "capacity --cluster {file} --podspec {pod}",
    "capacity-podspec": "capacity --cluster {good} --podspec {file}",
    "tune-space": "tune --space {file} --cluster {good} --workload {pod}",
    "node-pool": "what-if add-nodes --node-pool {file} --cluster {good}",
    "explain": "explain p --cluster {file}",
    "trace": "trace p --cluster {file}",
    "genpod": "genpod --cluster {file}",
    "kubeconfig": "why p --kubeconfig {file}",
    "bench": "bench {file}",
    "bench-compare": "bench --compare {file} {file}",
    "verify": "verify {file}",
    "replay": "replay {file}",
    "shadow-record": "shadow --record {file}",
    "shadow-config": "shadow --config {file}",
    "up-cluster": "up --nodes 0 --cluster {file}",
    "up-stages": "up --nodes 0 --stages {file}",
    "apiserver-stages": "apiserver --port 0 --stages {file}",
    "apiserver-tokens": "apiserver --port 0 --token-file {file}",
    "run-config": "run --config {file}",
    "run-kubeconfig": "run --secure-port 0 --kubeconfig {file}",
    "deschedule-policy": "deschedule --policy-config-file {file} --cluster {good}",
    "deschedule-plan": "deschedule --dry-run --plan {file} --cluster {good}",
    "deschedule-cluster": "deschedule --dry-run --policy-config-file {policy} --cluster {file}",
}
#: Text that these commands read as it is: comments alone are an empty file, a line with three values a token.
ACCEPTED = {
    ("apiserver-tokens", "field.csv"),
    ("apiserver-tokens", "digits.json"),
    ("simulate-workload", "deep.json"),  # named as what is no Kubernetes object, and left out
}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hostile")
    for name, make in HOSTILE.items():
        content = make()
        if isinstance(content, Path):
            (directory / name).symlink_to(content)
        else:
            (directory / name).write_bytes(content)
    (directory / "good.json").write_bytes(NODE + POD)
    (directory / "pod.json").write_bytes(POD)
    (directory / "policy.yaml").write_bytes(POLICY)
    return directory


#: Runs commands, given as lists of arguments in JSON, each in a process forked from one that has the modules loaded.
_RUNNER = """
import importlib, json, os, pkgutil, resource, signal, sys, traceback
from kubestow.cli import main
import kubestow.cli, kubestow_devcluster.cli, kubestow_lab.cli, kubestow.config, kubestow.engine.input.documents

for package in (kubestow.cli, kubestow_devcluster.cli, kubestow_lab.cli):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
memory, output, hang_limit, ended = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), []
for arguments in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(hang_limit)  # a server that accepts the file would run for ever
        target = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
        status = 99
        try:
            main(arguments)
        except SystemExit as exited:
            status = exited.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    _, status, used = os.wait4(child, 0)
    with open(output, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    ended.append([os.waitstatus_to_exitcode(status), used.ru_maxrss // 1024, used.ru_utime + used.ru_stime, text])
json.dump(ended, sys.stdout)
"""


class Ended(NamedTuple):
    """The exit status of a command, negative for a signal; its memory in MiB, its CPU time in seconds, its output."""

    status: int
    memory: int
    seconds: float
    output: str


def ended(directory: Path, commands: list[list[str]]) -> list[Ended]:
    """Run commands in a directory, one after the other."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "KUBECONFIG": "/dev/null"}
    runner = [sys.executable, "-c", _RUNNER, str(_MEMORY), str(directory / "output"), str(int(HANG_LIMIT))]
    done = subprocess.run(
        runner, input=json.dumps(commands), stdout=PIPE, text=True, env=environment, cwd=directory, check=True
    )
    return [Ended(*one) for one in json.loads(done.stdout)]


def arguments_of(directory: Path, command: str, name: str) -> list[str]:
    values = {"file": directory / name, "good": directory / "good.json", "pod": directory / "pod.json"}
    values["policy"] = directory / "policy.yaml"
    return [part.format(**values) for part in COMMANDS[command].split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_file_is_one_error(files: Path, command: str) -> None:
    met = HOSTILE.keys() if command in _MEET_ALL else _OF_EACH_KIND
    names = [name for name in HOSTILE if name in met and (command, name) not in ACCEPTED]
    results = ended(files, [arguments_of(files, command, name) for name in names])
    wrong = {
        name: (result.status, result.output[-300:])
        for name, result in zip(names, results, strict=True)
        if result.status != 1
        or "Traceback" in result.output
        or name not in result.output
        or len(result.output) > 4000
        or not result.output.replace("\n", "").isprintable()
    }
    assert not wrong
