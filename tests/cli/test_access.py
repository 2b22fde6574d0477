"""Clusters that ask who one is, and options that do not go together."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.clusters import Up, ended, up
from tests.devcluster.kubectl import KUBECTL, Kubectl

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def context(cluster: Up, directory: Path) -> ssl.SSLContext:
    """What the kubeconfig of a cluster says about its server and its user."""
    config: dict[str, Any] = json.loads(cluster.kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    made = ssl.create_default_context(cadata=b64decode(server["certificate-authority-data"]).decode())
    for name in ("client-certificate", "client-key"):
        (directory / name).write_bytes(b64decode(user[f"{name}-data"]))
    made.load_cert_chain(directory / "client-certificate", directory / "client-key")
    return made


async def name(cluster: Up, **request: Any) -> str:
    async with aiohttp.ClientSession(cluster.url) as session, session.post(WHOAMI, json={}, **request) as response:
        answer = await response.json()
        return str(answer["status"]["userInfo"]["username"] if response.status == 201 else answer["message"])


async def test_one_option_makes_a_cluster_with_certificates_of_its_own(tmp_path: Path) -> None:
    async with up(tmp_path, "--tls") as cluster:
        assert cluster.url.startswith("https://") and cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert await name(cluster, ssl=context(cluster, tmp_path)) == "kubernetes-admin"
        assert await name(cluster, ssl=False) == "Unauthorized"


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine")
async def test_kubectl_comes_in_with_the_kubeconfig_and_may_speak_as_another(tmp_path: Path) -> None:
    async with up(tmp_path, "--tls") as cluster:
        kubectl = Kubectl(cluster.url, tmp_path)
        config = f"--kubeconfig={cluster.kubeconfig}"
        assert len((await kubectl(config, "get", "nodes", "-o", "name")).split()) == 5
        told = json.loads(await kubectl(config, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
        assert (told["username"], told["groups"]) == ("kubernetes-admin", ["system:masters", "system:authenticated"])
        stranger = ("--insecure-skip-tls-verify", "--token=guessed")
        assert "(Unauthorized)" in await kubectl(*stranger, "get", "nodes", fails=True)
        ann = json.loads(await kubectl(config, "auth", "whoami", "--as=ann", "--as-group=dev", "-o", "json"))
        assert ann["status"]["userInfo"] == {"username": "ann", "groups": ["dev", "system:authenticated"]}


async def test_a_token_file_says_who_may_come_in_and_the_scheduler_does_too(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret,ann,7\n")
    async with up(tmp_path, "--token-file", str(tokens)) as cluster:
        assert await name(cluster, headers={"Authorization": "Bearer secret"}) == "ann"
        assert await name(cluster) == "Unauthorized"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--client-ca-file", "x"), "--client-ca-file: needs --tls or --tls-cert-file"),
        (("--tls-cert-file", "x"), "--tls-cert-file, --tls-private-key-file: are of use together only"),
        (("--tls", "--tls-cert-file", "x", "--tls-private-key-file", "x"), "--tls: makes a certificate of its own"),
        (("--tls", "--client-ca-file", "/none"), "/none: cannot be read: No such file or directory"),
    ],
)
async def test_options_that_do_not_go_together_are_one_line(arguments: tuple[str, ...], problem: str) -> None:
    status, said = await ended(*arguments)
    assert status == 2 and said.startswith(f"kubestow: {problem}") and said.count("\n") == 1
