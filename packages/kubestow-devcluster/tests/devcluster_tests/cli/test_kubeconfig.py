"""The context of a development cluster in a user's kubeconfig."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster_tests.cli.up_process import ended, up
from kubestow.client.rest.kubeconfig import read_kubeconfig
from kubestow.errors import InputError
from kubestow_devcluster.cli.kubeconfig import SecureServing, added_context

URL = "http://127.0.0.1:6443"
OTHER = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "production", "cluster": {"server": "https://production:6443"}}],
    "users": [{"name": "me", "user": {"token": "secret"}}],
    "contexts": [{"name": "production", "context": {"cluster": "production", "user": "me", "namespace": "web"}}],
    "current-context": "production",
    "preferences": {"colors": True},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(OTHER))
    return path


def save(path: Path, text: str) -> None:
    path.write_text(text)


def content(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_a_context_is_current_until_the_cluster_ends(file: Path) -> None:
    with added_context(file, URL, SecureServing()):
        assert read_kubeconfig([file]).cluster.value.server == URL
        assert read_kubeconfig([file], context="production").user.value.token == "secret"
        assert file.stat().st_mode & 0o777 == 0o600
        assert "*id" not in file.read_text()  # no aliases: people read the file, and programs without all of YAML do
    assert content(file) == OTHER


def test_a_missing_file_is_created_in_a_new_directory(tmp_path: Path) -> None:
    file = tmp_path / ".kube" / "config"
    with added_context(file, URL, SecureServing()):
        assert read_kubeconfig([file]).name == "kubestow"
    assert (content(file)["contexts"], content(file)["current-context"]) == ([], "")


def test_what_the_user_changes_meanwhile_is_kept(file: Path) -> None:
    with added_context(file, URL, SecureServing()):
        changed = content(file)
        changed["contexts"].append({"name": "staging", "context": {"cluster": "production", "user": "me"}})
        changed["current-context"] = "staging"
        file.write_text(yaml.safe_dump(changed))
    after = content(file)
    assert [context["name"] for context in after["contexts"]] == ["production", "staging"]
    assert after["current-context"] == "staging"


def test_the_entries_of_a_later_cluster_are_kept(file: Path) -> None:
    later = added_context(file, "http://127.0.0.1:7000", SecureServing())
    with added_context(file, URL, SecureServing()):
        later.__enter__()
    assert read_kubeconfig([file]).cluster.value.server == "http://127.0.0.1:7000"
    later.__exit__(None, None, None)
    assert [cluster["name"] for cluster in content(file)["clusters"]] == ["production"]


@pytest.mark.parametrize("kind", ["clusters", "users", "contexts"])
def test_an_entry_of_the_user_with_our_name_is_never_replaced(file: Path, kind: str) -> None:
    mine = {**OTHER, kind: [*OTHER[kind], {"name": "kubestow", kind.rstrip("s"): {}}]}
    file.write_text(yaml.safe_dump(mine))
    with (
        pytest.raises(InputError, match=rf'{kind}\[1\]: "kubestow" was not written'),
        added_context(file, URL, SecureServing()),
    ):
        pass
    assert content(file) == mine


def test_a_file_that_another_program_changes_is_left_alone(file: Path) -> None:
    lock = file.with_name("config.lock")
    lock.touch()
    with (
        pytest.raises(InputError, match=r"is being changed by another program"),
        added_context(file, URL, SecureServing()),
    ):
        pass
    assert lock.exists()
    assert content(file) == OTHER


@pytest.mark.parametrize("text", ["[", "- a", "clusters: {}\nusers: x"])
def test_a_file_that_is_no_kubeconfig_is_named(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InputError, match=str(file)), added_context(file, URL, SecureServing()):
        pass
    assert file.read_text() == text


def test_a_symbolic_link_is_followed(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    with added_context(link, URL, SecureServing()):
        assert link.is_symlink()
        assert read_kubeconfig([file]).name == "kubestow"


async def test_a_cluster_adds_its_context_to_the_given_file(file: Path, tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes=1", "--kubeconfig", str(file)) as cluster:
        assert read_kubeconfig([file]).cluster.value.server == cluster.url
        assert read_kubeconfig([cluster.kubeconfig]).cluster.value.server == cluster.url
    assert content(file) == OTHER


async def test_an_unusable_file_fails_if_it_was_named_and_is_a_warning_otherwise(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(file, "[")
    status, error = await ended("--nodes=0", "--kubeconfig", str(file), "--kubeconfig-out", str(tmp_path / "own"))
    assert (status, error.startswith(f"kubestow: {file}: line 2: invalid YAML")) == (1, True)
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "none"), str(file)]))
    async with up(tmp_path, "--nodes=0") as cluster:
        assert cluster.lines[0].startswith("serving")
