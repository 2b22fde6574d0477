"""The service over HTTPS, asked by our own client: both sides prove who they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kubestow.client.http_extender import HTTPExtender
from kubestow.errors import ExtenderError
from kubestow.extending import Opinions, Service
from kubestow.extending.running import server_tls
from kubestow.testing import node
from tests.client.extender_settings import info, raw_objects, settings
from tests.client.kubeconfigs import make_certificate
from tests.extending.example_plugins import Colour
from tests.extending.test_service import extending

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


async def test_only_clients_of_the_authority_are_answered(tmp_path: Path) -> None:
    make_certificate(tmp_path, "ca")
    certificate, key = make_certificate(tmp_path, "localhost", authority="ca")
    theirs, their_key = make_certificate(tmp_path, "client", authority="ca")
    made = extending(Colour, node("a"))
    service = Service(Opinions(made.mirror.cluster, made.profile), made.mirror, made.offer)
    authority = {"caFile": str(tmp_path / "ca.crt")}
    async with service.listening("localhost", 0, server_tls(certificate, key, authority["caFile"])) as port:
        known, unknown = (
            settings(f"https://localhost:{port}", nodeCacheCapable=True, tlsConfig=authority | shown)
            for shown in ({"certFile": theirs, "keyFile": their_key}, {})
        )
        async with HTTPExtender(known, raw_objects(known)) as welcome:
            assert (await welcome.filter(info(), ["a"])).passed == ["a"]
        async with HTTPExtender(unknown, raw_objects(unknown)) as stranger:
            with pytest.raises(ExtenderError):
                await stranger.filter(info(), ["a"])
