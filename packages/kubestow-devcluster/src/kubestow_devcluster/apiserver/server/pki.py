"""The PKI of a cluster: the server's certificate, the CA bundle for clients, and the CAs of client certificates.

Certificates are either read from files or issued by a self-signed CA, which is kept with the cluster so that a
kubeconfig stays valid across restarts. A client certificate of an unknown CA fails the handshake; clients without a
certificate can use a token.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from kubestow.errors import InputError
from kubestow.files import read_file
from kubestow.http.certificates import CertificateAuthority, KeyPair
from kubestow.http.tls import ServerTLS, TLSOptions

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
        tls = ServerTLS(TLSOptions(), pair=ca.issue_server_certificate(hosts))
        client_cas = ca.certificate + (b"" if client_ca is None else read_file(client_ca))
        tls.trust(client_cas, subject=str(client_ca))
        admin = ca.issue_client_certificate("kubernetes-admin", ["system:masters"])
        return cls(tls.context, ca.certificate, admin, client_cas.decode("ascii"))

    @classmethod
    def from_files(cls, certificate: Path, key: Path, *, client_ca: Path | None = None) -> Self:
        """A certificate or chain, and its key. Raises InputError that names the file."""
        pair = KeyPair.read(certificate, key)
        tls = ServerTLS(TLSOptions(), pair=pair, subject=f"{certificate}, {key}")
        if client_ca is None:
            return cls(tls.context, pair.certificate)
        client_cas = read_file(client_ca)
        tls.trust(client_cas, subject=str(client_ca))
        return cls(tls.context, pair.certificate, client_ca=client_cas.decode("ascii"))


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
