"""TLS of a server: serving certificates, and the CAs of client certificates.

Both can change while the server runs: certificate files are rotated, and the cluster publishes new client CAs. Every
change builds a new ``ssl`` context for new connections; existing connections keep theirs. If a file cannot be loaded,
the current context stays in use.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509

from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority, KeyPair
from kubestow.log_fields import fields

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
    # The suites of TLS 1.3 are always enabled, in Go as in OpenSSL.
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""OpenSSL's names of cipher suites by Go's."""

#: OpenSSL's names of key exchange groups by IANA number.
_CURVES = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}

#: Modification time in nanoseconds and size of each file.
FileStamps = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SNICertificate:
    """A certificate for some server names (SNI), by default for the DNS names that it contains."""

    certificate: Path
    key: Path
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TLSOptions:
    """Serving certificates and TLS parameters.

    Without ``certificate`` and ``key`` a self-signed certificate is generated and, with ``directory``, persisted there.
    ``cipher_suites`` are Go's names, ``min_version`` is spelled "VersionTLS12", ``curves`` are IANA numbers.
    """

    certificate: Path | None = None
    key: Path | None = None
    directory: Path | None = None
    by_name: tuple[SNICertificate, ...] = ()
    cipher_suites: tuple[str, ...] = ()
    min_version: str = ""
    curves: tuple[int, ...] = ()


class _DelegatingContext(ssl.SSLContext):
    """Delegates each new connection to the context that is current then."""

    current: ssl.SSLContext

    def __new__(cls) -> _DelegatingContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*args, **kwargs)


class ServerTLS:
    """Builds and reloads the TLS context. ``context`` belongs to the listening socket and never changes.

    ``pair`` is served in place of a certificate in files, ``subject`` names it in errors. Without either the
    certificate is self-signed, for ``hosts``. Raises InputError for certificates that cannot be loaded.
    """

    def __init__(
        self,
        options: TLSOptions,
        *,
        hosts: Iterable[str] = ("localhost", "127.0.0.1"),
        pair: KeyPair | None = None,
        subject: str = "the server's own certificate",
    ) -> None:
        self._options, self._subject = options, subject
        self._client_cas, self._requires_client = b"", False
        if pair is None and options.certificate is None:
            pair = _self_signed(options, tuple(hosts))
        self._pair = pair
        self._stamps = self._file_stamps()
        self.context = _DelegatingContext()
        self.context.current = self._build()

    @property
    def certificate(self) -> bytes:
        """The default serving certificate, in PEM."""
        if self._pair is not None:
            return self._pair.certificate
        assert self._options.certificate is not None
        return self._options.certificate.read_bytes()

    def trust(self, client_cas: bytes, *, required: bool = False, subject: str = "client CA") -> None:
        """Accept client certificates of these CAs (PEM) from now on; without CAs none is requested.

        If ``required``, clients without a certificate are rejected. Raises InputError for an invalid bundle, which it
        calls ``subject``, and keeps the current one.
        """
        if client_cas == self._client_cas:
            return
        former, self._client_cas, self._requires_client = self._client_cas, client_cas, required
        try:
            self.context.current = self._build()
        except (ssl.SSLError, ValueError) as error:
            self._client_cas = former
            raise InputError(subject, f"contains no certificates in PEM: {error}") from None
        except InputError:
            self._client_cas = former
            raise

    def reload(self) -> None:
        """Load certificate files that have changed; a failure is logged and keeps the current certificates."""
        try:
            stamps = self._file_stamps()
            if stamps != self._stamps:
                self.context.current = self._build()
                self._stamps = stamps
                _log.info("Reloaded serving certificate", extra=fields(certificate=str(self._options.certificate)))
        except InputError as error:
            _log.warning("Unable to reload the serving certificate", extra=fields(err=str(error)))

    # -- contexts ------------------------------------------------------------------------------------------------------

    def _files(self) -> Iterator[Path]:
        if self._options.certificate is not None and self._options.key is not None:
            yield self._options.certificate
            yield self._options.key
        for pair in self._options.by_name:
            yield pair.certificate
            yield pair.key

    def _file_stamps(self) -> FileStamps:
        try:
            return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in self._files())
        except OSError as error:
            raise InputError(str(error.filename), f"cannot be read: {error.strerror}") from None

    def _build(self) -> ssl.SSLContext:
        options = self._options
        context = self._context()
        if self._pair is not None:
            # The ssl module loads certificates only from files; on Linux this one never touches a disk.
            with _file_with(self._pair.certificate + b"\n" + self._pair.key) as path:
                try:
                    context.load_cert_chain(path, password=lambda: b"")
                except ssl.SSLError as error:
                    problem = f"is not a certificate and its key in PEM: {error.reason or error}"
                    raise InputError(self._subject, problem) from None
        else:
            assert options.certificate is not None
            assert options.key is not None
            _load(context, options.certificate, options.key)
        by_name = []
        for pair in options.by_name:
            names = tuple(map(str.lower, pair.names)) or _dns_names(pair.certificate)
            sni_context = self._context()
            _load(sni_context, pair.certificate, pair.key)
            by_name.append((names, sni_context))
        if by_name:
            context.sni_callback = _sni_callback(by_name)
        return context

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = TLS_VERSIONS[self._options.min_version or "VersionTLS12"]
        context.set_alpn_protocols(["http/1.1"])
        suites = [CIPHER_SUITES[name] for name in self._options.cipher_suites]
        if any(suites):
            context.set_ciphers(":".join(suite for suite in suites if suite))
        if len(self._options.curves) == 1 and self._options.curves[0] in _CURVES:
            context.set_ecdh_curve(_CURVES[self._options.curves[0]])
        if self._client_cas:
            # A bundle without certificates raises SSLError or ValueError here. As in Go, every certificate of it is a
            # root. Many clusters' CAs lack the extensions that STRICT requires.
            context.verify_mode = ssl.CERT_REQUIRED if self._requires_client else ssl.CERT_OPTIONAL
            context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
            context.load_verify_locations(cadata=self._client_cas.decode("ascii"))
        return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    try:
        # With no password callback OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except OSError as error:  # ssl.SSLError is one
        problem = error.strerror if not isinstance(error, ssl.SSLError) else str(error)
        raise InputError(str(certificate), f"expected a certificate, with its key in {key}: {problem}") from None


@contextmanager
def _file_with(content: bytes) -> Iterator[str]:
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


def _self_signed(options: TLSOptions, hosts: tuple[str, ...]) -> KeyPair:
    """The key pair persisted in the certificate directory, or a new one."""
    if options.directory is None:
        return _generate(hosts)
    certificate, key = (options.directory / f"{_NAME}{suffix}" for suffix in (".crt", ".key"))
    if certificate.exists() and key.exists():
        return KeyPair.read(certificate, key)
    pair = _generate(hosts)
    try:
        options.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(options.directory), f"cannot be created: {error.strerror}") from None
    pair.write(certificate, key)
    return pair


def _generate(hosts: tuple[str, ...]) -> KeyPair:
    authority = CertificateAuthority.generate(f"{_NAME}-ca")
    pair = authority.issue_server_certificate(hosts)
    return KeyPair(pair.certificate + authority.certificate, pair.key)


def _dns_names(certificate: Path) -> tuple[str, ...]:
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.InvalidVersion, x509.ExtensionNotFound) as error:
        raise InputError(str(certificate), f"expected a certificate with DNS names: {error}") from None
    return tuple(name.lower() for name in names.get_values_for_type(x509.DNSName))


def _sni_callback(by_name: list[tuple[tuple[str, ...], ssl.SSLContext]]) -> Any:
    def select_context(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        for patterns, context in by_name:
            if name is not None and any(fnmatch.fnmatch(name.lower(), pattern) for pattern in patterns):
                connection.context = context
                return

    return select_context
