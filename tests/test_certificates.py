"""Self-made certificates, judged by the TLS library that has to take them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from kubestow.certificates import CertificateAuthority, KeyPair, write_private
from kubestow.errors import InputError


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.make("kubestow-ca")


def context(purpose: ssl.Purpose, pair: KeyPair, trusted: CertificateAuthority, directory: Path) -> ssl.SSLContext:
    certificate, key = directory / f"{purpose.name}.crt", directory / f"{purpose.name}.key"
    pair.write(certificate, key)
    made = ssl.create_default_context(purpose, cadata=trusted.certificate.decode())
    made.load_cert_chain(certificate, key)
    return made


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Both ends in memory; the server's."""
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    served = server.wrap_bio(one, other, server_side=True)
    asking = client.wrap_bio(other, one, server_hostname=host)
    for end in (asking, served) * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return served


def met(
    tmp_path: Path, ours: CertificateAuthority, *, host: str, theirs: CertificateAuthority | None = None
) -> ssl.SSLObject:
    server = context(
        ssl.Purpose.CLIENT_AUTH, ours.issue_server_certificate(["localhost", "127.0.0.1", "::1"]), ours, tmp_path
    )
    server.verify_mode = ssl.CERT_REQUIRED
    users = (theirs or ours).issue_client_certificate("ann", ["system:masters", "dev"])
    return handshake(server, context(ssl.Purpose.SERVER_AUTH, users, ours, tmp_path), host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_a_server_is_trusted_by_every_host_it_was_issued_for(
    authority: CertificateAuthority, tmp_path: Path, host: str
) -> None:
    assert met(tmp_path, authority, host=host).cipher()


def test_a_server_is_not_trusted_as_another_host(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        met(tmp_path, authority, host="example.org")


def test_a_client_certificate_names_the_user_and_the_groups(authority: CertificateAuthority, tmp_path: Path) -> None:
    seen = met(tmp_path, authority, host="localhost").getpeercert()
    assert seen is not None
    subject = [pair for names in seen["subject"] for pair in names]
    assert subject == [("organizationName", "system:masters"), ("organizationName", "dev"), ("commonName", "ann")]


def test_a_client_of_another_authority_is_refused(authority: CertificateAuthority, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        met(tmp_path, authority, host="localhost", theirs=CertificateAuthority.make("another"))


def test_an_authority_read_again_issues_what_the_first_is_trusted_for(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    authority.pair.write(tmp_path / "ca.crt", tmp_path / "ca.key")
    again = CertificateAuthority(KeyPair.read(tmp_path / "ca.crt", tmp_path / "ca.key"))
    assert met(tmp_path, again, host="localhost", theirs=authority).cipher()


def test_what_is_no_authority_is_one_line(authority: CertificateAuthority) -> None:
    with pytest.raises(InputError, match=r"ca.crt: is not a certificate and its key in PEM"):
        CertificateAuthority(KeyPair(b"x", b"y"), subject="ca.crt")
    with pytest.raises(InputError, match=r"ca.crt: the key is not the certificate's"):
        CertificateAuthority(
            KeyPair(authority.certificate, CertificateAuthority.make("another").pair.key), subject="ca.crt"
        )


def test_written_files_are_whole_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("older")
    path.chmod(0o644)
    write_private(path, b"newer")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"newer", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_private(tmp_path / "none" / "key", b"")
    with pytest.raises(InputError, match="cannot be read: No such file or directory"):
        KeyPair.read(tmp_path / "none", tmp_path / "none")
