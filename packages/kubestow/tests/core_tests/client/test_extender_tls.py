"""TLS settings of extenders."""

from __future__ import annotations

import base64
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core_tests.client.extender_settings import info, raw_objects, settings
from core_tests.client.kubeconfigs import make_certificate
from core_tests.client.scripted_server import ScriptedServer, response, scripted_server
from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError, InputError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_certificate(tmp_path, "ca")
    for name in ("localhost", "elsewhere", "client"):
        make_certificate(tmp_path, name, authority="ca")
    return tmp_path


@asynccontextmanager
async def serving(
    directory: Path, *, name: str = "localhost", client_auth: bool = False
) -> AsyncIterator[ScriptedServer]:
    """An extender with a certificate for ``name``; with ``client_auth`` it requires one of its client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    context.verify_mode = ssl.CERT_REQUIRED if client_auth else ssl.CERT_NONE
    async with scripted_server(context) as server:
        server.respond("POST", "/filter", response(200, {}))
        yield server


async def succeeds(server: ScriptedServer, **changes: Any) -> bool:
    configured = settings(server.url, **changes)
    async with HTTPExtender(configured, raw_objects(configured)) as extender:
        try:
            await extender.filter(info(), [])
        except ExtenderError:
            return False
        return True


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_the_certificate_of_an_unknown_authority_is_rejected(directory: Path) -> None:
    async with serving(directory) as server:
        assert not await succeeds(server)


async def test_an_authority_can_be_configured_as_a_file(directory: Path) -> None:
    async with serving(directory) as server:
        assert await succeeds(server, tlsConfig={"caFile": str(directory / "ca.crt")})


async def test_data_takes_precedence_over_a_file(directory: Path) -> None:
    async with serving(directory) as server:
        assert await succeeds(server, tlsConfig={"caData": data(directory / "ca.crt"), "caFile": "/nowhere"})


async def test_enable_https_without_an_authority_disables_verification(directory: Path) -> None:
    async with serving(directory) as server:
        assert await succeeds(server, enableHTTPS=True)


async def test_enable_https_with_an_authority_verifies_the_host_name(directory: Path) -> None:
    authority = {"caFile": str(directory / "ca.crt")}
    async with serving(directory, name="elsewhere") as server:
        assert not await succeeds(server, enableHTTPS=True, tlsConfig=authority)
        assert await succeeds(server, enableHTTPS=True, tlsConfig=authority | {"serverName": "elsewhere"})


async def test_insecure_disables_verification(directory: Path) -> None:
    async with serving(directory) as server:
        assert await succeeds(server, tlsConfig={"insecure": True})


@pytest.mark.parametrize("form", ["data", "files"])
async def test_a_client_certificate_is_presented(directory: Path, form: str) -> None:
    certificate, key = directory / "client.crt", directory / "client.key"
    configured = {"certData": data(certificate), "keyData": data(key)}
    if form == "files":
        configured = {"certFile": str(certificate), "keyFile": str(key)}
    async with serving(directory, client_auth=True) as server:
        assert not await succeeds(server, tlsConfig={"insecure": True})
        assert await succeeds(server, tlsConfig={"insecure": True, **configured})


async def test_files_are_loaded_again_when_they_have_changed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """First the authority of the extender, then its client certificate is replaced; invalid files change nothing."""
    used = {name: directory / f"used-{name}" for name in ("ca.crt", "client.crt", "client.key")}
    make_certificate(directory, "other-ca")
    make_certificate(directory, "other", authority="other-ca")

    def use(name: str, source: str) -> None:
        replacement = directory / "replacement"
        shutil.copy(directory / source, replacement)
        replacement.rename(used[name])

    use("ca.crt", "other-ca.crt")
    use("client.crt", "other.crt")
    use("client.key", "other.key")
    async with serving(directory, client_auth=True) as server:
        server.respond("POST", "/filter", *[response(200, {})] * 3)
        files = {"caFile": used["ca.crt"], "certFile": used["client.crt"], "keyFile": used["client.key"]}
        configured = settings(server.url, tlsConfig={key: str(path) for key, path in files.items()})
        async with HTTPExtender(configured, raw_objects(configured)) as extender:

            async def rejected() -> bool:
                try:
                    await extender.filter(info(), [])
                except ExtenderError:
                    return True
                return False

            assert await rejected()
            use("ca.crt", "ca.crt")
            assert await rejected()
            use("client.crt", "client.crt")
            use("client.key", "client.key")
            assert not await rejected()
            used["ca.crt"].write_text("nothing")
            assert not await rejected()
            use("ca.crt", "other-ca.crt")
            assert await rejected()
    assert [record.message.partition(": ")[0] for record in caplog.records if record.levelname == "WARNING"] == [
        "cannot reload the files of the TLS settings, continuing with the old ones"
    ]


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ({"insecure": True, "caData": "UEVN"}, "specifying a root certificates file with the insecure flag"),
        ({"certData": "UEVN"}, "a client certificate and its key must be set together"),
        ({"caFile": "/nowhere/ca.crt"}, "/nowhere/ca.crt: No such file or directory"),
        ({"caData": "UEVN"}, "expected certificates and keys in PEM"),
        ({"certData": "UEVN", "keyData": "UEVN"}, "expected certificates and keys in PEM"),
    ],
)
def test_invalid_settings_raise_before_the_extender_is_used(tls: dict[str, Any], problem: str) -> None:
    configured = settings("https://x", tlsConfig=tls)
    with pytest.raises(InputError, match="extender https://x: tlsConfig: ") as caught:
        HTTPExtender(configured, raw_objects(configured))
    assert problem in str(caught.value)
