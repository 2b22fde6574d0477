from __future__ import annotations

import pytest

from kubestow.dashboard.sections import VersionSection
from kubestow.rules.minors import NOT_COMPARED, Minor


@pytest.mark.parametrize(("minor", "caveat"), [(Minor(33), ""), (Minor(37), NOT_COMPARED)])
def test_the_minor_version_is_sent_once(minor: Minor, caveat: str) -> None:
    section = VersionSection(minor)
    assert section.refresh() == section.content() == {"emulated": str(minor), "caveat": caveat}
    assert section.refresh() is None
