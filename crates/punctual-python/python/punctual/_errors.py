"""The exceptions of the package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ErrorRecord:
    """One thing that is wrong with a host file, or with a change of it."""

    file: str | None
    """The file; `None` when a keyword such as `set` is at fault."""
    option: str | None
    """The keyword at fault, as the command line's option: `--set`."""
    line: int
    """Line in the file (or the option's text), from 1."""
    column: int
    """Column in characters, from 1."""
    text: str
    """The offending text; empty when something is missing."""
    message: str
    """What is wrong."""
    expected: str
    """What was expected."""
    nearest: str | None
    """The nearest valid name."""


class PunctualError(Exception):
    """What Punctual refuses, and why."""


class HostFileError(PunctualError, ValueError):
    """Everything that is wrong with a host file. The text shows each line with a caret."""

    records: tuple[ErrorRecord, ...]

    def __init__(self, text: str, records: Iterable[ErrorRecord] = ()) -> None:
        super().__init__(text)
        self.records = tuple(records)


class ViolationError(PunctualError):
    """An invariant of the machine or of a policy broke: a fault of Punctual, which its text describes."""
