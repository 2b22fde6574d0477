"""Configuration files of other schedulers, whose formats are installed as entry points."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from kubestow import config
from kubestow.errors import InputError
from kubestow.plugins import configuration_file, in_tree_registry
from kubestow.plugins.configuration_file import (
    convert_foreign,
    diagnose_configuration,
    diagnose_foreign,
    read_configuration,
)

OWN = b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
CONVERTED = {"apiVersion": config.API_VERSION, "kind": config.KIND}


class Lines:
    """A format whose files begin with ``lines``; the other lines are mistakes."""

    def converted(self, source: bytes, subject: str) -> dict[str, Any] | None:
        mistakes = self.check(source)
        if mistakes:
            raise InputError(subject, mistakes[0].message)
        return None if mistakes is None else CONVERTED

    def check(self, source: bytes) -> list[config.FieldError] | None:
        first, *others = source.decode().splitlines()
        return [config.FieldError("", line) for line in others] if first == "lines" else None


class Others(Lines):
    """A format of no file."""

    def check(self, source: bytes) -> list[config.FieldError] | None:
        return None


LINES, OTHERS = Lines(), Others()


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> EntryPoints:
        return EntryPoints(EntryPoint(name, f"{__name__}:{name}", group) for name in ("OTHERS", "LINES"))

    monkeypatch.setattr(configuration_file, "entry_points", installed)


def diagnosed(source: bytes) -> list[str]:
    return [each.message for each in diagnose_configuration(source, config.FeatureGates(), in_tree_registry())]


def test_the_mistakes_in_a_file_of_another_format_are_those_of_its_format() -> None:
    assert diagnosed(b"lines\n") == []
    assert diagnosed(b"lines\nfirst\nsecond\n") == ["first", "second"]


def test_a_file_of_no_other_format_is_diagnosed_as_a_kube_scheduler_configuration() -> None:
    assert diagnosed(OWN) == []
    (mistake,) = diagnosed(OWN + b"profile: []\n")
    assert "profile" in mistake


def test_files_of_other_formats_are_converted() -> None:
    assert convert_foreign(b"lines\n", "file") == CONVERTED
    with pytest.raises(InputError, match="file: first"):
        convert_foreign(b"lines\nfirst\n", "file")


def test_other_formats_are_not_asked_about_a_kube_scheduler_configuration() -> None:
    for source in (OWN, b"something else\n", b"lines\nkubescheduler.config.k8s.io\n"):
        assert convert_foreign(source, "file") is None
        assert diagnose_foreign(source) is None


def test_what_has_no_effect_in_a_file_is_logged_with_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(OWN + b"profiles:\n- pluginConfig:\n  - name: NodeResourceFit\n    args: {}\n")
    with caplog.at_level(logging.WARNING):
        configuration = read_configuration(file, config.FeatureGates(), in_tree_registry())
    assert [profile.scheduler_name for profile in configuration.profiles] == ["default-scheduler"]
    (record,) = caplog.records
    remark = "profiles[0].pluginConfig[0]: the args have no effect: no plugin NodeResourceFit is registered"
    assert record.getMessage() == f'{file}:5:5: {remark}, did you mean "NodeResourcesFit"?'


def test_a_file_of_another_format_has_no_remarks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"lines\n")
    with caplog.at_level(logging.WARNING):
        assert read_configuration(file, config.FeatureGates(), in_tree_registry()).profiles
    assert caplog.records == []
