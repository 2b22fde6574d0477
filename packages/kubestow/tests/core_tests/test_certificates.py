"""Generated certificates are accepted or rejected by the standard library's TLS handshake."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority, KeyPair


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.generate("kubestow-ca")


def tls_context(purpose: ssl.Purpose, pair: KeyPair, trusted: CertificateAuthority, directory: Path) -> ssl.SSLContext:
    certificate, key = directory / f"{purpose.name}.crt", directory / f"{purpose.name}.key"
    pair.write(certificate, key)
    context = ssl.create_default_context(purpose, cadata=trusted.certificate.decode())
    context.load_cert_chain(certificate, key)
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Perform a handshake in memory and return the server's end."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = server.wrap_bio(one, other, server_side=True)
    client_end = client.wrap_bio(other, one, server_hostname=host)
    for end in (client_end, server_end) * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server_end


def connect(
    tmp_path: Path,
    server_authority: CertificateAuthority,
    *,
    host: str,
    client_authority: CertificateAuthority | None = None,
) -> ssl.SSLObject:
    server = tls_context(
        ssl.Purpose.CLIENT_AUTH,
        server_authority.issue_server_certificate(["localhost", "127.0.0.1", "::1"]),
        server_authority,
        tmp_path,
    )
    server.verify_mode = ssl.CERT_REQUIRED
    client = (client_authority or server_authority).issue_client_certificate("ann", ["system:masters", "dev"])
    return handshake(server, tls_context(ssl.Purpose.SERVER_AUTH, client, server_authority, tmp_path), host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_serving_certificate_is_valid_for_each_of_its_hosts(
    authority: CertificateAuthority, tmp_path: Path, host: str
) -> None:
    assert connect(tmp_path, authority, host=host).cipher()


def test_a_serving_certificate_is_not_valid_for_another_host(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(tmp_path, authority, host="example.org")


def test_a_client_certificate_holds_the_user_and_the_groups(authority: CertificateAuthority, tmp_path: Path) -> None:
    certificate = connect(tmp_path, authority, host="localhost").getpeercert()
    assert certificate is not None
    subject = [pair for names in certificate["subject"] for pair in names]
    assert subject == [("organizationName", "system:masters"), ("organizationName", "dev"), ("commonName", "ann")]


def test_a_client_certificate_of_another_authority_is_rejected(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(tmp_path, authority, host="localhost", client_authority=CertificateAuthority.generate("another"))


def test_an_authority_loaded_from_files_issues_certificates_that_the_original_verifies(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    authority.pair.write(tmp_path / "ca.crt", tmp_path / "ca.key")
    loaded = CertificateAuthority(KeyPair.read(tmp_path / "ca.crt", tmp_path / "ca.key"))
    assert connect(tmp_path, loaded, host="localhost", client_authority=authority).cipher()


def test_an_invalid_authority_raises_an_input_error(authority: CertificateAuthority) -> None:
    with pytest.raises(InputError, match=r"ca.crt: expected a certificate and its key in PEM"):
        CertificateAuthority(KeyPair(b"x", b"y"), subject="ca.crt")
    with pytest.raises(InputError, match=r"ca.crt: the key does not match the certificate"):
        CertificateAuthority(
            KeyPair(authority.certificate, CertificateAuthority.generate("another").pair.key), subject="ca.crt"
        )


def test_an_authority_whose_name_is_not_text_raises_an_input_error() -> None:
    pair = CertificateAuthority.generate("kubestow").pair
    certificate = x509.load_pem_x509_certificate(pair.certificate).public_bytes(Encoding.DER)
    damaged = base64.encodebytes(certificate.replace(b"kubestow", b"\xff" * 8))
    with pytest.raises(InputError, match=r"ca.crt: expected a certificate and its key in PEM: .*subject"):
        CertificateAuthority(
            KeyPair(b"-----BEGIN CERTIFICATE-----\n" + damaged + b"-----END CERTIFICATE-----\n", pair.key),
            subject="ca.crt",
        )


def test_a_missing_directory_raises_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        KeyPair.read(tmp_path / "none", tmp_path / "none")


def test_a_certificate_of_an_unknown_version_is_rejected(authority: CertificateAuthority) -> None:
    der = x509.load_pem_x509_certificate(authority.certificate).public_bytes(Encoding.DER)
    changed = base64.encodebytes(der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x06", 1))
    pem = b"-----BEGIN CERTIFICATE-----\n" + changed + b"-----END CERTIFICATE-----\n"
    with pytest.raises(InputError, match="expected a certificate"):
        CertificateAuthority(KeyPair(pem, authority.pair.key))
