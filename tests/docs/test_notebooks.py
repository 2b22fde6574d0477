"""The notebooks run, and print what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.mark.filterwarnings("ignore")  # those of the notebook packages
@pytest.mark.parametrize("path", sorted(_FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    shown = nbformat.read(path, as_version=4)
    executed = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(executed, timeout=None, resources={"metadata": {"path": str(_FOLDER)}}).execute()
    assert _outputs(executed) == _outputs(shown)


def test_there_are_notebooks() -> None:
    assert {path.stem for path in _FOLDER.glob("*.ipynb")} == {
        "why-is-my-pod-pending",
        "tuning-weights",
        "first-simulation",
        "policy-in-twenty-lines",
        "paper-table",
        "reinforcement-learning",
        "evolution",
    }


def _outputs(notebook: Any) -> list[list[str]]:
    """The plain text of the outputs of each code cell."""
    return [
        [output.get("text") or output["data"]["text/plain"] for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
