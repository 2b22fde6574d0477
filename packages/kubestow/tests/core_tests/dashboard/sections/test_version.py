from __future__ import annotations

import pytest

from kubestow.dashboard.sections import VersionSection
from kubestow.rules.minors import NOT_COMPARED, Minor


@pytest.mark.parametrize(("minor", "caveat"), [(Minor(33), ""), (Minor(37), NOT_COMPARED)])
def test_the_versions_are_sent_once(minor: Minor, caveat: str) -> None:
    servers = iter(("", minor.release, minor.release))
    section = VersionSection(minor, lambda: next(servers))
    assert section.refresh() == section.content() == {"emulated": str(minor), "server": "", "caveat": caveat}
    changed = section.refresh()
    assert changed is not None and changed["server"] == minor.release
    assert section.refresh() is None
