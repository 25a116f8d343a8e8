"""Fleets, from files or texts."""

from __future__ import annotations

import os
from typing import Any, Literal

from punctual._punctual import Plan, _place, _what_if


def _read(file: str | os.PathLike[str] | None, toml: str | bytes | None) -> tuple[bytes, str]:
    if toml is not None and file is None:
        return (toml.encode() if isinstance(toml, str) else toml), "fleet.toml"
    if file is None or toml is not None:
        raise TypeError("expected a file, or `toml`")
    path = os.fspath(file)
    with open(path, "rb") as opened:
        return opened.read(), path


def place(
    file: str | os.PathLike[str] | None = None,
    *,
    toml: str | bytes | None = None,
    method: Literal["auto", "exact", "heuristic"] = "auto",
) -> Plan:
    """Places the VMs of a fleet file, or of its text, on hosts: `punctual place`."""
    return _place(*_read(file, toml), method)


def what_if(
    vm: str,
    file: str | os.PathLike[str] | None = None,
    *,
    toml: str | bytes | None = None,
) -> dict[str, Any]:
    """Where one VM could go while all others stay: `punctual place --what-if VM --json`."""
    return _what_if(*_read(file, toml), vm)
