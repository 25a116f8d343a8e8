"""The notebooks of the manual run, and print what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def texts(notebook: Any) -> list[str]:
    """What each cell printed or returned as text, but for the names of pictures.

    A cell that takes long prints in several pieces.
    """
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        outputs = [output.get("text") or output.get("data", {}).get("text/plain") for output in outputs]
        found.append("".join(text for text in outputs if text and not text.startswith("<Figure")))
    return found


def results(notebook: Any) -> list[int]:
    """How many pictures and values each cell shows."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    return [sum(output["output_type"] != "stream" for output in of_cell) for of_cell in outputs]


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 6


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("matplotlib")
    shown = nbformat.read(path, as_version=4)
    ran = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(ran, timeout=300, resources=where).execute()
    assert texts(ran) == texts(shown)
    assert results(ran) == results(shown)
