"""``kubestow config``: check, show and convert."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

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
        f"{file}:3: parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        f"{file}:5: profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]\n",
    )


def test_a_valid_configuration_is_reported_as_valid(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD)
    assert run(capsys, "check", str(file)) == (0, f"{file}: valid\n", "")


def test_an_unknown_plugin_is_an_error(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD + "profiles:\n- plugins: {score: {enabled: [{name: Mine}]}}\n")
    status, out, _ = run(capsys, "check", str(file))
    assert (status, 'ScorePlugin "Mine" does not exist' in out) == (1, True)


def test_for_an_old_version_the_conversion_command_is_printed(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD.replace("/v1", "/v1beta3"))
    status, _, err = run(capsys, "check", str(file))
    assert (status, f"kubestow config convert {file}" in err) == (1, True)


def test_the_default_configuration_is_shown_without_comments(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show")
    assert (status, "  # " in out) == (0, False)
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
        2,
        "",
        f"kubestow: {missing}: cannot be read: No such file or directory\n",
    )
