"""TLS towards an extender, as its configuration asks for it (semantics 2.6).

The rules are client-go's: data goes before files; an authority and ``insecure`` exclude each other; HTTPS that is asked
for by ``enableHTTPS`` alone, without an authority, checks nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from tempfile import NamedTemporaryFile

from kubestow import config
from kubestow.errors import InputError

__all__ = ["tls_context"]

_UNSET = config.ExtenderTLS()


def tls_context(settings: config.Extender) -> ssl.SSLContext:
    """What connections to the extender are made with. Raises InputError for settings that cannot be used."""
    tls = settings.tls_config or _UNSET
    has_authority = bool(tls.ca_data or tls.ca_file)
    if has_authority and tls.insecure:
        raise _complaint(settings, "specifying a root certificates file with the insecure flag is not allowed")
    try:
        context = ssl.create_default_context(cadata=_authority(tls) if has_authority else None)
        # Python 3.13 refuses certificates that lack extensions which many clusters' own authorities never wrote.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if tls.insecure or (settings.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_data or tls.cert_file or tls.key_data or tls.key_file:
            _load_certificate(context, settings, tls)
    except OSError as error:  # ssl.SSLError among them
        what = error.filename or "expected certificates and keys in PEM"
        raise _complaint(settings, f"{what}: {error.strerror or error}") from None
    return context


def _authority(tls: config.ExtenderTLS) -> str:
    data = tls.ca_data or Path(tls.ca_file).read_bytes()
    return data.decode("ascii", errors="replace")


def _load_certificate(context: ssl.SSLContext, settings: config.Extender, tls: config.ExtenderTLS) -> None:
    certificate = tls.cert_data or (Path(tls.cert_file).read_bytes() if tls.cert_file else b"")
    key = tls.key_data or (Path(tls.key_file).read_bytes() if tls.key_file else b"")
    if not (certificate and key):
        raise _complaint(settings, "a client certificate and its key go together")
    with NamedTemporaryFile() as both:  # the ssl module reads certificates only from files; nobody else can read this
        both.write(certificate + b"\n" + key)
        both.flush()
        # An encrypted key must fail; without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(both.name, password=lambda: b"")


def _complaint(settings: config.Extender, problem: str) -> InputError:
    return InputError(f"extender {settings.url_prefix}", problem, place="tlsConfig")
