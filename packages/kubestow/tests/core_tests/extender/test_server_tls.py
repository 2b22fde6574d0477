"""The extender server over HTTPS, with mutual TLS authentication."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core_tests.client.extender_settings import info, raw_objects, settings
from core_tests.client.kubeconfigs import make_certificate
from core_tests.extender.example_plugins import Colour
from core_tests.extender.test_server import extending
from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError
from kubestow.extender import ExtenderServer, ProfileExtender
from kubestow.extender.extender_app import server_tls
from kubestow.testing import node

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


async def test_client_certificates_are_verified(tmp_path: Path) -> None:
    make_certificate(tmp_path, "ca")
    certificate, key = make_certificate(tmp_path, "localhost", authority="ca")
    client_certificate, client_key = make_certificate(tmp_path, "client", authority="ca")
    app = extending(Colour, node("a"))
    server = ExtenderServer(ProfileExtender(app.cache.cluster, app.profile), app.cache, app.capabilities)
    authority = {"caFile": str(tmp_path / "ca.crt")}
    async with server.listen("localhost", 0, server_tls(certificate, key, authority["caFile"])) as port:
        with_certificate, without_certificate = (
            settings(f"https://localhost:{port}", nodeCacheCapable=True, tlsConfig=authority | client)
            for client in ({"certFile": client_certificate, "keyFile": client_key}, {})
        )
        async with HTTPExtender(with_certificate, raw_objects(with_certificate)) as authenticated:
            assert (await authenticated.filter(info(), ["a"])).passed == ["a"]
        async with HTTPExtender(without_certificate, raw_objects(without_certificate)) as anonymous:
            with pytest.raises(ExtenderError):
                await anonymous.filter(info(), ["a"])
