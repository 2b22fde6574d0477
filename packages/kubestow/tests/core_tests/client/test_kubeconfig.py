"""Kubeconfig files: merging as kubectl does, and errors that name file, position and expectation."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.client.kubeconfigs import kubeconfig
from kubestow.client.rest.kubeconfig import KubeconfigContext, read_kubeconfig
from kubestow.errors import InputError


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def error(path: Path, **options: str) -> str:
    with pytest.raises(InputError) as caught:
        read_kubeconfig([path], **options)
    return str(caught.value)


def read(path: Path, **options: str) -> KubeconfigContext:
    return read_kubeconfig([path], **options)


def test_the_current_context_is_the_default(tmp_path: Path) -> None:
    config = kubeconfig("https://one:6443")
    config["clusters"].append({"name": "two", "cluster": {"server": "https://two:6443"}})
    config["contexts"].append({"name": "other", "context": {"cluster": "two", "user": "me"}})
    path = write(tmp_path / "config", config)
    assert read(path).cluster.value.server == "https://one:6443"
    assert read(path, context="other").cluster.value.server == "https://two:6443"


def test_the_first_of_several_files_that_defines_a_name_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "first", {"users": kubeconfig(token="mine")["users"]})
    second = write(tmp_path / "second", kubeconfig("https://two:6443", token="theirs"))
    target = read_kubeconfig([tmp_path / "missing", first, second])
    assert target.cluster.value.server == "https://two:6443"
    assert target.user.value.token == "mine"


def test_paths_are_relative_to_their_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "token").write_text("t")
    path = write(tmp_path / "config", kubeconfig(tokenFile="pki/token"))
    assert read(path).user.value.token_file == str(tmp_path / "pki" / "token")


def test_the_command_of_an_exec_plugin_is_relative_to_its_kubeconfig_or_in_the_path(tmp_path: Path) -> None:
    for command, expected in {"./login": str(tmp_path / "login"), "login": "login", "/bin/login": "/bin/login"}.items():
        path = write(tmp_path / "config", kubeconfig(exec={"apiVersion": "v1", "command": command}))
        assert read(path).user.value.exec == {"apiVersion": "v1", "command": expected}


def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    config = kubeconfig()
    del config["contexts"][0]["context"]["user"]
    assert read(write(tmp_path / "config", config)).user.value.token == ""


def test_nulls_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    config = kubeconfig(token="t") | {"preferences": {}, "extensions": None}
    config["users"][0]["user"]["client-key"] = None
    assert read(write(tmp_path / "config", config)).user.value.token == "t"


def test_the_error_for_a_missing_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "config"
    assert error(path) == f"{path}: cannot be read: No such file or directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_the_error_for_an_unreadable_file_names_it(tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig())
    path.chmod(0)
    assert error(path) == f"{path}: cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("clusters: [", "line 2: invalid YAML: did not find expected node content"),
        ("just text", "not a kubeconfig: expected a YAML mapping with clusters, contexts and users"),
        ("clusters: 5", "clusters: Expected `array`, got `int`"),
        ("users: [{user: {token: x}}]", "users[0]: Object missing required field `name`"),
        ("users: [{name: a, user: {token: 5}}]", "users[0].user.token: Expected `str`, got `int`"),
    ],
)
def test_the_error_for_a_malformed_file_names_the_position(tmp_path: Path, content: str, expected: str) -> None:
    path = write(tmp_path / "config", content)
    assert error(path) == f"{path}: {expected}"


def test_a_file_that_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_bytes(b"\xff\xfe\x00")
    assert error(path) == f"{path}: line 1: not UTF-8 text"


def test_the_error_for_an_unknown_context_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig())
    assert error(path, context="nope") == f"{path}: contexts: context 'nope' does not exist; known contexts: here"


def test_a_kubeconfig_without_a_current_context_is_rejected(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"clusters": []})
    assert error(path).startswith(f"{path}: current-context: no context is set or given")


def test_the_error_for_an_unknown_cluster_names_its_position(tmp_path: Path) -> None:
    config = kubeconfig()
    config["contexts"][0]["context"]["cluster"] = "nope"
    path = write(tmp_path / "config", config)
    assert error(path) == f"{path}: contexts[0].context.cluster: cluster 'nope' does not exist in clusters"


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"client-certificate-data": "a", "client-key-data": "aaaa"}, ".client-certificate-data: expected base64"),
        ({"client-key": "nope.pem"}, ".client-key: expected an existing file, got "),
        (
            {"client-key-data": base64.b64encode(b"key").decode()},
            ": client-certificate and client-key must be set together",
        ),
        ({"tokenFile": "nope"}, ".tokenFile: expected an existing file"),
    ],
)
def test_invalid_credentials_are_rejected(tmp_path: Path, user: dict[str, Any], expected: str) -> None:
    path = write(tmp_path / "config", kubeconfig(**user))
    assert error(path).startswith(f"{path}: users[0].user{expected}")


@pytest.mark.parametrize(
    "server", ["localhost:6443", "https://", "https://localhost:65536", "https://[::1", "http://localhost:port"]
)
def test_a_server_must_be_a_url(tmp_path: Path, server: str) -> None:
    path = write(tmp_path / "config", kubeconfig(server))
    expected = f"{path}: clusters[0].cluster.server: expected an http or https URL, got {server!r}"
    assert error(path) == expected


def test_a_socks_proxy_is_rejected_without_its_password(tmp_path: Path) -> None:
    path = write(tmp_path / "config", kubeconfig(cluster={"proxy-url": "socks5://me:secret@localhost:1080"}))
    expected = "clusters[0].cluster.proxy-url: expected an http or https URL; SOCKS proxies are not supported"
    assert error(path) == f"{path}: {expected}"
