"""Kubeconfig files: merged as kubectl does, and refused with file, place and what was expected."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow.client.rest.kubeconfig import Target, read_kubeconfig
from kubestow.errors import InputError
from tests.client.kubeconfigs import kubeconfig


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def refusal(path: Path, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        read_kubeconfig([path], **options)
    return str(caught.value)


def read(path: Path, **options: str) -> Target:
    return read_kubeconfig([path], **options)


def test_the_current_context_is_meant_unless_another_is_named(tmp_path: Path) -> None:
    config = kubeconfig("https://one:6443")
    config["clusters"].append({"name": "two", "cluster": {"server": "https://two:6443"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "two", "user": "me"}})
    path = written(tmp_path / "config", config)
    assert read(path).cluster.value.server == "https://one:6443"
    assert read(path, context="other").cluster.value.server == "https://two:6443"


def test_of_several_files_the_first_that_says_something_wins(tmp_path: Path) -> None:
    first = written(tmp_path / "first", {"users": kubeconfig(token="mine")["users"]})
    second = written(tmp_path / "second", kubeconfig("https://two:6443", token="theirs"))
    target = read_kubeconfig([tmp_path / "missing", first, second])
    assert target.cluster.value.server == "https://two:6443"
    assert target.user.value.token == "mine"


def test_paths_are_relative_to_the_file_they_are_written_in(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "token").write_text("t")
    path = written(tmp_path / "config", kubeconfig(tokenFile="pki/token"))
    assert read(path).user.value.token_file == str(tmp_path / "pki" / "token")


def test_a_context_without_user_is_anonymous(tmp_path: Path) -> None:
    config = kubeconfig()
    del config["contexts"][0]["context"]["user"]
    assert read(written(tmp_path / "config", config)).user.value.token == ""


def test_nulls_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    config = kubeconfig(token="t") | {"preferences": {}, "extensions": None}
    config["users"][0]["user"]["client-key"] = None
    assert read(written(tmp_path / "config", config)).user.value.token == "t"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    assert refusal(path) == f"{path}: cannot read the kubeconfig: No such file or directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig())
    path.chmod(0)
    assert refusal(path) == f"{path}: cannot read the kubeconfig: Permission denied"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("clusters: [", "line 2, column 1: not YAML: did not find expected node content"),
        ("just text", "not a kubeconfig: expected a YAML mapping with clusters, contexts and users"),
        ("clusters: 5", "clusters: Expected `array`, got `int`"),
        ("users: [{user: {token: x}}]", "users[0]: Object missing required field `name`"),
        ("users: [{name: a, user: {token: 5}}]", "users[0].user.token: Expected `str`, got `int`"),
    ],
)
def test_a_malformed_file_is_refused_with_the_place(tmp_path: Path, content: str, complaint: str) -> None:
    path = written(tmp_path / "config", content)
    assert refusal(path) == f"{path}: {complaint}"


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe\x00")
    assert refusal(path) == f"{path}: not a kubeconfig: expected UTF-8 text"


def test_a_context_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig())
    assert refusal(path, context="nope") == f"{path}: contexts: there is no context 'nope'; there is: here"


def test_no_context_at_all_is_told(tmp_path: Path) -> None:
    path = written(tmp_path / "config", {"clusters": []})
    assert refusal(path).startswith(f"{path}: current-context: names no context")


def test_a_context_that_points_nowhere_is_told_with_its_place(tmp_path: Path) -> None:
    config = kubeconfig()
    config["contexts"][0]["context"]["cluster"] = "nope"
    path = written(tmp_path / "config", config)
    assert refusal(path) == f"{path}: contexts[0].context.cluster: there is no cluster 'nope' under clusters"


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        ({"client-certificate-data": "a", "client-key-data": "aaaa"}, ".client-certificate-data: expected base64"),
        ({"client-key": "nope.pem"}, ".client-key: expected a file, but there is none at "),
        ({"client-key-data": base64.b64encode(b"key").decode()}, ": client-certificate and client-key need each other"),
        ({"tokenFile": "nope"}, ".tokenFile: expected a file"),
    ],
)
def test_credentials_that_cannot_be_right_are_refused(tmp_path: Path, user: dict[str, Any], complaint: str) -> None:
    path = written(tmp_path / "config", kubeconfig(**user))
    assert refusal(path).startswith(f"{path}: users[0].user{complaint}")


def test_a_server_must_be_a_url(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig("localhost:6443"))
    expected = f"{path}: clusters[0].cluster.server: expected an http or https URL, got 'localhost:6443'"
    assert refusal(path) == expected
