from __future__ import annotations

import re

import pytest

from kubestow.errors import InputError
from kubestow.rules.minors import MINORS, NEWEST, OLDEST, Behaviour, Minor


@pytest.mark.parametrize("version", ["1.33", "v1.33", "v1.33.4", "v1.33.4+k3s1", "1.33.5-eks-113cf36", " v1.33 "])
def test_versions_of_every_spelling_are_parsed(version: str) -> None:
    assert Minor.parse(version, subject="x") == Minor(33)


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.30", "version 1.30 is not supported, expected 1.31 to "),
        ("1.99", "version 1.99 is not supported"),
        ("2.33", "invalid version '2.33'"),
        ("33", "invalid version '33'"),
        ("", "invalid version ''"),
    ],
)
def test_other_versions_are_refused_by_name(version: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Minor.parse(version, subject="--emulated-version")


@pytest.mark.parametrize("version", ["1.33", "v1.33", "kube=1.33", "kube=v1.33", "1.33.0"])
def test_the_emulated_version_is_a_minor_version(version: str) -> None:
    assert Minor.emulated(version, subject="--emulated-version") == Minor(33)


@pytest.mark.parametrize("version", ["1.33.4", "kube=1.33.4", "v1.33.4+k3s1", "1.33.x", "1.33-eks"])
def test_a_patch_release_is_no_emulated_version(version: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"--emulated-version: patch version not allowed, got: {version}")):
        Minor.emulated(version, subject="--emulated-version")


def test_a_behaviour_holds_from_its_minor_version_on() -> None:
    for behaviour in Behaviour:
        assert [minor.has(behaviour) for minor in MINORS] == [m.number >= behaviour.value.since for m in MINORS]
        assert OLDEST.number < behaviour.value.since <= NEWEST.number, "otherwise nothing differs"


def test_only_the_newest_minor_version_was_not_compared_with_the_binary() -> None:
    assert [minor.number for minor in MINORS if not minor.is_compared] == [37]


def test_no_two_behaviours_are_one_rule() -> None:
    assert len({behaviour.value for behaviour in Behaviour}) == len(Behaviour.__members__)


def test_a_minor_version_without_a_behaviour_has_all_others() -> None:
    lacking = NEWEST.without(Behaviour.SCORES_CHANGE_OF_BALANCE)
    assert [one for one in Behaviour if NEWEST.has(one) != lacking.has(one)] == [Behaviour.SCORES_CHANGE_OF_BALANCE]
    assert (str(lacking), lacking.number) == (str(NEWEST), NEWEST.number)
    assert lacking != NEWEST


@pytest.mark.parametrize(
    ("release", "nearest"), [((1, 9), "1.31"), ((1, 30), "1.31"), ((1, 33), "1.33"), ((1, 99), str(NEWEST))]
)
def test_the_nearest_version_that_can_be_emulated(release: tuple[int, int], nearest: str) -> None:
    assert str(Minor.nearest(release)) == nearest


@pytest.mark.parametrize(
    ("api_version", "first", "last"),
    [
        ("resource.k8s.io/v1alpha3", 31, 31),
        ("resource.k8s.io/v1beta1", 32, 33),
        ("resource.k8s.io/v1beta2", 33, 33),
        ("resource.k8s.io/v1", 34, 37),
        ("scheduling.k8s.io/v1alpha2", 36, 36),
        ("scheduling.k8s.io/v1alpha3", 37, 37),
        ("scheduling.k8s.io/v1beta1", 37, 37),
        ("apps/v1", 31, 37),
    ],
)
def test_an_api_version_is_served_from_one_minor_version_to_another(api_version: str, first: int, last: int) -> None:
    assert [minor.number for minor in MINORS if minor.serves(api_version)] == list(range(first, last + 1))


def test_the_versions_of_emulation_and_compatibility_are_served_from_1_33_on() -> None:
    assert Minor(32).version_info == {"major": "1", "minor": "32", "gitVersion": Minor(32).release}
    versions = {
        "emulationMajor": "1",
        "emulationMinor": "33",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "32",
    }
    assert Minor(33).version_info == {"major": "1", "minor": "33", **versions, "gitVersion": Minor(33).release}
