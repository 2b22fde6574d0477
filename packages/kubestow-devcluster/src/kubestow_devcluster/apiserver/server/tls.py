"""Secure serving: the server's certificate, the CA bundle for clients, and the CAs of client certificates.

Certificates are either read from files or issued by a self-signed CA, which is kept with the cluster so that a
kubeconfig stays valid across restarts. A client certificate of an unknown CA fails the handshake; clients without a
certificate can use a token.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority, KeyPair

__all__ = ["TLS", "serving_hosts"]

_CA_NAME = "kubestow-ca"


@dataclass(frozen=True, slots=True)
class TLS:
    """The TLS configuration of a server. All certificates are in PEM.

    ``ca_bundle`` verifies the server; when it is empty, clients do not verify. ``admin`` is the administrator's
    certificate from the self-signed CA. ``client_ca`` are the CAs of client certificates.
    """

    context: ssl.SSLContext
    ca_bundle: bytes
    admin: KeyPair | None = None
    client_ca: str = ""

    @classmethod
    def self_signed(cls, hosts: Sequence[str], *, directory: Path | None = None, client_ca: Path | None = None) -> Self:
        """Certificates of a self-signed CA, which is kept in ``directory``. Raises InputError."""
        ca = _certificate_authority(directory)
        context = _context(ca.issue_server_certificate(hosts), subject="the server's own certificate")
        client_cas = _accept_client_ca(context, ca.certificate.decode(), subject=_CA_NAME)
        if client_ca is not None:
            client_cas += _accept_client_ca(context, _read_text(client_ca), subject=str(client_ca))
        admin = ca.issue_client_certificate("kubernetes-admin", ["system:masters"])
        return cls(context, ca.certificate, admin, client_cas)

    @classmethod
    def from_files(cls, certificate: Path, key: Path, *, client_ca: Path | None = None) -> Self:
        """A certificate or chain, and its key. Raises InputError that names the file."""
        pair = KeyPair.read(certificate, key)
        context = _context(pair, subject=f"{certificate}, {key}")
        if client_ca is None:
            return cls(context, pair.certificate)
        client_cas = _accept_client_ca(context, _read_text(client_ca), subject=str(client_ca))
        return cls(context, pair.certificate, client_ca=client_cas)


def serving_hosts(address: str) -> list[str]:
    """The names and addresses that reach a server listening on ``address``."""
    hosts = ["localhost", "127.0.0.1", "::1", address]
    try:
        is_unspecified = ip_address(address).is_unspecified
    except ValueError:
        is_unspecified = False
    if is_unspecified:
        name = socket.gethostname()
        hosts += [name, *_addresses(name)]
    return list(dict.fromkeys(hosts))


def _addresses(name: str) -> list[str]:
    try:
        return [str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(name, None)]
    except OSError:
        return []


def _certificate_authority(directory: Path | None) -> CertificateAuthority:
    if directory is None:
        return CertificateAuthority.generate(_CA_NAME)
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if certificate.exists():
        return CertificateAuthority(KeyPair.read(certificate, key), subject=str(certificate))
    try:
        for path in (directory.parent, directory):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(directory), f"cannot be created: {error.strerror or error}") from None
    ca = CertificateAuthority.generate(_CA_NAME)
    ca.pair.write(certificate, key)
    return ca


def _context(pair: KeyPair, *, subject: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module reads keys from files only.
    with tempfile.TemporaryDirectory(prefix="kubestow-") as directory:
        certificate, key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
        pair.write(certificate, key)
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, OSError) as error:
            problem = getattr(error, "reason", "") or str(error)
            raise InputError(subject, f"is not a certificate and its key in PEM: {problem}") from None
    return context


def _no_password() -> str:
    """The password of an encrypted key. Without this callback OpenSSL prompts on the terminal."""
    return ""


def _accept_client_ca(context: ssl.SSLContext, certificates: str, *, subject: str) -> str:
    """Accept client certificates of these CAs; returns the CAs. Raises InputError."""
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(subject, f"contains no certificates in PEM: {error}") from None
    context.verify_mode = ssl.CERT_OPTIONAL
    return certificates


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise InputError(str(path), "contains no certificates in PEM") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
