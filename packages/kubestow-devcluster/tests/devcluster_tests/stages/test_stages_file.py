"""Reading files of stages: every mistake is reported with its document and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.errors import InputError
from kubestow_devcluster.behaviour.stages import read_stages

BEHAVIOUR = "apiVersion: kubestow.dev/v1alpha1\nkind: PodBehaviour\nmetadata: {name: one}\nspec: "
USAGE = "apiVersion: kubestow.dev/v1alpha1\nkind: NodeUsage\nspec: "
STAGE = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: one}\nspec: "
POD = "resourceRef: {kind: Pod}"


def test_an_empty_file_has_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text("---\n---\n")
    stages = read_stages(path)
    assert not stages.behaviour
    assert not stages.pod_stages


@pytest.mark.parametrize(
    ("content", "place", "problem"),
    [
        ("{", "line 2", "invalid YAML"),
        ("[]", "document 1", "expected PodBehaviour, PodUsage or NodeUsage"),
        ("---\nkind: Deployment\napiVersion: apps/v1", "document 1", "got 'Deployment' of 'apps/v1'"),
        (BEHAVIOUR + "{strat: 5s}", "document 1 (one)", "unknown field `strat`"),
        (BEHAVIOUR + "{start: 5}", "document 1 (one)", "`spec.start`"),
        (BEHAVIOUR + "{start: soon}", "document 1 (one)", 'invalid duration "soon"'),
        (BEHAVIOUR + "{start: never}", "document 1 (one)", 'invalid duration "never"'),
        (BEHAVIOUR + "{ready: [2s, 1s]}", "document 1 (one)", "expected a duration such as 30s, or a range"),
        (BEHAVIOUR + "{exitCodes: [256]}", "document 1 (one)", "`spec.exitCodes[0]`"),
        (BEHAVIOUR + "{exitCodes: []}", "document 1 (one)", "expected at least one exit code"),
        (BEHAVIOUR + "{selector: {labels: {a: b}}}", "document 1 (one)", "unknown field `labels`"),
        (USAGE + "{cpu: much}", "document 1", "expected a quantity such as 250m, or a percentage such as 50%"),
        (USAGE + "{cpu: -1}", "document 1", "expected a quantity"),
        (USAGE + "{cpu: {min: 0, max: 1, period: 0s}}", "document 1", "expected a positive period such as 10m"),
        (USAGE + "{cpu: {min: 0, max: 1, period: 1m, shape: round}}", "document 1", "'round'"),
        (STAGE + "{resourceRef: {kind: Node}, next: {}}", "document 1 (one)", "'Node'"),
        (STAGE + f"{{{POD}, next: {{statusTemplate: '{{{{ Now }}}}'}}}}", "document 1 (one)", "Go templates"),
        (STAGE + f"{{{POD}, next: {{statusTemplate: 'phase_: x'}}}}", "document 1 (one)", "field 'phase_'"),
        (STAGE + f"{{{POD}, next: {{statusTemplate: 'phase: 1'}}}}", "document 1 (one)", "of type string"),
        (STAGE + f"{{{POD}, next: {{patches: []}}}}", "document 1 (one)", "unknown field `patches`"),
        (
            STAGE
            + f"{{{POD}, next: {{}}, selector: {{matchExpressions: [{{key: '.a | length', operator: Exists}}]}}}}",
            "document 1 (one)",
            "expected a path such as .status.phase",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, content: str, place: str, problem: str) -> None:
    path = tmp_path / "stages.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as raised:
        read_stages(path)
    assert (raised.value.subject, raised.value.place) == (str(path), place)
    assert problem in raised.value.problem


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_stages(tmp_path / "none")
