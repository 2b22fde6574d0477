"""Serving certificates: from files, by server name, or self-signed; and their reload."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from core_tests.serving.harness import ALLOW_ALL, secure_port
from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority, KeyPair
from kubestow.http.tls import ServerTLS, SNICertificate, TLSOptions


def write(pair: KeyPair, directory: Path, name: str) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    pair.write(certificate, key)
    return certificate, key


async def presented(port: int, server_name: str, trusted: bytes) -> str:
    """The first DNS name of the certificate that the server presents."""
    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subjectAltName"][0][1])


async def test_the_certificate_depends_on_the_server_name(tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("cluster")
    certificate, key = write(authority.issue_server_certificate(["localhost"]), tmp_path, "server")
    other = SNICertificate(*write(authority.issue_server_certificate(["other.example"]), tmp_path, "other"))
    tls = TLSOptions(certificate, key, by_name=(other,))
    async with secure_port(replace(ALLOW_ALL, tls=tls)) as server:
        assert await presented(server.serving.port, "localhost", authority.certificate) == "localhost"
        assert await presented(server.serving.port, "other.example", authority.certificate) == "other.example"


async def test_a_rotated_certificate_is_reloaded(tmp_path: Path) -> None:
    authority, successor = CertificateAuthority.generate("old"), CertificateAuthority.generate("new")
    certificate, key = write(authority.issue_server_certificate(["localhost"]), tmp_path, "server")
    tls = ServerTLS(TLSOptions(certificate, key))
    before = tls.context.current
    tls.reload()
    assert tls.context.current is before
    write(successor.issue_server_certificate(["localhost", "new.example"]), tmp_path, "server")
    tls.reload()
    assert tls.context.current is not before


async def test_an_invalid_certificate_keeps_the_old_one(tmp_path: Path) -> None:
    certificate, key = write(
        CertificateAuthority.generate("old").issue_server_certificate(["localhost"]), tmp_path, "server"
    )
    tls = ServerTLS(TLSOptions(certificate, key))
    before = tls.context.current
    certificate.write_text("half a certif")
    tls.reload()
    key.unlink()
    tls.reload()
    assert tls.context.current is before


async def test_a_self_signed_certificate_is_persisted_in_the_directory(tmp_path: Path) -> None:
    certificate = ServerTLS(TLSOptions(directory=tmp_path / "certs")).certificate
    assert (tmp_path / "certs" / "kube-scheduler.crt").read_bytes() == certificate
    assert (tmp_path / "certs" / "kube-scheduler.key").stat().st_mode & 0o077 == 0
    assert ServerTLS(TLSOptions(directory=tmp_path / "certs")).certificate == certificate


@pytest.mark.parametrize("content", ["", "no certificate", None])
def test_the_error_for_an_invalid_certificate_names_its_file(tmp_path: Path, content: str | None) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    if content is not None:
        certificate.write_text(content)
        key.write_text(content)
    with pytest.raises(InputError, match=r"server\.crt"):
        ServerTLS(TLSOptions(certificate, key))


def test_an_invalid_client_ca_keeps_the_old_one(tmp_path: Path) -> None:
    tls = ServerTLS(TLSOptions())
    before = tls.context.current
    with pytest.raises(InputError, match="client CA"):
        tls.trust(b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    assert tls.context.current is before
