"""The server's certificates, and the authorities that clients' certificates have to come from.

Both change while the server runs: certificate files are rotated, and the cluster says anew whom to trust. A new state
is a new context of the ``ssl`` module; connections that are made from then on use it, the others are left alone. A file
that cannot be read any more leaves everything as it was.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509

from kubestow.certificates import CertificateAuthority, KeyPair
from kubestow.errors import InputError
from kubestow.observability.logs import fields
from kubestow.serving.options import SNICertificate, TLSOptions

__all__ = ["CIPHER_SUITES", "TLS_VERSIONS", "ServerTLS"]

_log = logging.getLogger(__name__)

_NAME = "kube-scheduler"

TLS_VERSIONS = {
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
CIPHER_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    # Those of TLS 1.3 are always on, here as there.
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""Go's names of cipher suites and OpenSSL's."""

#: IANA's numbers of key exchange groups and OpenSSL's names.
_CURVES = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}

Stamp = tuple[tuple[int, int], ...]


class _Current(ssl.SSLContext):
    """Stands for whichever context is current when a connection is made."""

    current: ssl.SSLContext

    def __new__(cls) -> _Current:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def wrap_bio(self, *given: Any, **named: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*given, **named)


class ServerTLS:
    """TLS as the server speaks it. ``context`` is for the listening socket and stays the same for ever.

    ``hosts`` are what a self-made certificate is made out to. Raises InputError for files that cannot be used.
    """

    def __init__(self, options: TLSOptions, *, hosts: Iterable[str] = ("localhost", "127.0.0.1")) -> None:
        self._options = options
        self._authorities = b""
        self._made = _own_pair(options, tuple(hosts)) if options.certificate is None else None
        self._stamp = self._stamped()
        self.context = _Current()
        self.context.current = self._build()

    @property
    def certificate(self) -> bytes:
        """What the server shows to clients that ask for no name in particular, in PEM."""
        if self._made is not None:
            return self._made.certificate
        assert self._options.certificate is not None
        return self._options.certificate.read_bytes()

    def trust(self, authorities: bytes) -> None:
        """From here on clients' certificates have to come from these authorities (PEM); with none, none is asked for.

        Raises InputError for what are no certificates; then nothing changes.
        """
        if authorities != self._authorities:
            former, self._authorities = self._authorities, authorities
            try:
                self.context.current = self._build()
            except InputError:
                self._authorities = former
                raise

    def refresh(self) -> None:
        """Take over certificate files that have changed; those that cannot be used are told of and left aside."""
        try:
            stamp = self._stamped()
            if stamp != self._stamp:
                self.context.current = self._build()
                self._stamp = stamp
                _log.info("Serving certificate reloaded", extra=fields(certificate=str(self._options.certificate)))
        except InputError as error:
            _log.warning("Serving certificate not reloaded, going on with the old one: %s", error)

    # -- making contexts -------------------------------------------------------------------------------------------

    def _files(self) -> Iterator[Path]:
        if self._options.certificate is not None and self._options.key is not None:
            yield self._options.certificate
            yield self._options.key
        for pair in self._options.by_name:
            yield pair.certificate
            yield pair.key

    def _stamped(self) -> Stamp:
        try:
            return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in self._files())
        except OSError as error:
            raise InputError(str(error.filename), f"cannot be read: {error.strerror}") from None

    def _build(self) -> ssl.SSLContext:
        options = self._options
        context = self._context()
        if self._made is not None:
            _load_made(context, self._made)
        else:
            assert options.certificate is not None
            assert options.key is not None
            _load(context, options.certificate, options.key)
        by_name = [(self._names(pair), self._named(pair)) for pair in options.by_name]
        if by_name:
            context.sni_callback = _choosing(by_name)
        return context

    def _named(self, pair: SNICertificate) -> ssl.SSLContext:
        context = self._context()
        _load(context, pair.certificate, pair.key)
        return context

    @staticmethod
    def _names(pair: SNICertificate) -> tuple[str, ...]:
        return tuple(name.lower() for name in pair.names) or _dns_names(pair.certificate)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = TLS_VERSIONS[self._options.min_version or "VersionTLS12"]
        context.set_alpn_protocols(["http/1.1"])
        suites = [CIPHER_SUITES[name] for name in self._options.cipher_suites]
        if any(suites):
            context.set_ciphers(":".join(suite for suite in suites if suite))
        if len(self._options.curves) == 1 and self._options.curves[0] in _CURVES:
            context.set_ecdh_curve(_CURVES[self._options.curves[0]])
        if self._authorities:
            _trust(context, self._authorities)
        return context


def _trust(context: ssl.SSLContext, authorities: bytes) -> None:
    """Ask clients for a certificate; one that is shown has to come from one of the authorities."""
    context.verify_mode = ssl.CERT_OPTIONAL
    # Any certificate of the bundle is a root, as in Go, and many clusters' authorities lack extensions of newer rules.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise InputError("client certificate authorities", f"expected certificates in PEM: {error}") from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # An encrypted key must fail; without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except OSError as error:  # ssl.SSLError is one
        problem = error.strerror if not isinstance(error, ssl.SSLError) else str(error)
        raise InputError(str(certificate), f"expected a certificate, with its key in {key}: {problem}") from None


def _load_made(context: ssl.SSLContext, pair: KeyPair) -> None:
    """OpenSSL reads certificates from files only; this one never touches a disk where that can be helped."""
    with _in_a_file(pair.certificate + pair.key) as path:
        context.load_cert_chain(path)


@contextmanager
def _in_a_file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(_NAME)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # pragma: no cover - not on Linux
        file.write(content)
        file.flush()
        yield file.name


def _own_pair(options: TLSOptions, hosts: tuple[str, ...]) -> KeyPair:
    """The pair of the certificate directory, or a new one that is kept there if there is one."""
    if options.directory is None:
        return _made(hosts)
    certificate, key = (options.directory / f"{_NAME}{suffix}" for suffix in (".crt", ".key"))
    if certificate.exists() and key.exists():
        return KeyPair.read(certificate, key)
    pair = _made(hosts)
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(options.directory), f"cannot be made: {error.strerror}") from None
    pair.write(certificate, key)
    return pair


def _made(hosts: tuple[str, ...]) -> KeyPair:
    authority = CertificateAuthority.make(f"{_NAME}-ca")
    pair = authority.issue_server_certificate(hosts)
    return KeyPair(pair.certificate + authority.certificate, pair.key)


def _dns_names(certificate: Path) -> tuple[str, ...]:
    try:
        read = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise InputError(str(certificate), f"expected a certificate for DNS names: {error}") from None
    return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))


def _choosing(by_name: list[tuple[tuple[str, ...], ssl.SSLContext]]) -> Any:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        for patterns, context in by_name:
            if name is not None and any(fnmatch.fnmatch(name.lower(), pattern) for pattern in patterns):
                connection.context = context
                return

    return choose
