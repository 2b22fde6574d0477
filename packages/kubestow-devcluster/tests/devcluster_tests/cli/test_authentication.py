"""Authentication of ``kubestow up``, and conflicting options."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster_tests.cli.up_process import Up, ended, up
from devcluster_tests.kubectl import KUBECTL, Kubectl

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def context(cluster: Up, directory: Path) -> ssl.SSLContext:
    """The TLS context of a kubeconfig: the server's CA and the user's client certificate."""
    config: dict[str, Any] = json.loads(cluster.kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ssl_context = ssl.create_default_context(cadata=b64decode(server["certificate-authority-data"]).decode())
    for name in ("client-certificate", "client-key"):
        (directory / name).write_bytes(b64decode(user[f"{name}-data"]))
    ssl_context.load_cert_chain(directory / "client-certificate", directory / "client-key")
    return ssl_context


async def name(cluster: Up, **request: Any) -> str:
    async with aiohttp.ClientSession(cluster.url) as session, session.post(WHOAMI, json={}, **request) as response:
        body = await response.json()
        return str(body["status"]["userInfo"]["username"] if response.status == 201 else body["message"])


async def test_tls_generates_certificates_and_requires_authentication(tmp_path: Path) -> None:
    async with up(tmp_path, "--tls") as cluster:
        assert cluster.url.startswith("https://") and cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert await name(cluster, ssl=context(cluster, tmp_path)) == "kubernetes-admin"
        assert await name(cluster, ssl=False) == "Unauthorized"


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
async def test_kubectl_authenticates_with_the_kubeconfig_and_can_impersonate(tmp_path: Path) -> None:
    async with up(tmp_path, "--tls") as cluster:
        kubectl = Kubectl(cluster.url, tmp_path)
        config = f"--kubeconfig={cluster.kubeconfig}"
        assert len((await kubectl(config, "get", "nodes", "-o", "name")).split()) == 5
        user = json.loads(await kubectl(config, "auth", "whoami", "-o", "json"))["status"]["userInfo"]
        assert (user["username"], user["groups"]) == ("kubernetes-admin", ["system:masters", "system:authenticated"])
        unknown_user = ("--insecure-skip-tls-verify", "--token=guessed")
        assert "(Unauthorized)" in await kubectl(*unknown_user, "get", "nodes", fails=True)
        ann = json.loads(await kubectl(config, "auth", "whoami", "--as=ann", "--as-group=dev", "-o", "json"))
        assert ann["status"]["userInfo"] == {"username": "ann", "groups": ["dev", "system:authenticated"]}


@pytest.mark.kubectl
@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
async def test_roles_decide_what_a_service_account_is_allowed(tmp_path: Path) -> None:
    async with up(tmp_path, "--tls", "--authorization-mode", "RBAC", "--nodes", "1") as cluster:
        kubectl = Kubectl(cluster.url, tmp_path)
        config = f"--kubeconfig={cluster.kubeconfig}"
        await kubectl(config, "create", "serviceaccount", "robot")
        token = (await kubectl(config, "create", "token", "robot")).strip()
        robot = ("--insecure-skip-tls-verify", f"--token={token}")
        assert "(Forbidden)" in await kubectl(*robot, "get", "pods", fails=True)
        binding = ("create", "rolebinding", "robot", "--clusterrole=cluster-admin", "--serviceaccount=default:robot")
        await kubectl(config, *binding)
        assert await kubectl(*robot, "auth", "can-i", "create", "pods") == "yes\n"
        assert await kubectl(*robot, "run", "web", "--image=nginx") == "pod/web created\n"
        # The scheduler of this process runs with the rights of kube-scheduler.
        await kubectl(config, "wait", "--for=condition=Ready", "pod/web", "--timeout=600s")
        assert "(Forbidden)" in await kubectl(*robot, "get", "nodes", fails=True)


async def test_a_token_file_authenticates_users_and_the_scheduler_has_a_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret,ann,7\n")
    async with up(tmp_path, "--token-file", str(tokens)) as cluster:
        assert await name(cluster, headers={"Authorization": "Bearer secret"}) == "ann"
        assert await name(cluster) == "Unauthorized"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--client-ca-file", "x"), "--client-ca-file: requires --tls or --tls-cert-file"),
        (("--tls-cert-file", "x"), "--tls-cert-file, --tls-private-key-file: must be set together"),
        (
            ("--tls", "--tls-cert-file", "x", "--tls-private-key-file", "x"),
            "--tls: cannot be used together with --tls-cert-file",
        ),
        (("--tls", "--client-ca-file", "/none"), "/none: cannot be read: No such file or directory"),
    ],
)
async def test_conflicting_options_are_one_error_line(arguments: tuple[str, ...], problem: str) -> None:
    status, error = await ended(*arguments)
    assert status == 1 and error.startswith(f"kubestow: {problem}") and error.count("\n") == 1
