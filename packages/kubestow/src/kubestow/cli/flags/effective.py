"""The effective configuration of flags and configuration file (semantics 1.1).

With ``--config`` the file takes precedence: only leader election flags override it, and deprecated flags are ignored
with a warning. Without ``--config``, deprecated flags override the defaults. Exception: ``--kubeconfig`` applies if the
file names no kubeconfig, so that the scheduler never connects to another cluster found on the machine.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import yaml
from msgspec import structs

from kubestow import config
from kubestow.api.formats.yaml_documents import load_yaml
from kubestow.cli.flags.command import Flags
from kubestow.errors import ConfigurationError, InputError
from kubestow.files import read_file, write_private
from kubestow.flight_record.writer import DEFAULT_SIZE, parse_size
from kubestow.http.tls import CIPHER_SUITES, TLSOptions
from kubestow.log_fields import fields
from kubestow.observability import logs
from kubestow.observability.instruments import LabelAllowList
from kubestow.rules.minors import Minor
from kubestow.serving.options import (
    DelegatingAuthenticationOptions,
    DelegatingAuthorizationOptions,
    RequestHeaderOptions,
    ServingOptions,
)

_log = logging.getLogger(__name__)


#: Leader election flags and their fields of ``leaderElection``.
_ELECTION = {
    "leader-elect": "leader_elect",
    "leader-elect-lease-duration": "lease_duration",
    "leader-elect-renew-deadline": "renew_deadline",
    "leader-elect-retry-period": "retry_period",
    "leader-elect-resource-lock": "resource_lock",
    "leader-elect-resource-name": "resource_name",
    "leader-elect-resource-namespace": "resource_namespace",
}
#: Deprecated flags, ignored with ``--config``, and their fields of ``clientConnection``.
_CONNECTION = {
    "kubeconfig": "kubeconfig",
    "kube-api-content-type": "content_type",
    "kube-api-qps": "qps",
    "kube-api-burst": "burst",
}
#: Deprecated flags, ignored with ``--config``, and their top-level fields.
_TOP_LEVEL = {"profiling": "enable_profiling", "contention-profiling": "enable_contention_profiling"}

#: Each has a Lease, which every scheduler reads or renews in every retry period.
_MOST_PARTITIONS = 64


def configured(
    configuration: config.KubeSchedulerConfiguration, flags: Flags, gates: config.FeatureGates
) -> config.KubeSchedulerConfiguration:
    """The configuration overridden by flags. Raises ConfigurationError if the result is invalid."""
    election = structs.replace(configuration.leader_election, **_overrides(flags, _ELECTION))
    result = structs.replace(configuration, leader_election=election)
    if flags["config"] is None:
        connection = structs.replace(configuration.client_connection, **_overrides(flags, _CONNECTION))
        result = structs.replace(result, client_connection=connection, **_overrides(flags, _TOP_LEVEL))
    else:
        connection = configuration.client_connection
        for name in sorted(flags.changed & {*_CONNECTION, *_TOP_LEVEL}):
            if name != "kubeconfig" or connection.kubeconfig:
                _log.warning("Flag is ignored because --config is set", extra=fields(flag=f"--{name}"))
        kubeconfig = connection.kubeconfig or str(flags["kubeconfig"])
        result = structs.replace(result, client_connection=structs.replace(connection, kubeconfig=kubeconfig))
    errors = config.validate(result, gates)
    if errors:
        raise ConfigurationError("flags", [(error.path, error.message) for error in errors])
    return result


def _overrides(flags: Flags, fields_of: dict[str, str]) -> dict[str, Any]:
    return {field: flags[name] for name, field in fields_of.items() if name in flags.changed}


def set_up_logs(flags: Flags) -> None:
    """Log in the format and with the verbosity of the flags."""
    as_json = flags["logging-format"] == "json"
    split = flags["log-json-split-stream" if as_json else "log-text-split-stream"]
    logs.set_up(verbosity=flags["v"], json_format=as_json, by_file=flags["vmodule"], split_stream=split)


def emulated_minor(flags: Flags) -> Minor | None:
    """The minor version of ``--emulated-version``, None without it. Raises InputError for an unsupported one or two."""
    given = flags["emulated-version"]
    if len(given) > 1:
        raise InputError("--emulated-version", f"duplicate version flag, {' and '.join(given)}")
    return Minor.emulated(given[0], subject="--emulated-version") if given else None


def feature_gates(flags: Flags) -> str:
    """The value of ``--feature-gates`` without component prefixes."""
    return ",".join(gate.removeprefix("kube:") for gate in flags["feature-gates"])


def seed(flags: Flags) -> int | None:
    """The seed, or None for a random one. Raises InputError."""
    text = flags["seed"]
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise InputError("--seed", f'invalid argument "{text}": expected an integer') from None


def partitions(flags: Flags, configuration: config.KubeSchedulerConfiguration) -> int:
    """The number of partitions, 0 for none. Raises InputError if they cannot be shared as configured."""
    count = int(flags["partitions"])
    if not 0 <= count <= _MOST_PARTITIONS:
        raise InputError("--partitions", f"{count} must be 0 to {_MOST_PARTITIONS}")
    if not count:
        return 0
    if not configuration.leader_election.leader_elect:
        raise InputError("--partitions", "needs --leader-elect, because partitions are leased")
    if flags["flight-record"] is not None:
        raise InputError("--partitions", "--flight-record is not supported with it")
    return count


def flight_record_size(flags: Flags) -> int:
    """The limit of the flight record in bytes. Raises InputError."""
    text = flags["flight-record-size"]
    return parse_size(text, "--flight-record-size") if text else DEFAULT_SIZE


def otlp_endpoint(flags: Flags) -> str:
    """The URL of the OpenTelemetry collector, "" for none. Raises InputError, also without OpenTelemetry's packages."""
    endpoint: str = flags["otlp-endpoint"]
    if endpoint:
        # Imported here because most schedulers have no traces.
        from kubestow.observability.tracing.record_exporter import require_tracing

        require_tracing(endpoint, "--otlp-endpoint")
    return endpoint


def allowed_labels(flags: Flags) -> dict[str, LabelAllowList]:
    """The allowed values of metric labels, by metric and label. Raises InputError."""
    entries = {**_manifest(flags["allow-metric-labels-manifest"]), **flags["allow-metric-labels"]}
    allowed: dict[str, dict[str, frozenset[str]]] = {}
    for key, values in entries.items():
        metric, comma, label = key.partition(",")
        if not comma:
            raise InputError("--allow-metric-labels", f"expected metric,label='value,value', got {key!r}")
        allowed.setdefault(metric, {})[label] = frozenset(value for value in values.split(",") if value)
    return dict(allowed)


def _manifest(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    subject = str(file)
    content = load_yaml(read_file(file), subject)
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InputError(subject, 'expected lines of metric,label: "value,value"')
    return {str(name): value for name, value in content.items()}


def serving_options(flags: Flags) -> ServingOptions | None:
    """The options of the secure port, or None if it is disabled. Raises InputError for conflicting flags."""
    if not flags["secure-port"]:
        return None
    return ServingOptions(
        address=flags["bind-address"],
        port=flags["secure-port"],
        reuse_port=flags["permit-port-sharing"],
        reuse_address=flags["permit-address-sharing"],
        tls=_tls(flags),
        authentication=DelegatingAuthenticationOptions(
            kubeconfig=flags["authentication-kubeconfig"],
            cache_ttl=flags["authentication-token-webhook-cache-ttl"].seconds,
            skip_lookup=flags["authentication-skip-lookup"],
            tolerate_lookup_failure=flags["authentication-tolerate-lookup-failure"],
            client_ca=flags["client-ca-file"],
            request_header_ca=flags["requestheader-client-ca-file"],
            request_headers=RequestHeaderOptions(
                allowed_names=flags["requestheader-allowed-names"],
                username_headers=_lower(flags["requestheader-username-headers"]),
                uid_headers=_lower(flags["requestheader-uid-headers"]),
                group_headers=_lower(flags["requestheader-group-headers"]),
                extra_header_prefixes=_lower(flags["requestheader-extra-headers-prefix"]),
            ),
        ),
        authorization=DelegatingAuthorizationOptions(
            kubeconfig=flags["authorization-kubeconfig"],
            allowed_ttl=flags["authorization-webhook-cache-authorized-ttl"].seconds,
            denied_ttl=flags["authorization-webhook-cache-unauthorized-ttl"].seconds,
            always_allow_paths=flags["authorization-always-allow-paths"],
        ),
    )


def _tls(flags: Flags) -> TLSOptions:
    certificate, key = flags["tls-cert-file"], flags["tls-private-key-file"]
    if (certificate is None) != (key is None):
        raise InputError("--tls-cert-file, --tls-private-key-file", "must be set together")
    for suite in flags["tls-cipher-suites"]:
        if suite not in CIPHER_SUITES:
            raise InputError("--tls-cipher-suites", f"cipher suite {suite} not supported or doesn't exist")
    return TLSOptions(
        certificate=certificate,
        key=key,
        directory=flags["cert-dir"],
        by_name=flags["tls-sni-cert-key"],
        cipher_suites=flags["tls-cipher-suites"],
        min_version=flags["tls-min-version"],
        curves=flags["tls-curve-preferences"],
    )


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def write_configuration(configuration: config.KubeSchedulerConfiguration, file: Path) -> None:
    """Write the effective configuration as v1 YAML, keys of extenders included, with mode 0600. Raises InputError."""
    text = yaml.safe_dump(config.render(configuration), sort_keys=False).encode()
    if file.exists() and not file.is_file():  # a terminal or pipe, such as /dev/stdout
        try:
            file.write_bytes(text)
        except OSError as error:
            raise InputError(str(file), f"cannot be written: {error.strerror}") from None
    else:
        write_private(file, text)
    _log.info("Wrote configuration", extra=fields(file=str(file)))
