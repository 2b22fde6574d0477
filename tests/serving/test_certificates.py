"""The server's own certificates: given, kept in a directory or made; and taken over when they change."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from kubestow.certificates import CertificateAuthority, KeyPair
from kubestow.errors import InputError
from kubestow.serving.options import SNICertificate, TLSOptions
from kubestow.serving.tls import ServerTLS
from tests.serving.ports import OPEN, port


def written(pair: KeyPair, directory: Path, name: str) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    pair.write(certificate, key)
    return certificate, key


async def shown(at_port: int, server_name: str, trusted: bytes) -> str:
    """The first DNS name of the certificate that a client is shown."""
    import asyncio

    context = ssl.create_default_context(cadata=trusted.decode())
    _, writer = await asyncio.open_connection("127.0.0.1", at_port, ssl=context, server_hostname=server_name)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subjectAltName"][0][1])


async def test_a_given_certificate_is_shown_and_another_for_its_name(tmp_path: Path) -> None:
    authority = CertificateAuthority.make("cluster")
    certificate, key = written(authority.issue_server_certificate(["localhost"]), tmp_path, "server")
    other = SNICertificate(*written(authority.issue_server_certificate(["other.example"]), tmp_path, "other"))
    tls = TLSOptions(certificate, key, by_name=(other,))
    async with port(replace(OPEN, tls=tls)) as at:
        assert await shown(at.serving.port, "localhost", authority.certificate) == "localhost"
        assert await shown(at.serving.port, "other.example", authority.certificate) == "other.example"


async def test_a_certificate_that_is_renewed_is_taken_over(tmp_path: Path) -> None:
    authority, successor = CertificateAuthority.make("old"), CertificateAuthority.make("new")
    certificate, key = written(authority.issue_server_certificate(["localhost"]), tmp_path, "server")
    tls = ServerTLS(TLSOptions(certificate, key))
    before = tls.context.current
    tls.refresh()
    assert tls.context.current is before
    written(successor.issue_server_certificate(["localhost", "newer.example"]), tmp_path, "server")
    tls.refresh()
    assert tls.context.current is not before


async def test_a_certificate_that_is_broken_leaves_the_old_one(tmp_path: Path) -> None:
    certificate, key = written(
        CertificateAuthority.make("old").issue_server_certificate(["localhost"]), tmp_path, "server"
    )
    tls = ServerTLS(TLSOptions(certificate, key))
    before = tls.context.current
    certificate.write_text("half a certif")
    tls.refresh()
    key.unlink()
    tls.refresh()
    assert tls.context.current is before


async def test_a_made_certificate_is_kept_in_the_directory(tmp_path: Path) -> None:
    made = ServerTLS(TLSOptions(directory=tmp_path / "certs")).certificate
    assert (tmp_path / "certs" / "kube-scheduler.crt").read_bytes() == made
    assert (tmp_path / "certs" / "kube-scheduler.key").stat().st_mode & 0o077 == 0
    assert ServerTLS(TLSOptions(directory=tmp_path / "certs")).certificate == made


@pytest.mark.parametrize("content", ["", "no certificate", None])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    if content is not None:
        certificate.write_text(content)
        key.write_text(content)
    with pytest.raises(InputError, match=r"server\.crt"):
        ServerTLS(TLSOptions(certificate, key))


def test_authorities_that_are_none_change_nothing(tmp_path: Path) -> None:
    tls = ServerTLS(TLSOptions())
    before = tls.context.current
    with pytest.raises(InputError, match="client certificate authorities"):
        tls.trust(b"-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    assert tls.context.current is before
