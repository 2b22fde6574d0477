"""docs/traces.md has the formats and assumptions of the code, and its mapping can be read."""

from __future__ import annotations

import re
from pathlib import Path

from tools.site.traces import PAGE, page

from kubestow_lab.traces.formats import read_trace

TABLE = "job_id,submit_time,minutes,workers,cores,mem_mb,model,prio,team\nj,2026-01-01 00:01:00,2,3,4,512,a100,5,red\n"


def test_the_tables_of_the_page_are_current() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "python -m tools.site.traces writes them"


def test_the_mapping_of_the_page(tmp_path: Path) -> None:
    (mapping,) = re.findall(r"```yaml\n(name: job_id.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mapping.yaml").write_text(mapping)
    (tmp_path / "jobs.csv").write_text(TABLE)
    trace, _ = read_trace(f"csv={tmp_path / 'jobs.csv'}", mapping=tmp_path / "mapping.yaml")
    (task,) = trace.tasks
    assert (task.duration, task.count, task.template.priority, task.queue) == (120, 3, 5, "red")
    assert (task.template.shape.memory_mib, task.template.shape.models) == (512, ("a100",))
    assert (len(trace.nodes), trace.nodes[0].shape.model) == (100, "a100")
