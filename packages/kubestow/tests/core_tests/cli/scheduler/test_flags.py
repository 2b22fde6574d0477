"""The flags of ``kubestow run``: syntax, defaults, precedence and errors as in kube-scheduler."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow import config
from kubestow.cli import main
from kubestow.cli.flags import effective
from kubestow.cli.flags.command import Flags
from kubestow.cli.flags.scheduler import REMOVED, RUN, SECTIONS
from kubestow.config import FeatureGates
from kubestow.errors import ConfigurationError, InputError


def flags(**texts: str) -> Flags:
    """The flags with these arguments; underscores stand for dashes."""
    return Flags.parse({name.replace("_", "-"): [text] for name, text in texts.items()})


def exit_status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["run", *arguments])
    return int(exited.value.code or 0)


def effective_configuration(tmp_path: Path, *arguments: str) -> Any:
    """The effective configuration of a command line."""
    file = tmp_path / "effective.yaml"
    assert exit_status(*arguments, "--write-config-to", str(file)) == 0
    return yaml.safe_load(file.read_text())


def configuration(tmp_path: Path, **document: Any) -> str:
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": config.API_VERSION, "kind": config.KIND, **document}))
    return str(file)


DEFAULTS = {
    "bind-address": "0.0.0.0",
    "secure-port": "10259",
    "authentication-token-webhook-cache-ttl": "10s",
    "authentication-tolerate-lookup-failure": "true",
    "requestheader-username-headers": "[x-remote-user]",
    "requestheader-group-headers": "[x-remote-group]",
    "requestheader-extra-headers-prefix": "[x-remote-extra-]",
    "authorization-webhook-cache-authorized-ttl": "10s",
    "authorization-webhook-cache-unauthorized-ttl": "10s",
    "authorization-always-allow-paths": "[/healthz,/readyz,/livez]",
    "kube-api-content-type": "application/vnd.kubernetes.protobuf",
    "kube-api-qps": "50",
    "kube-api-burst": "100",
    "profiling": "true",
    "contention-profiling": "true",
    "pod-max-in-unschedulable-pods-duration": "5m0s",
    "leader-elect": "true",
    "leader-elect-lease-duration": "15s",
    "leader-elect-renew-deadline": "10s",
    "leader-elect-retry-period": "2s",
    "leader-elect-resource-lock": "leases",
    "leader-elect-resource-name": "kube-scheduler",
    "leader-elect-resource-namespace": "kube-system",
    "logging-format": "text",
    "log-flush-frequency": "5s",
    "v": "0",
}


def test_the_defaults_are_kube_schedulers() -> None:
    shown = Flags.parse({}).as_text()
    assert {name: shown[name] for name in DEFAULTS} == DEFAULTS
    empty = {name for name, value in shown.items() if value in ("", "[]", "0", "false")}
    assert shown.keys() - DEFAULTS.keys() <= empty | {"trace-sampling"}  # which has no effect without --otlp-endpoint


def test_help_groups_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--help") == 0
    help_text = capsys.readouterr().out
    assert all(f"{section} flags:" in help_text for section in SECTIONS)
    assert all(f"--{name}" in help_text for name in RUN.by_name)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--leader-elect=false", "--leader-elect-retry-period=3s"],
        ["--leader_elect=false", "--leader_elect_retry_period", "3s"],
        ["--leader-elect", "--leader-elect=f", "--leader-elect-retry-period=1s", "--leader-elect-retry-period=3s"],
    ],
)
def test_flags_have_the_syntax_of_pflag(tmp_path: Path, arguments: list[str]) -> None:
    election = effective_configuration(tmp_path, *arguments)["leaderElection"]
    assert (election["leaderElect"], election["retryPeriod"]) == (False, "3s")


def test_a_boolean_flag_does_not_consume_the_next_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("--leader-elect", "false") == 1
    assert '"kubestow run" does not take any arguments, got ["false"]' in capsys.readouterr().err


@pytest.mark.parametrize("spelling", [["-v=3"], ["-v3"], ["-v", "3"], ["--v=3"], ["--v", "3"]])
def test_verbosity_is_accepted_in_every_syntax(tmp_path: Path, spelling: list[str]) -> None:
    assert effective_configuration(tmp_path, *spelling)["kind"] == config.KIND


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--nonsense"], "--nonsense"),
        (["--secure-port=70000"], '--secure-port: invalid argument "70000"'),
        (["--secure-port=https"], "--secure-port"),
        (["--bind-address=localhost"], "--bind-address"),
        (["--leader-elect=maybe"], '--leader-elect: invalid argument "maybe": expected true or false'),
        (["--leader-elect-lease-duration=15"], "--leader-elect-lease-duration"),
        (["--leader-elect-lease-duration=1s"], "leaderElection.leaseDuration: "),
        (["--leader-elect-resource-lock=endpoints"], 'resourceLock value must be "leases"'),
        (["--logging-format=xml"], "expected one of text, json"),
        (["--tls-cert-file=a.crt"], "must be set together"),
        (["--tls-min-version=VersionTLS14"], "--tls-min-version"),
        (["--tls-cipher-suites=TLS_NONE"], "cipher suite TLS_NONE not supported or doesn't exist"),
        (["--tls-sni-cert-key=only.crt"], "--tls-sni-cert-key"),
        (["--feature-gates=Telepathy=true"], "unrecognized feature gate: Telepathy"),
        (["--feature-gates=GangScheduling"], "missing bool value for GangScheduling"),
        (["--emulated-version=1.30"], "version 1.30 is not supported"),
        (["--emulated-version=1.33.4"], "patch version not allowed, got: 1.33.4"),
        (["--emulated-version=1.33,kube=1.34"], "duplicate version flag, 1.33 and kube=1.34"),
        (["--show-hidden-metrics-for-version=1.1"], "--show-hidden-metrics-for-version"),
        (["--allow-metric-labels=metric=a"], "--allow-metric-labels"),
        (["--vmodule=queue=many"], "--vmodule"),
        (["--seed=lucky"], "--seed"),
        (["--v=loud"], "--v"),
        (["--config=/does/not/exist.yaml"], "/does/not/exist.yaml: cannot be read"),
        (["--write-config-to=/does/not/exist/at-all"], "/does/not/exist/at-all: cannot be written"),
    ],
)
def test_an_invalid_flag_is_one_error_line_and_status_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], problem: str
) -> None:
    file = tmp_path / "effective.yaml"
    assert exit_status("--write-config-to", str(file), *arguments) == 1
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert not file.exists()


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_flag_that_kube_scheduler_had_once_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert name not in RUN.by_name
    assert exit_status(f"--{name}=x") == 1
    assert capsys.readouterr().err == f"kubestow: --{name}: kube-scheduler no longer has this flag: {REMOVED[name]}\n"


def test_a_policy_flag_names_the_conversion(capsys: pytest.CaptureFixture[str]) -> None:
    exit_status("--policy_config_file", "/etc/policy.cfg")
    assert "kubestow config convert" in capsys.readouterr().err


def test_without_a_file_deprecated_flags_apply(tmp_path: Path) -> None:
    shown = effective_configuration(
        tmp_path, "--kube-api-qps=7", "--kube-api-burst=8", "--kubeconfig=/a", "--profiling=false"
    )
    connection = shown["clientConnection"]
    assert (connection["qps"], connection["burst"], connection["kubeconfig"]) == (7, 8, "/a")
    assert shown["enableProfiling"] is False


def test_with_a_file_only_leader_election_flags_override_it(tmp_path: Path) -> None:
    file = configuration(
        tmp_path,
        clientConnection={"qps": 1, "kubeconfig": "/file"},
        leaderElection={"leaderElect": False, "resourceName": "mine"},
    )
    shown = effective_configuration(
        tmp_path, "--config", file, "--kube-api-qps=7", "--kubeconfig=/flag", "--leader-elect"
    )
    assert (shown["clientConnection"]["qps"], shown["clientConnection"]["kubeconfig"]) == (1, "/file")
    assert shown["leaderElection"]["leaderElect"] is True
    assert shown["leaderElection"]["resourceName"] == "mine"


@pytest.mark.parametrize(("in_file", "used"), [("/file", "/file"), ("", "/flag")])
def test_the_kubeconfig_of_the_file_takes_precedence(in_file: str, used: str) -> None:
    given = config.load(
        {"apiVersion": config.API_VERSION, "kind": config.KIND, "clientConnection": {"kubeconfig": in_file}}
    )
    configured = effective.configured(given, flags(config="some.yaml", kubeconfig="/flag"), FeatureGates())
    assert configured.client_connection.kubeconfig == used


@pytest.mark.parametrize(
    "arguments",
    [[], ["--kube-api-qps=7"], ["--kube-api-burst=8"], ["--kubeconfig=/a"], ["--profiling=false"], ["--config=FILE"]],
    ids=" ".join,
)
def test_a_written_configuration_is_read_back_exactly(tmp_path: Path, arguments: list[str]) -> None:
    file = configuration(tmp_path, podMaxBackoffSeconds=60)
    written = effective_configuration(tmp_path, *(argument.replace("FILE", file) for argument in arguments))
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(written))
    assert effective_configuration(tmp_path, "--config", str(again)) == written
    loaded = config.load(written)
    assert config.load(config.render(loaded)) == loaded


def test_requests_are_not_limited_by_a_written_configuration(tmp_path: Path) -> None:
    assert effective_configuration(tmp_path)["clientConnection"]["qps"] == -1


def test_flags_and_file_are_validated_together(tmp_path: Path) -> None:
    given = config.load(Path(configuration(tmp_path, leaderElection={"leaseDuration": "12s"})).read_bytes())
    with pytest.raises(ConfigurationError, match="RenewDeadline"):
        effective.configured(given, flags(leader_elect_renew_deadline="13s"), FeatureGates())


def test_secure_port_0_disables_serving() -> None:
    assert effective.serving_options(flags(secure_port="0")) is None


def test_serving_flags_become_serving_options() -> None:
    options = effective.serving_options(
        Flags.parse(
            {
                "authorization-always-allow-paths": ["/healthz,/metrics", "/livez"],
                "requestheader-username-headers": ["X-Remote-User,X-Other"],
                "tls-sni-cert-key": ["a.crt,a.key:*.example,b.example", "c.crt,c.key"],
                "authentication-token-webhook-cache-ttl": ["1m30s"],
            }
        )
    )
    assert options is not None
    assert options.authorization.always_allow_paths == ("/healthz", "/metrics", "/livez")
    assert options.authentication.request_headers.username_headers == ("x-remote-user", "x-other")
    assert options.authentication.cache_ttl == 90.0
    assert [pair.names for pair in options.tls.by_name] == [("*.example", "b.example"), ()]


def test_label_values_are_allowed_by_flag_and_by_file(tmp_path: Path) -> None:
    manifest = tmp_path / "labels.yaml"
    manifest.write_text('metric1,label1: "a,b"\nmetric2,label2: "c"\n')
    allowed = effective.allowed_labels(
        flags(allow_metric_labels="metric1,label1='x,y',metric3,l=z", allow_metric_labels_manifest=str(manifest))
    )
    assert allowed == {
        "metric1": {"label1": frozenset({"x", "y"})},
        "metric2": {"label2": frozenset({"c"})},
        "metric3": {"l": frozenset({"z"})},
    }


def test_feature_gates_can_have_a_component_prefix() -> None:
    given = flags(feature_gates="kube:GenericWorkload=true,GangScheduling=true", emulated_version="kube=1.36")
    assert FeatureGates.parse(effective.feature_gates(given)).enabled("GangScheduling")


def test_an_invalid_manifest_is_named(tmp_path: Path) -> None:
    manifest = tmp_path / "labels.yaml"
    manifest.write_text("- a\n")
    with pytest.raises(InputError, match=r"labels\.yaml"):
        effective.allowed_labels(flags(allow_metric_labels_manifest=str(manifest)))


def test_the_written_configuration_is_private_and_complete(tmp_path: Path) -> None:
    file = tmp_path / "effective.yaml"
    file.write_text("")
    file.chmod(0o644)
    extender = {
        "urlPrefix": "https://127.0.0.1",
        "filterVerb": "f",
        "enableHTTPS": True,
        "tlsConfig": {"keyData": "a2V5", "certData": "Y2VydA=="},
    }
    source = configuration(tmp_path, extenders=[extender])
    written = effective_configuration(tmp_path, "--config", source)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert written["extenders"][0]["tlsConfig"]["keyData"] == "a2V5"
    assert effective_configuration(tmp_path, "--config", str(file)) == written


def test_the_configuration_can_be_written_to_a_device() -> None:
    assert exit_status("--write-config-to", "/dev/null") == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"partitions": "-1"}, "-1 must be 0 to 64"),
        ({"partitions": "65"}, "65 must be 0 to 64"),
        ({"partitions": "2", "leader_elect": "false"}, "partitions are leased"),
        ({"partitions": "2", "flight_record": "folder"}, "--flight-record is not supported with it"),
    ],
)
def test_partitions_that_cannot_be_shared_are_an_error(arguments: dict[str, str], problem: str) -> None:
    given = flags(**arguments)
    configured = effective.configured(config.default_configuration(), given, FeatureGates())
    with pytest.raises(InputError, match=problem):
        effective.partitions(given, configured)


def test_partitions_are_off_by_default() -> None:
    assert effective.partitions(flags(), config.default_configuration()) == 0
    assert effective.partitions(flags(partitions="4"), config.default_configuration()) == 4
