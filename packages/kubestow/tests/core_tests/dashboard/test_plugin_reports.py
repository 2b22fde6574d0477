"""What plugins report about themselves, on the dashboard."""

from __future__ import annotations

import pytest

from core_tests.observability.harness import Observed, observe
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.dashboard.plugin_reports import PluginReports
from kubestow.dashboard.sections import ReportsSection
from kubestow.errors import PluginError
from kubestow.framework.interface import PreEnqueuePlugin, ReportingPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.reports.model import Paragraph, PluginReport, Section
from kubestow.testing import node


class Tides(PreEnqueuePlugin, ReportingPlugin):
    """Reports how often it was asked, and fails at the fourth time."""

    name = "Tides"
    report_title = "High and low tides"
    asked = 0

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS

    def report(self, *, from_now: bool = False) -> PluginReport:
        assert from_now
        self.asked += 1
        if self.asked > 3:
            raise RuntimeError("no moon")
        return PluginReport([Section("Tides", [Paragraph(f"asked <{self.asked}> times")])])


def test_reports_are_listed_and_read_as_elements_at_most_every_other_second() -> None:
    async def scenario(observed: Observed) -> None:
        harness = observed.harness
        section = ReportsSection(harness.scheduler)
        reports = PluginReports(harness.scheduler, harness.scheduler.environment.clock)
        section.refresh()
        assert section.content() == {"Tides": "High and low tides"}
        assert reports.report("Other") is None
        found = reports.report("Tides")
        assert found == {
            "title": "High and low tides",
            "sections": [{"title": "Tides", "content": [["p", {}, "asked <1> times"]]}],
        }
        assert reports.report("Tides") is found
        for _ in range(2):
            await harness.advance(3.0)
            assert reports.report("Tides") is not found
        await harness.advance(3.0)
        with pytest.raises(PluginError, match=r"'Tides' failed at report: RuntimeError: no moon"):
            reports.report("Tides")

    profiles = [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": [{"name": "Tides"}]}}}]
    observe(scenario, node("a"), plugins=[Tides], profiles=profiles)
