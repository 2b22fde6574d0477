"""How a server is reached over TLS: its certificate, whom clients have to trust, and whose certificates it takes.

Certificates are either given as files, or made here: an authority of our own then vouches for the server and for the
administrator, and is kept with the cluster so that a kubeconfig stays good over a restart. A client certificate that is
shown and not of a known authority ends the handshake; to show none is allowed, a token may do as well.
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

from kubestow.certificates import CertificateAuthority, KeyPair
from kubestow.errors import InputError

__all__ = ["TLS", "hosts_of"]

_AUTHORITY = "kubestow-ca"


@dataclass(frozen=True, slots=True)
class TLS:
    """``trust`` is what clients check the server by, in PEM; ``admin`` the administrator's certificate, if we made one.

    Without ``trust`` clients check nothing. ``client_authorities``, in PEM, are those whose certificates name users.
    """

    context: ssl.SSLContext
    trust: bytes
    admin: KeyPair | None = None
    client_authorities: str = ""

    @classmethod
    def self_made(cls, hosts: Sequence[str], *, directory: Path | None = None, client_ca: Path | None = None) -> Self:
        """With an authority of our own, kept in ``directory``. Raises InputError."""
        authority = _authority(directory)
        context = _context(authority.issue_server_certificate(hosts), subject="the server's own certificate")
        clients = _take_clients(context, authority.certificate.decode(), subject=_AUTHORITY)
        if client_ca is not None:
            clients += _take_clients(context, _text(client_ca), subject=str(client_ca))
        admin = authority.issue_client_certificate("kubernetes-admin", ["system:masters"])
        return cls(context, authority.certificate, admin, clients)

    @classmethod
    def of_files(cls, certificate: Path, key: Path, *, client_ca: Path | None = None) -> Self:
        """With a certificate, or a chain, and its key. Raises InputError naming the file."""
        pair = KeyPair.read(certificate, key)
        context = _context(pair, subject=f"{certificate}, {key}")
        if client_ca is None:
            return cls(context, pair.certificate)
        clients = _take_clients(context, _text(client_ca), subject=str(client_ca))
        return cls(context, pair.certificate, client_authorities=clients)


def hosts_of(address: str) -> list[str]:
    """The names and addresses by which a server that listens on ``address`` is reached."""
    hosts = ["localhost", "127.0.0.1", "::1", address]
    try:
        unspecific = ip_address(address).is_unspecified
    except ValueError:
        unspecific = False
    if unspecific:
        name = socket.gethostname()
        hosts += [name, *_addresses(name)]
    return list(dict.fromkeys(hosts))


def _addresses(name: str) -> list[str]:
    try:
        return [str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(name, None)]
    except OSError:
        return []


def _authority(directory: Path | None) -> CertificateAuthority:
    if directory is None:
        return CertificateAuthority.generate(_AUTHORITY)
    certificate, key = directory / "ca.crt", directory / "ca.key"
    if certificate.exists():
        return CertificateAuthority(KeyPair.read(certificate, key), subject=str(certificate))
    try:
        for one in (directory.parent, directory):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(directory), f"cannot be made: {error.strerror or error}") from None
    authority = CertificateAuthority.generate(_AUTHORITY)
    authority.pair.write(certificate, key)
    return authority


def _context(pair: KeyPair, *, subject: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module takes keys from files only.
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
    """Asked for by OpenSSL when a key is encrypted; without this it would ask the terminal."""
    return ""


def _take_clients(context: ssl.SSLContext, authorities: str, *, subject: str) -> str:
    """Take certificates of these authorities from clients; the authorities."""
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(subject, f"holds no certificates in PEM: {error}") from None
    context.verify_mode = ssl.CERT_OPTIONAL
    return authorities


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except UnicodeDecodeError:
        raise InputError(str(path), "holds no certificates in PEM") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
