"""``kubestow config``: check, show and convert."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import yaml

from kubestow import config
from kubestow.cli import main

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run ``kubestow config``; its exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as exited:
        main(["config", *arguments])
    out, err = capsys.readouterr()
    return int(exited.value.code or 0), out, err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


def test_every_error_is_a_line_with_file_line_and_path(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}parallelism: 0\nprofiles:\n- percentageOfNodesToScore: 101\n")
    assert run(capsys, "check", str(file))[:2] == (
        1,
        f"{file}:3:1: parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        f"{file}:5:3: profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]\n",
    )


def test_mistakes_of_different_kinds_are_reported_at_once(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}parallelism: x\nextenders: []\nextender: []\nprofiles:\n- percentageOfNodesToScore: 101\n")
    _, out, _ = run(capsys, "check", str(file))
    assert [line.split(": ")[:2] for line in out.splitlines()] == [
        [f"{file}:3:1", "parallelism"],
        [f"{file}:5:1", "extender"],
        [f"{file}:7:3", "profiles[0].percentageOfNodesToScore"],
    ]


def test_errors_are_printed_as_data(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}parallelism: 0\n")
    status, out, _ = run(capsys, "check", "-o", "json", str(file))
    message = "Invalid value: 0: should be an integer value greater than zero"
    error = {"path": "parallelism", "message": message, "line": 3, "column": 1}
    assert (status, json.loads(out)) == (1, [{"file": str(file), "errors": [error]}])
    assert yaml.safe_load(run(capsys, "check", "-o", "yaml", str(file))[1]) == json.loads(out)


def test_a_configuration_in_a_config_map_is_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    body = textwrap.indent(f"{HEAD}parallelism: 3\n", "    ")
    file.write_text(f"apiVersion: v1\nkind: ConfigMap\ndata:\n  scheduler.yaml: |\n{body}")
    assert run(capsys, "check", str(file)) == (0, f"{file}: valid\n", "")
    assert json.loads(run(capsys, "show", "-o", "json", str(file))[1])["parallelism"] == 3


def test_a_shown_configuration_is_read_back_exactly(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    _, shown, _ = run(capsys, "show")
    assert config.load(shown) == config.default_configuration()
    assert yaml.safe_load(shown)["clientConnection"]["qps"] == -1


def test_a_valid_configuration_is_reported_as_valid(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD)
    assert run(capsys, "check", str(file)) == (0, f"{file}: valid\n", "")


def test_an_unknown_plugin_is_an_error(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD + "profiles:\n- plugins: {score: {enabled: [{name: Mine}]}}\n")
    status, out, _ = run(capsys, "check", str(file))
    assert (status, 'ScorePlugin "Mine" does not exist' in out) == (1, True)


def test_mistakes_in_the_arguments_of_contributed_plugins_are_errors(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    plugins = "  plugins: {multiPoint: {enabled: [{name: TargetLoadPacking}, {name: NodeResourceTopologyMatch}]}}\n"
    packing = "  - {name: TargetLoadPacking, args: {targetUtilization: 150}}\n"
    topology = "  - {name: NodeResourceTopologyMatch, args: {discardReserved: true}}\n"
    file.write_text(f"{HEAD}profiles:\n- schedulerName: a\n{plugins}  pluginConfig:\n{packing}{topology}")
    status, out, _ = run(capsys, "check", str(file))
    args = "profiles[0].pluginConfig[{}].args"
    assert (status, out.splitlines()) == (
        1,
        [
            f"{file}:7:31: {args.format(0)}: plugin TargetLoadPacking: targetUtilization is 150, expected 1 to 100",
            f"{file}:8:46: {args.format(1)}.discardReserved: plugin NodeResourceTopologyMatch: unknown field, "
            'did you mean "discardReservedNodes"?',
        ],
    )


def test_a_configuration_of_volcano_is_checked_and_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text('actions: "allocate"\ntiers:\n- plugins:\n  - name: drff\n')
    message = 'tiers[0].plugins[0].name: unknown plugin "drff", did you mean "drf"?'
    assert run(capsys, "check", str(file))[:2] == (1, f"{file}:4:5: {message}\n")
    file.write_text('actions: "allocate"\ntiers:\n- plugins:\n  - name: drf\n')
    assert run(capsys, "check", str(file))[:2] == (0, f"{file}: valid\n")
    assert yaml.safe_load(run(capsys, "show", str(file))[1])["profiles"][0]["schedulerName"] == "volcano"


def test_for_an_old_version_the_conversion_command_is_printed(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD.replace("/v1", "/v1beta3"))
    status, _, err = run(capsys, "check", str(file))
    assert (status, f"kubestow config convert {file}" in err) == (1, True)


def test_only_settings_without_effect_are_annotated_in_the_default_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = run(capsys, "show")
    comments = {line.partition("  # ")[2] for line in out.splitlines()} - {""}
    assert (status, comments) == (0, {"no effect"})
    assert "parallelism: 16  # no effect" in out.splitlines()
    assert yaml.safe_load(out)["profiles"][0]["schedulerName"] == "default-scheduler"


def test_differences_from_the_default_are_annotated(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}podMaxBackoffSeconds: 60\n")
    _, out, _ = run(capsys, "show", str(file))
    assert "podMaxBackoffSeconds: 60  # default: 10" in out.splitlines()


def test_plugins_are_shown_by_extension_point(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "--points")
    lines = out.splitlines()
    assert lines[0] == "default-scheduler:"
    assert lines[1].split()[0] == "preEnqueue:"
    assert "TaintToleration(3), NodeAffinity(2), NodeResourcesFit(1)" in out
    scores = json.loads(run(capsys, "show", "--points", "-o", "json")[1])["default-scheduler"]["score"]
    assert scores[0] == {"name": "TaintToleration", "weight": 3}


def test_an_invalid_configuration_is_not_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}paralelism: 1\n")
    assert run(capsys, "show", str(file)) == (
        1,
        "",
        f'kubestow: {file}: paralelism: unknown field, did you mean "parallelism"? (line 3)\n',
    )


def test_a_converted_configuration_is_valid(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    file.write_text("kind: Policy\npriorities:\n- {name: EqualPriority, weight: 1}\n")
    status, out, err = run(capsys, "convert", str(file))
    assert (status, err) == (
        0,
        f"{file}: priorities[0]: EqualPriority is omitted: it gives every node the same score (line 3)\n",
    )
    converted = tmp_path / "converted.yaml"
    converted.write_text(out)
    assert run(capsys, "check", str(converted))[0] == 0


def test_errors_in_a_converted_configuration_are_reported(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD.replace("/v1", "/v1beta3") + "paralelism: 1\n")
    status, out, err = run(capsys, "convert", str(file))
    assert (status, out, "converted: paralelism: unknown field" in err) == (1, "", True)


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert run(capsys, "check", str(missing)) == (
        1,
        "",
        f"kubestow: {missing}: cannot be read: No such file or directory\n",
    )


def test_a_minor_version_has_its_own_fields(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}profiles:\n- plugins:\n    placementScore: {{}}\n")
    assert run(capsys, "check", str(file)) == (0, f"{file}: valid\n", "")
    status, out, _ = run(capsys, "check", "--emulated-version", "1.33", str(file))
    problem = "profiles[0].plugins.placementScore: unknown field, known since 1.36"
    assert (status, out) == (1, f"{file}:5:5: {problem}\n")
    for command in ("show", "convert"):
        status, _, err = run(capsys, command, "--emulated-version", "kube=1.33", str(file))
        assert (status, problem in err) == (1, True)


def test_a_minor_version_has_its_own_gates(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD)
    gate = ("--feature-gates", "StorageCapacityScoring=true")
    assert run(capsys, "check", *gate, "--emulated-version", "1.33", str(file))[0] == 0
    status, _, err = run(capsys, "check", *gate, "--emulated-version", "1.32", str(file))
    assert (status, "unrecognized feature gate: StorageCapacityScoring, known since 1.33" in err) == (1, True)


def test_a_minor_version_has_its_own_plugins(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}profiles:\n- plugins:\n    multiPoint:\n      enabled:\n      - name: PodGroupPodsCount\n")
    assert run(capsys, "check", str(file))[0] == 0
    status, out, _ = run(capsys, "check", "--emulated-version", "1.35", str(file))
    assert (status, '"PodGroupPodsCount" does not exist' in out) == (1, True)


def test_the_configuration_of_a_minor_version_is_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    _, out, _ = run(capsys, "show", "--emulated-version", "1.31")
    plugins = yaml.safe_load(out)["profiles"][0]["plugins"]["multiPoint"]["enabled"]
    assert "DynamicResources" not in [plugin["name"] for plugin in plugins]
    assert "default:" not in out, "it is compared with the defaults of the same minor version"
    _, out, _ = run(capsys, "show", "--points", "--emulated-version", "1.31")
    assert "  preEnqueue:        SchedulingGates\n" in out
    assert "placementScore" not in out


def test_a_minor_version_that_is_not_known_is_an_error(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    status, _, err = run(capsys, "show", "--emulated-version", "1.12")
    assert (status, "--emulated-version: version 1.12 is not supported, expected 1.31 to" in err) == (1, True)
