"""Self-signed certificate authorities, the certificates they issue to servers and clients.

A server without certificates of its own generates a :class:`CertificateAuthority`, publishes its certificate for
clients to trust, and issues itself a :class:`KeyPair` for its host names. A client certificate holds a user and groups
as Kubernetes reads them: the common name and the organizations of the subject.

Keys are P-256. Leaf certificates are valid for a year, authorities for ten. There is no renewal and no revocation;
verification is left to ``ssl``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubestow.errors import InputError
from kubestow.files import read_file, write_private

_AUTHORITY_VALID = timedelta(days=3650)
_LEAF_VALID = timedelta(days=365)
#: Clocks of two machines differ, so validity begins a little before the time of issue.
_BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Self:
        """Read both files. Raises InputError for a file that cannot be read."""
        return cls(read_file(certificate), read_file(key))

    def write(self, certificate: Path, key: Path) -> None:
        """Write the key, then the certificate: a certificate that exists always has its key. Raises InputError."""
        write_private(key, self.key)
        write_private(certificate, self.certificate)


class CertificateAuthority:
    """A certificate authority. ``pair`` is its own certificate and key, which callers may persist."""

    def __init__(self, pair: KeyPair, *, subject: str = "the certificate authority") -> None:
        """``subject`` names ``pair`` in errors. Raises InputError unless it is a certificate with its EC key."""
        self.pair = pair
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = load_pem_private_key(pair.key, password=None)
            self._issuer, public_key = certificate.subject, certificate.public_key()  # decoded when they are read
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
            raise InputError(subject, f"expected a certificate and its key in PEM: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != public_key:
            raise InputError(subject, "the key does not match the certificate; expected its elliptic curve key")
        self._key = key

    @classmethod
    def generate(cls, name: str) -> Self:
        """Generate a self-signed authority with this common name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=False,
            key_encipherment=False,
            content_commitment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = (
            _builder(subject, subject, key, _AUTHORITY_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
        )
        return cls(_sign(builder, key, signer=key))

    @property
    def certificate(self) -> bytes:
        """The certificate that clients must trust, in PEM."""
        return self.pair.certificate

    def issue_server_certificate(self, hosts: Iterable[str]) -> KeyPair:
        """Issue a serving certificate for ``hosts``, which are DNS names and IP addresses."""
        names = [_general_name(host) for host in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(names[0].value))])
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, x509.SubjectAlternativeName(names))

    def issue_client_certificate(self, user: str, groups: Iterable[str] = ()) -> KeyPair:
        """Issue a client certificate that authenticates ``user`` as a member of ``groups``."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(self, subject: x509.Name, purpose: x509.ObjectIdentifier, *extensions: x509.ExtensionType) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(subject, self._issuer, key, _LEAF_VALID)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(authority, critical=False)
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return _sign(builder, key, signer=self._key)


def _general_name(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + valid)
    )


def _sign(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, *, signer: ec.EllipticCurvePrivateKey
) -> KeyPair:
    certificate = builder.sign(signer, SHA256())
    private_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(certificate.public_bytes(Encoding.PEM), private_key)
