"""What is installed works without the distributions that are not, and says which one a command needs."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import distributions
from importlib.util import find_spec

import pytest

from kubestow.cli import COMMANDS
from kubestow.errors import InputError

MODULES = ["kubestow", "kubestow_contrib", "kubestow_devcluster", "kubestow_lab"]
INSTALLED = {distribution.name for distribution in distributions()}
#: Modules that are of no use without an extra, which their import names: the package that it brings, and the extra.
WITH_EXTRAS = {
    "kubestow.observability.tracing.otlp_process": ("opentelemetry", "kubestow[tracing]"),
    "kubestow_lab.expander.expander_server": ("grpc", "kubestow-lab[expander]"),
    "kubestow_lab.expander.messages": ("google.protobuf", "kubestow-lab[expander]"),
    "kubestow_lab.gym": ("gymnasium", "kubestow-lab[gym]"),
}


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if module.name in WITH_EXTRAS and not _is_there(WITH_EXTRAS[module.name][0]):
            with pytest.raises(InputError, match=re.escape(f"install {WITH_EXTRAS[module.name][1]}")):
                importlib.import_module(module.name)
        elif not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # nor is its parent
        return False


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_or_names_the_distribution_that_has_it(name: str) -> None:
    distribution = COMMANDS[name].distribution
    command = [sys.executable, "-m", "kubestow", name, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if distribution in INSTALLED:
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Usage: ")
    else:
        error = f"kubestow: {name}: not installed; install it with: pip install {distribution}\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", error)


def test_all_commands_are_listed_whatever_is_installed() -> None:
    command = [sys.executable, "-m", "kubestow", "--help"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []
