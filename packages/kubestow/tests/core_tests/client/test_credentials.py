"""Credentials: loading rules, renewal, and TLS."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core_tests.client.clocks import AutoAdvancingClock
from core_tests.client.kubeconfigs import exec_plugin, kubeconfig, make_certificate, save
from core_tests.client.scripted_server import ScriptedServer, failure, response, scripted_server
from kubestow.client.rest import credentials as module
from kubestow.client.rest.credentials import Credentials, default_namespace, load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, Unreachable

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(autouse=True)
def _no_credentials_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


async def header(path: str) -> str | None:
    return (await load_credentials(path)).headers.get("Authorization")


async def test_a_token_is_sent_as_a_bearer_token(tmp_path: Path) -> None:
    assert await header(save(tmp_path, kubeconfig(token="t0"))) == "Bearer t0"


async def test_username_and_password_are_sent_as_basic_authentication(tmp_path: Path) -> None:
    path = save(tmp_path, kubeconfig(username="me", password="pw"))
    assert await header(path) == "Basic " + base64.b64encode(b"me:pw").decode()


async def test_impersonation_is_sent_as_headers(tmp_path: Path) -> None:
    user: dict[str, Any] = {
        "as": "bob",
        "as-groups": ["a", "b"],
        "as-user-extra": {"why": ["because"], "example.com/scope": ["all"]},
    }
    headers = (await load_credentials(save(tmp_path, kubeconfig(**user)))).headers
    assert headers["Impersonate-User"] == "bob"
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers["Impersonate-Extra-why"] == "because"
    assert headers["Impersonate-Extra-example.com%2Fscope"] == "all"


async def test_a_context_without_user_sends_no_authorization(tmp_path: Path) -> None:
    config = kubeconfig()
    del config["contexts"][0]["context"]["user"]
    assert await header(save(tmp_path, config)) is None


async def test_a_rotated_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    credentials = await load_credentials(save(tmp_path, kubeconfig(tokenFile="token")))
    assert credentials.headers["Authorization"] == "Bearer old"
    token.write_text("new\n")
    await credentials.refresh()
    assert credentials.headers["Authorization"] == "Bearer new"


async def test_an_exec_plugin_does_not_run_again_before_its_token_expires(tmp_path: Path) -> None:
    plugin = exec_plugin(tmp_path, {"expirationTimestamp": "2999-01-01T00:00:00Z"})
    credentials = await load_credentials(save(tmp_path, kubeconfig(exec=plugin)))
    await credentials.refresh()
    assert credentials.headers["Authorization"] == "Bearer token-1"


async def test_an_exec_plugin_runs_again_when_its_token_expires(tmp_path: Path) -> None:
    plugin = exec_plugin(tmp_path, {"expirationTimestamp": "2000-01-01T00:00:00Z"})
    credentials = await load_credentials(save(tmp_path, kubeconfig(exec=plugin)))
    await credentials.refresh()
    assert credentials.headers["Authorization"] == "Bearer token-2"


async def test_a_rejected_token_is_reloaded_and_the_request_is_repeated(
    server: ScriptedServer, clock: AutoAdvancingClock, tmp_path: Path
) -> None:
    credentials = await load_credentials(save(tmp_path, kubeconfig(server.url, exec=exec_plugin(tmp_path, {}))))
    server.respond("POST", "/x", failure(401, "Unauthorized"), response(201))
    async with Transport(credentials, clock=clock) as transport:
        await transport.request("POST", "/x", b"{}")
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer token-1", "Bearer token-2"]
    assert server.requests[1].text == "{}"


async def test_a_token_that_is_rejected_again_after_a_reload_is_an_api_error(
    server: ScriptedServer, clock: AutoAdvancingClock, tmp_path: Path
) -> None:
    credentials = await load_credentials(save(tmp_path, kubeconfig(server.url, token="t")))
    server.respond("GET", "/x", failure(401, "Unauthorized", "Unauthorized"))
    async with Transport(credentials, clock=clock) as transport:
        with pytest.raises(APIError, match="Unauthorized"):
            await transport.request("GET", "/x")


async def test_the_error_of_a_failing_exec_plugin_names_its_position_and_output(tmp_path: Path) -> None:
    plugin = {"apiVersion": "v1", "command": "/bin/sh", "args": ["-c", "echo no login >&2; exit 3"]}
    path = save(tmp_path, kubeconfig(exec=plugin))
    with pytest.raises(InputError) as caught:
        await load_credentials(path)
    expected = "users[0].user: cannot obtain credentials: exec: process returned 3. no login"
    assert str(caught.value) == f"{path}: {expected}"


async def test_master_overrides_the_server_of_a_kubeconfig(tmp_path: Path) -> None:
    path = save(tmp_path, kubeconfig("https://one:6443", token="t"))
    credentials = await load_credentials(path, master="http://two:8080/")
    assert credentials.server == "http://two:8080"
    assert credentials.headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize("master", ["two:8080", "https://two:port"])
async def test_master_must_be_a_url(tmp_path: Path, master: str) -> None:
    for path in ("", save(tmp_path, kubeconfig())):
        with pytest.raises(InputError, match=r"^master: expected an http or https URL, got"):
            await load_credentials(path, master=master)


async def test_master_alone_ignores_kubeconfigs_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", save(tmp_path, kubeconfig(token="t")))
    assert not (await load_credentials(master="http://two:8080")).headers


async def test_the_environment_takes_precedence_over_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    save(tmp_path / "home" / ".kube", kubeconfig("https://home:1"), name="config")
    assert (await load_credentials()).server == "https://home:1"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{save(tmp_path, kubeconfig('https://environment:1'))}")
    assert (await load_credentials()).server == "https://environment:1"


async def test_the_error_for_missing_credentials_suggests_the_kubeconfig_of_a_development_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kubestow.kubeconfig").touch()
    with pytest.raises(InputError, match=r"give --kubeconfig \./kubestow\.kubeconfig, which kubestow up wrote"):
        await load_credentials()


async def test_the_error_for_missing_credentials_lists_the_loading_rules() -> None:
    with pytest.raises(InputError, match=r"kubeconfig: not given, no file at ~/\.kube/config"):
        await load_credentials()


def imports_kubernetes_asyncio(arguments: str) -> bool:
    """Whether ``load_credentials`` with these arguments imports it, in a process of its own."""
    program = (
        "import asyncio, sys; from kubestow.client.rest.credentials import load_credentials; "
        f"asyncio.run(load_credentials({arguments})); "
        "sys.exit(3 if 'kubernetes_asyncio' in sys.modules else 0)"
    )
    return {0: False, 3: True}[subprocess.run([sys.executable, "-c", program], check=False).returncode]


def test_an_address_alone_does_not_import_kubernetes_asyncio() -> None:
    assert not imports_kubernetes_asyncio("master='http://localhost:1'")


def test_a_kubeconfig_with_at_most_a_token_does_not_import_kubernetes_asyncio(tmp_path: Path) -> None:
    assert not imports_kubernetes_asyncio(repr(save(tmp_path, kubeconfig())))
    assert not imports_kubernetes_asyncio(repr(save(tmp_path, kubeconfig(token="t0"))))
    assert imports_kubernetes_asyncio(repr(save(tmp_path, kubeconfig(username="me", password="pw"))))


@needs_openssl
async def test_the_service_account_of_a_pod_is_used_and_its_token_is_refreshed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path, "ca")
    (tmp_path / "token").write_text("old")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    credentials = await load_credentials()
    assert credentials.server == "https://10.0.0.1:443"
    (tmp_path / "token").write_text("new")
    await credentials.refresh()
    assert credentials.headers["Authorization"] == "Bearer new"


async def test_a_service_account_without_a_token_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(
        InputError, match="cannot load the service account of the pod: Service token file does not exist"
    ):
        await load_credentials()


def mutual_tls(directory: Path) -> ssl.SSLContext:
    """A server context that requires a client certificate of the same authority."""
    make_certificate(directory, "ca")
    for name in ("localhost", "client"):
        make_certificate(directory, name, authority="ca")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "localhost.crt", directory / "localhost.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def get(credentials: Credentials, clock: AutoAdvancingClock) -> bytes:
    async with Transport(credentials, clock=clock) as transport:
        return await transport.request("GET", "/x")


@needs_openssl
async def test_client_and_server_authenticate_with_certificates(tmp_path: Path, clock: AutoAdvancingClock) -> None:
    async with scripted_server(mutual_tls(tmp_path)) as server:
        server.respond("GET", "/x", response(200, b"hello"))
        data = base64.b64encode((tmp_path / "client.key").read_bytes()).decode()
        user = {"client-certificate": "client.crt", "client-key-data": data}
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, **user))
        assert await get(await load_credentials(path), clock) == b"hello"


@needs_openssl
async def test_the_certificate_of_an_unknown_authority_is_rejected(tmp_path: Path, clock: AutoAdvancingClock) -> None:
    async with scripted_server(mutual_tls(tmp_path)) as server:
        with pytest.raises(Unreachable, match="certificate verification failed"):
            await get(await load_credentials(save(tmp_path, kubeconfig(server.url))), clock)


@needs_openssl
async def test_tls_server_name_replaces_the_host_in_verification(tmp_path: Path, clock: AutoAdvancingClock) -> None:
    async with scripted_server(mutual_tls(tmp_path)) as server:
        server.respond("GET", "/x", response(200, b"hello"))
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        cluster = {"certificate-authority": "ca.crt", "tls-server-name": "localhost"}
        by_address = server.url.replace("localhost", "127.0.0.1")
        path = save(tmp_path, kubeconfig(by_address, cluster, **user))
        assert await get(await load_credentials(path), clock) == b"hello"


async def certificate_user(request: web.Request) -> web.StreamResponse:
    """Responds with the common name of the client certificate."""
    subject = dict(names[0] for names in request.get_extra_info("peercert")["subject"])
    return web.Response(text=subject["commonName"])


def issue_next(directory: Path) -> None:
    """A certificate ``next`` of the authority, to replace that of the client."""
    make_certificate(directory, "next", authority="ca")


@needs_openssl
async def test_a_rotated_client_certificate_replaces_the_former_one_and_its_connections(
    tmp_path: Path, clock: AutoAdvancingClock
) -> None:
    async with scripted_server(mutual_tls(tmp_path)) as server:
        server.respond("GET", "/x", certificate_user, certificate_user)
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, **user))
        credentials = await load_credentials(path)
        async with Transport(credentials, clock=clock) as transport:
            assert await transport.request("GET", "/x") == b"client"
            issue_next(tmp_path)
            for suffix in ("crt", "key"):
                (tmp_path / f"next.{suffix}").replace(tmp_path / f"client.{suffix}")
            await credentials.refresh()
            assert await transport.request("GET", "/x") == b"next"


@needs_openssl
async def test_a_client_certificate_that_does_not_match_its_key_yet_leaves_the_former_one_in_use(
    tmp_path: Path, clock: AutoAdvancingClock
) -> None:
    async with scripted_server(mutual_tls(tmp_path)) as server:
        server.respond("GET", "/x", certificate_user)
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, **user))
        credentials = await load_credentials(path)
        issue_next(tmp_path)
        (tmp_path / "next.crt").replace(tmp_path / "client.crt")
        with pytest.raises(InputError, match="expected a client certificate and its key in PEM"):
            await credentials.refresh()
        assert await get(credentials, clock) == b"client"


def rotated_authority(directory: Path) -> ssl.SSLContext:
    """A server context whose certificate is that of another authority, whose certificate replaces ``ca.crt``."""
    new = directory / "new"
    new.mkdir()
    make_certificate(new, "ca")
    make_certificate(new, "localhost", authority="ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(new / "localhost.crt", new / "localhost.key")
    (new / "ca.crt").replace(directory / "ca.crt")
    return context


@needs_openssl
@pytest.mark.parametrize("user", [{"token": "t"}, {"client-certificate": "client.crt", "client-key": "client.key"}])
async def test_a_rotated_authority_is_trusted_without_a_restart_and_the_former_one_is_not(
    tmp_path: Path, clock: AutoAdvancingClock, user: dict[str, str]
) -> None:
    former = mutual_tls(tmp_path)
    former.verify_mode = ssl.CERT_NONE
    async with scripted_server(former) as server:
        server.respond("GET", "/x", response(200, b"former"))
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, **user))
        credentials = await load_credentials(path)
        assert await get(credentials, clock) == b"former"
        async with scripted_server(rotated_authority(tmp_path)) as rotated:
            rotated.respond("GET", "/x", response(200, b"rotated"))
            credentials.server = rotated.url
            assert await get(credentials, clock) == b"rotated"
        credentials.server = server.url
        with pytest.raises(Unreachable, match="certificate verification failed"):
            await get(credentials, clock)


@needs_openssl
async def test_an_authority_is_read_again_after_a_handshake_that_failed(
    tmp_path: Path, clock: AutoAdvancingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The modification time may not show that a file was replaced."""
    mutual_tls(tmp_path)
    path = save(tmp_path, kubeconfig("https://localhost:1", {"certificate-authority": "ca.crt"}, token="t"))
    monkeypatch.setattr(module, "_stamp", lambda path: (0, 0, 0))
    credentials = await load_credentials(path)
    async with scripted_server(rotated_authority(tmp_path)) as rotated:
        rotated.respond("GET", "/x", response(200, b"rotated"))
        credentials.server = rotated.url
        assert await get(credentials, clock) == b"rotated"


@needs_openssl
async def test_an_authority_that_is_not_written_completely_leaves_the_former_one_in_use(
    tmp_path: Path, clock: AutoAdvancingClock, caplog: pytest.LogCaptureFixture
) -> None:
    former = mutual_tls(tmp_path)
    former.verify_mode = ssl.CERT_NONE
    async with scripted_server(former) as server:
        server.respond("GET", "/x", response(200, b"former"))
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, token="t"))
        credentials = await load_credentials(path)
        (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----")
        assert await get(credentials, clock) == b"former"
    assert "ca.crt" in caplog.text


@needs_openssl
async def test_the_authority_of_a_service_account_is_renewed_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: AutoAdvancingClock
) -> None:
    mutual_tls(tmp_path)
    (tmp_path / "token").write_text("token")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    credentials = await load_credentials()
    async with scripted_server(rotated_authority(tmp_path)) as rotated:
        rotated.respond("GET", "/x", response(200, b"rotated"))
        credentials.server = rotated.url
        await credentials.refresh()
        assert await get(credentials, clock) == b"rotated"


@needs_openssl
async def test_a_request_is_repeated_with_the_next_certificate_of_an_exec_plugin(
    tmp_path: Path, clock: AutoAdvancingClock
) -> None:
    output = tmp_path / "credential.json"

    def issue(name: str) -> None:
        certificate, key = ((tmp_path / f"{name}.{suffix}").read_text() for suffix in ("crt", "key"))
        status = {"clientCertificateData": certificate, "clientKeyData": key}
        version = "client.authentication.k8s.io/v1"
        output.write_text(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))

    async with scripted_server(mutual_tls(tmp_path)) as server:
        issue("client")
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/cat", "args": [str(output)]}
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, exec=plugin))
        server.respond("GET", "/x", certificate_user, failure(401, "Unauthorized"), certificate_user)
        async with Transport(await load_credentials(path), clock=clock) as transport:
            assert await transport.request("GET", "/x") == b"client"
            issue_next(tmp_path)
            issue("next")
            assert await transport.request("GET", "/x") == b"next"


@pytest.mark.parametrize(
    ("cluster", "user", "place"),
    [
        ({"certificate-authority": "text"}, {}, "clusters[0].cluster.certificate-authority"),
        ({"certificate-authority-data": "dGV4dA=="}, {}, "clusters[0].cluster.certificate-authority-data"),
        ({}, {"client-certificate": "text", "client-key": "text"}, "users[0].user"),
    ],
)
async def test_the_error_for_an_invalid_certificate_names_its_position(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, str], place: str
) -> None:
    (tmp_path / "text").write_text("text")
    path = save(tmp_path, kubeconfig("https://localhost:1", cluster, **user))
    with pytest.raises(InputError) as caught:
        await load_credentials(path)
    assert str(caught.value).startswith(f"{path}: {place}: expected ")


def test_the_default_namespace_is_that_of_the_context_then_of_the_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")
    assert default_namespace() == "default"
    (tmp_path / "serviceaccount").mkdir()
    (tmp_path / "serviceaccount" / "namespace").write_text("of-the-pod\n")
    assert default_namespace() == "of-the-pod"
    config = kubeconfig()
    config["contexts"][0]["context"]["namespace"] = "shop"
    config["contexts"].append({"name": "other", "context": {"cluster": "one", "user": "me"}})
    path = save(tmp_path, config)
    assert default_namespace(path) == "shop"
    assert default_namespace(path, context="other") == "default"
    assert default_namespace(master="http://localhost:1") == "default"
    with pytest.raises(InputError, match="context 'third' does not exist"):
        default_namespace(path, context="third")
