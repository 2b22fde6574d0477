"""Credentials: where they are looked for, how they are kept fresh, and TLS with them."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubestow.client.rest import credentials as module
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, Unreachable
from tests.client.clocks import LeapingClock
from tests.client.kubeconfigs import exec_plugin, kubeconfig, make_certificate, save
from tests.client.scripted_server import ScriptedServer, answer, failure, running

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(autouse=True)
def _nothing_to_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


async def header(path: str) -> str | None:
    return (await load_credentials(path)).headers.get("Authorization")


async def test_a_token_becomes_a_header(tmp_path: Path) -> None:
    assert await header(save(tmp_path, kubeconfig(token="t0"))) == "Bearer t0"


async def test_name_and_password_become_a_header(tmp_path: Path) -> None:
    path = save(tmp_path, kubeconfig(username="me", password="pw"))
    assert await header(path) == "Basic " + base64.b64encode(b"me:pw").decode()


async def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user: dict[str, Any] = {"as": "bob", "as-groups": ["a", "b"], "as-user-extra": {"why": ["because"]}}
    headers = (await load_credentials(save(tmp_path, kubeconfig(**user)))).headers
    assert headers["Impersonate-User"] == "bob"
    assert headers.getall("Impersonate-Group") == ["a", "b"]
    assert headers["Impersonate-Extra-why"] == "because"


async def test_a_context_without_user_sends_no_authorization(tmp_path: Path) -> None:
    config = kubeconfig()
    del config["contexts"][0]["context"]["user"]
    assert await header(save(tmp_path, config)) is None


async def test_a_token_file_that_is_rotated_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    found = await load_credentials(save(tmp_path, kubeconfig(tokenFile="token")))
    assert found.headers["Authorization"] == "Bearer old"
    token.write_text("new\n")
    await found.refresh()
    assert found.headers["Authorization"] == "Bearer new"


async def test_an_exec_plugin_is_not_run_again_before_its_token_expires(tmp_path: Path) -> None:
    plugin = exec_plugin(tmp_path, {"expirationTimestamp": "2999-01-01T00:00:00Z"})
    found = await load_credentials(save(tmp_path, kubeconfig(exec=plugin)))
    await found.refresh()
    assert found.headers["Authorization"] == "Bearer token-1"


async def test_an_exec_plugin_whose_token_expires_is_run_again(tmp_path: Path) -> None:
    plugin = exec_plugin(tmp_path, {"expirationTimestamp": "2000-01-01T00:00:00Z"})
    found = await load_credentials(save(tmp_path, kubeconfig(exec=plugin)))
    await found.refresh()
    assert found.headers["Authorization"] == "Bearer token-2"


async def test_a_refused_token_is_renewed_and_the_request_sent_again(
    server: ScriptedServer, clock: LeapingClock, tmp_path: Path
) -> None:
    found = await load_credentials(save(tmp_path, kubeconfig(server.url, exec=exec_plugin(tmp_path, {}))))
    server.answers("POST", "/x", failure(401, "Unauthorized"), answer(201))
    async with Transport(found, clock=clock) as transport:
        await transport.request("POST", "/x", b"{}")
    assert [asked.headers["Authorization"] for asked in server.asked] == ["Bearer token-1", "Bearer token-2"]
    assert server.asked[1].text == "{}"


async def test_a_token_refused_for_good_is_an_api_error(
    server: ScriptedServer, clock: LeapingClock, tmp_path: Path
) -> None:
    found = await load_credentials(save(tmp_path, kubeconfig(server.url, token="t")))
    server.answers("GET", "/x", failure(401, "Unauthorized", "Unauthorized"))
    async with Transport(found, clock=clock) as transport:
        with pytest.raises(APIError, match="Unauthorized"):
            await transport.request("GET", "/x")


async def test_a_plugin_that_fails_is_told_with_its_place_and_words(tmp_path: Path) -> None:
    plugin = {"apiVersion": "v1", "command": "/bin/sh", "args": ["-c", "echo no login >&2; exit 3"]}
    path = save(tmp_path, kubeconfig(exec=plugin))
    with pytest.raises(InputError) as caught:
        await load_credentials(path)
    expected = "users[0].user: these credentials do not work: exec: process returned 3. no login"
    assert str(caught.value) == f"{path}: {expected}"


async def test_master_overrides_the_server_of_a_kubeconfig(tmp_path: Path) -> None:
    path = save(tmp_path, kubeconfig("https://one:6443", token="t"))
    found = await load_credentials(path, master="http://two:8080/")
    assert found.server == "http://two:8080"
    assert found.headers["Authorization"] == "Bearer t"


async def test_master_alone_shows_no_found_token_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", save(tmp_path, kubeconfig(token="t")))
    assert not (await load_credentials(master="http://two:8080")).headers


async def test_the_environment_and_then_home_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    save(tmp_path / "home" / ".kube", kubeconfig("https://home:1"), name="config")
    assert (await load_credentials()).server == "https://home:1"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{save(tmp_path, kubeconfig('https://environment:1'))}")
    assert (await load_credentials()).server == "https://environment:1"


async def test_nothing_found_says_where_was_looked() -> None:
    with pytest.raises(InputError, match=r"kubeconfig: none given, none at ~/\.kube/config"):
        await load_credentials()


async def test_a_bare_address_costs_no_import_of_the_kubernetes_package() -> None:
    program = (
        "import asyncio, sys; from kubestow.client.rest.credentials import load_credentials; "
        "asyncio.run(load_credentials(master='http://localhost:1')); "
        "sys.exit('kubernetes_asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0  # noqa: ASYNC221


@needs_openssl
async def test_the_service_account_of_a_pod_is_used_and_its_token_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificate(tmp_path, "ca")
    (tmp_path / "token").write_text("old")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await load_credentials()
    assert found.server == "https://10.0.0.1:443"
    (tmp_path / "token").write_text("new")
    await found.refresh()
    assert found.headers["Authorization"] == "Bearer new"


async def test_a_service_account_without_token_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(InputError, match="the pod's service account cannot be used: Service token file does not exist"):
        await load_credentials()


def mutual_tls(directory: Path) -> ssl.SSLContext:
    """A server's side of TLS that demands a client certificate of the same authority."""
    make_certificate(directory, "ca")
    for name in ("localhost", "client"):
        make_certificate(directory, name, authority="ca")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / "localhost.crt", directory / "localhost.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def get(found: Credentials, clock: LeapingClock) -> bytes:
    async with Transport(found, clock=clock) as transport:
        return await transport.request("GET", "/x")


@needs_openssl
async def test_both_sides_prove_themselves_with_certificates(tmp_path: Path, clock: LeapingClock) -> None:
    async with running(mutual_tls(tmp_path)) as server:
        server.answers("GET", "/x", answer(200, b"hello"))
        data = base64.b64encode((tmp_path / "client.key").read_bytes()).decode()
        user = {"client-certificate": "client.crt", "client-key-data": data}
        path = save(tmp_path, kubeconfig(server.url, {"certificate-authority": "ca.crt"}, **user))
        assert await get(await load_credentials(path), clock) == b"hello"


@needs_openssl
async def test_a_server_of_an_unknown_authority_is_not_trusted(tmp_path: Path, clock: LeapingClock) -> None:
    async with running(mutual_tls(tmp_path)) as server:
        with pytest.raises(Unreachable, match="its certificate is not to be trusted"):
            await get(await load_credentials(save(tmp_path, kubeconfig(server.url))), clock)


@needs_openssl
async def test_the_name_in_the_servers_certificate_can_be_given(tmp_path: Path, clock: LeapingClock) -> None:
    async with running(mutual_tls(tmp_path)) as server:
        server.answers("GET", "/x", answer(200, b"hello"))
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        cluster = {"certificate-authority": "ca.crt", "tls-server-name": "localhost"}
        by_address = server.url.replace("localhost", "127.0.0.1")
        path = save(tmp_path, kubeconfig(by_address, cluster, **user))
        assert await get(await load_credentials(path), clock) == b"hello"


@pytest.mark.parametrize(
    ("cluster", "user", "place"),
    [
        ({"certificate-authority": "text"}, {}, "clusters[0].cluster.certificate-authority"),
        ({"certificate-authority-data": "dGV4dA=="}, {}, "clusters[0].cluster.certificate-authority-data"),
        ({}, {"client-certificate": "text", "client-key": "text"}, "users[0].user"),
    ],
)
async def test_certificates_that_are_none_are_refused_with_their_place(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, str], place: str
) -> None:
    (tmp_path / "text").write_text("text")
    path = save(tmp_path, kubeconfig("https://localhost:1", cluster, **user))
    with pytest.raises(InputError) as caught:
        await load_credentials(path)
    assert str(caught.value).startswith(f"{path}: {place}: expected ")
