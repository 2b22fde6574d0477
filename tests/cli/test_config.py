"""``kubestow config``: what is wrong with a configuration, what it comes to, and how it is said today."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from kubestow.cli import main

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run ``kubestow config``; its exit status, standard output and standard error."""
    with pytest.raises(SystemExit) as ended:
        main(["config", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


def test_every_mistake_is_a_line_with_file_line_and_path(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}parallelism: 0\nprofiles:\n- percentageOfNodesToScore: 101\n")
    assert said(capsys, "check", str(file))[:2] == (
        1,
        f"{file}:3: parallelism: Invalid value: 0: should be an integer value greater than zero\n"
        f"{file}:5: profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]\n",
    )


def test_a_good_configuration_is_called_good(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD)
    assert said(capsys, "check", str(file)) == (0, f"{file}: good\n", "")


def test_a_plugin_that_does_not_exist_is_a_mistake(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD + "profiles:\n- plugins: {score: {enabled: [{name: Mine}]}}\n")
    status, out, _ = said(capsys, "check", str(file))
    assert (status, 'ScorePlugin "Mine" does not exist' in out) == (1, True)


def test_an_old_version_is_told_how_to_be_converted(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD.replace("/v1", "/v1beta3"))
    status, _, err = said(capsys, "check", str(file))
    assert (status, f"kubestow config convert {file}" in err) == (1, True)


def test_the_default_is_shown_without_marks(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "show")
    assert (status, "  # " in out) == (0, False)
    assert yaml.safe_load(out)["profiles"][0]["schedulerName"] == "default-scheduler"


def test_what_differs_from_the_default_is_marked(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}podMaxBackoffSeconds: 60\n")
    _, out, _ = said(capsys, "show", str(file))
    assert "podMaxBackoffSeconds: 60  # default: 10" in out.splitlines()


def test_plugins_are_shown_point_by_point(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "show", "--points")
    lines = out.splitlines()
    assert lines[0] == "default-scheduler:"
    assert lines[1].split()[0] == "preEnqueue:"
    assert "TaintToleration(3), NodeAffinity(2), NodeResourcesFit(1)" in out


def test_a_wrong_configuration_is_not_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(f"{HEAD}paralelism: 1\n")
    assert said(capsys, "show", str(file)) == (
        1,
        "",
        f'kubestow: {file}: paralelism: unknown field, did you mean "parallelism"? (line 3)\n',
    )


def test_what_is_converted_can_be_checked(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    file.write_text("kind: Policy\npriorities:\n- {name: EqualPriority, weight: 1}\n")
    status, out, err = said(capsys, "convert", str(file))
    assert (status, err) == (
        0,
        f"{file}: priorities[0]: EqualPriority is left out: it adds the same to every node (line 3)\n",
    )
    converted = tmp_path / "converted.yaml"
    converted.write_text(out)
    assert said(capsys, "check", str(converted))[0] == 0


def test_mistakes_that_survive_conversion_are_told(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    file.write_text(HEAD.replace("/v1", "/v1beta3") + "paralelism: 1\n")
    status, out, err = said(capsys, "convert", str(file))
    assert (status, out, "converted: paralelism: unknown field" in err) == (1, "", True)


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    assert said(capsys, "check", str(missing)) == (
        2,
        "",
        f"kubestow: {missing}: cannot be read: No such file or directory\n",
    )
