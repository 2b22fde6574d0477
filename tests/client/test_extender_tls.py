"""TLS towards extenders: whom they trust, and what cannot be used."""

from __future__ import annotations

import base64
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError, InputError
from tests.client.extender_settings import info, raw_objects, settings
from tests.client.kubeconfigs import make_certificate
from tests.client.scripted_server import ScriptedServer, answer, running

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_certificate(tmp_path, "ca")
    for name in ("localhost", "elsewhere", "client"):
        make_certificate(tmp_path, name, authority="ca")
    return tmp_path


@asynccontextmanager
async def serving(directory: Path, *, name: str = "localhost", asks: bool = False) -> AsyncIterator[ScriptedServer]:
    """An extender with a certificate for ``name``, which may ask for one of its client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.crt"))
    context.load_cert_chain(directory / f"{name}.crt", directory / f"{name}.key")
    context.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
    async with running(context) as server:
        server.answers("POST", "/filter", answer(200, {}))
        yield server


async def works(server: ScriptedServer, **given: Any) -> bool:
    one = settings(server.url, **given)
    async with HTTPExtender(one, raw_objects(one)) as extender:
        try:
            await extender.filter(info(), [])
        except ExtenderError:
            return False
        return True


def data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_an_unknown_authority_is_not_trusted(directory: Path) -> None:
    async with serving(directory) as server:
        assert not await works(server)


async def test_an_authority_is_given_as_a_file(directory: Path) -> None:
    async with serving(directory) as server:
        assert await works(server, tlsConfig={"caFile": str(directory / "ca.crt")})


async def test_data_goes_before_the_file(directory: Path) -> None:
    async with serving(directory) as server:
        assert await works(server, tlsConfig={"caData": data(directory / "ca.crt"), "caFile": "/nowhere"})


async def test_https_without_an_authority_checks_nothing(directory: Path) -> None:
    async with serving(directory) as server:
        assert await works(server, enableHTTPS=True)


async def test_https_with_an_authority_checks_the_name(directory: Path) -> None:
    authority = {"caFile": str(directory / "ca.crt")}
    async with serving(directory, name="elsewhere") as server:
        assert not await works(server, enableHTTPS=True, tlsConfig=authority)
        assert await works(server, enableHTTPS=True, tlsConfig=authority | {"serverName": "elsewhere"})


async def test_insecure_trusts_everybody(directory: Path) -> None:
    async with serving(directory) as server:
        assert await works(server, tlsConfig={"insecure": True})


@pytest.mark.parametrize("form", ["data", "files"])
async def test_a_client_certificate_is_shown(directory: Path, form: str) -> None:
    certificate, key = directory / "client.crt", directory / "client.key"
    shown = {"certData": data(certificate), "keyData": data(key)}
    if form == "files":
        shown = {"certFile": str(certificate), "keyFile": str(key)}
    async with serving(directory, asks=True) as server:
        assert not await works(server, tlsConfig={"insecure": True})
        assert await works(server, tlsConfig={"insecure": True, **shown})


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ({"insecure": True, "caData": "UEVN"}, "specifying a root certificates file with the insecure flag"),
        ({"certData": "UEVN"}, "a client certificate and its key go together"),
        ({"caFile": "/nowhere/ca.crt"}, "/nowhere/ca.crt: No such file or directory"),
        ({"caData": "UEVN"}, "expected certificates and keys in PEM"),
        ({"certData": "UEVN", "keyData": "UEVN"}, "expected certificates and keys in PEM"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_starts(tls: dict[str, Any], problem: str) -> None:
    one = settings("https://x", tlsConfig=tls)
    with pytest.raises(InputError, match="extender https://x: tlsConfig: ") as caught:
        HTTPExtender(one, raw_objects(one))
    assert problem in str(caught.value)
