"""TLS contexts for connections to extenders, from their ``tlsConfig`` (semantics 2.6).

The rules are client-go's: data takes precedence over files; a certificate authority and ``insecure`` are mutually
exclusive; ``enableHTTPS`` without a certificate authority disables verification.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from tempfile import NamedTemporaryFile

from kubestow import config
from kubestow.errors import InputError

__all__ = ["tls_context"]

_UNSET = config.ExtenderTLSConfig()


def tls_context(settings: config.Extender) -> ssl.SSLContext:
    """The TLS context for connections to the extender. Raises InputError for invalid settings."""
    tls = settings.tls_config or _UNSET
    has_authority = bool(tls.ca_data or tls.ca_file)
    if has_authority and tls.insecure:
        raise _input_error(settings, "specifying a root certificates file with the insecure flag is not allowed")
    try:
        context = ssl.create_default_context(cadata=_authority(tls) if has_authority else None)
        # Python 3.13 rejects certificates without certain extensions, which many clusters' authorities do not issue.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.insecure or (settings.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_data or tls.cert_file or tls.key_data or tls.key_file:
            _load_certificate(context, settings, tls)
    except OSError as error:  # includes ssl.SSLError
        subject = error.filename or "expected certificates and keys in PEM"
        raise _input_error(settings, f"{subject}: {error.strerror or error}") from None
    return context


def _authority(tls: config.ExtenderTLSConfig) -> str:
    data = tls.ca_data or Path(tls.ca_file).read_bytes()
    return data.decode("ascii", errors="replace")


def _load_certificate(context: ssl.SSLContext, settings: config.Extender, tls: config.ExtenderTLSConfig) -> None:
    certificate = tls.cert_data or (Path(tls.cert_file).read_bytes() if tls.cert_file else b"")
    key = tls.key_data or (Path(tls.key_file).read_bytes() if tls.key_file else b"")
    if not (certificate and key):
        raise _input_error(settings, "a client certificate and its key must be set together")
    with NamedTemporaryFile() as file:  # mode 0600; the ssl module loads certificates only from files
        file.write(certificate + b"\n" + key)
        file.flush()
        # With no password callback OpenSSL prompts on the terminal for the password of an encrypted key.
        context.load_cert_chain(file.name, password=lambda: b"")


def _input_error(settings: config.Extender, problem: str) -> InputError:
    return InputError(f"extender {settings.url_prefix}", problem, place="tlsConfig")
