"""Tables as data frames and as HTML."""

from __future__ import annotations

from html import escape
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from punctual._punctual import Table

# Rows that a notebook shows.
_SHOWN = 20


def to_pandas(table: Table) -> Any:
    """The table as a data frame of pandas, with types that know missing values."""
    import pandas  # type: ignore[import-untyped, unused-ignore]

    columns = {}
    for name, values in table.to_dict().items():
        present = next((value for value in values if value is not None), None)
        if isinstance(present, bool):
            columns[name] = pandas.array(values, dtype="boolean")
        elif isinstance(present, float):
            columns[name] = pandas.array(values, dtype="Float64")
        elif isinstance(present, str):
            columns[name] = pandas.Categorical(values)
        else:
            columns[name] = pandas.array(values, dtype="UInt64")
    return pandas.DataFrame(columns)


def html(table: Table) -> str:
    """The first rows as a table of HTML."""
    columns = table.to_dict()
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = [
        "<tr>" + "".join(f"<td>{escape('' if cell is None else str(cell))}</td>" for cell in row) + "</tr>"
        for row in zip(*(values[:_SHOWN] for values in columns.values()))
    ]
    more = len(table) - _SHOWN
    note = f"<p>{more} more rows</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"


def _write(path: str | PathLike[str], text: str) -> None:
    with open(fspath(path), "w", encoding="utf-8", newline="") as file:
        file.write(text)


class Figure:
    """A picture as SVG, the same bytes on every machine. A notebook shows it."""

    svg: str

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the picture to a file."""
        _write(path, self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<punctual.Figure of {len(self.svg)} characters>"


class Report:
    """A page of HTML that needs nothing else. A notebook shows it."""

    html: str

    def __init__(self, html: str) -> None:
        self.html = html

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file."""
        _write(path, self.html)

    def _repr_html_(self) -> str:
        style = "width:100%;height:40em;border:0"
        return f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<punctual.Report of {len(self.html)} characters>"
