"""The examples of the manual and of docstrings print what they show."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import punctual
from conftest import ROOT

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_manual_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    text = (ROOT / "docs/python.md").read_text()
    # A fence would be taken for output.
    text = re.sub(r"^```.*$", "", text, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/python.md", "docs/python.md", 0)
    assert len(test.examples) > 20
    # Examples name files as seen from the root of the repository, and write into a folder of their own.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    failed = doctest.DocTestRunner(optionflags=FLAGS).run(test).failed
    assert failed == 0


def test_docstrings_show_what_is_printed() -> None:
    failed, tried = doctest.testmod(punctual, optionflags=FLAGS)
    assert (failed, tried > 0) == (0, True)
