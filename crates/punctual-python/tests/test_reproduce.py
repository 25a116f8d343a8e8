"""Papers: what the command line prints, and errors by name."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

import punctual
from punctual import PunctualError


def test_a_paper_is_what_the_command_line_prints(command_line: Any) -> None:
    printed = command_line("reproduce", "rtca", "--quick", "--only", "fig6", "--no-native", "--json")
    calls: list[tuple[str, int, int]] = []
    ours = punctual.reproduce("rtca", quick=True, only=["fig6"], progress=lambda *call: calls.append(call))
    assert ours.to_dict() == printed
    assert calls and all(done <= total for _, done, total in calls)
    assert ours.claims["id"] == [claim["id"] for claim in printed["claims"]]
    assert "agrees" in ours.claims["verdict"] and not any(ours.claims["unexpected"])
    [table] = [table for table in printed["tables"] if table["id"] == "fig6"]
    assert ours.table("fig6").columns == table["columns"]
    assert [list(row) for row in zip(*ours.table("fig6").to_dict().values())] == table["rows"]
    assert "iframe" in ours._repr_html_() and "claims agree" in repr(ours)
    assert set(ours.files()) >= {"index.html", "reproduction.txt", "reproduction.json", "fig6.csv"}
    assert ours.files()["reproduction.txt"] == str(ours)


def test_curves_are_those_of_the_files() -> None:
    ours = punctual.reproduce("rt-xen", quick=True, only=["fig5"])
    figures = {name: text for name, text in ours.files().items() if name.endswith("-curves.csv")}
    rows = sum(len(list(csv.DictReader(io.StringIO(text)))) for text in figures.values())
    assert len(ours.curves) > 0 and len(figures) > 0 and rows > 0
    least, mean, greatest = (ours.curves[name] for name in ["least", "mean", "greatest"])
    assert all(low <= middle <= high for low, middle, high in zip(least, mean, greatest))
    assert {f"{figure}-curves.csv" for figure in ours.curves["figure"]} == set(figures)


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="no paper .*xen.*; there are rt-xen, rtca"):
        punctual.reproduce("xen")
    with pytest.raises(PunctualError, match="no experiment .*fig9.*; there are"):
        punctual.reproduce("rtca", only=["fig9"])
    with pytest.raises(KeyError, match="no table .*fig3.*; tables: fig6"):
        punctual.reproduce("rtca", quick=True, only=["fig6"]).table("fig3")
