"""Tables of Python as the text of a host file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta

# Letters of TOML's bare keys; other keys are quoted.
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def dumps(tables: object) -> str:
    """The text of a host file with these tables."""
    if not isinstance(tables, Mapping):
        raise TypeError(f"expected a dict of tables, not {type(tables).__name__}")
    lines: list[str] = []
    _table((), tables, lines, set())
    return "\n".join(lines) + "\n"


def value_text(value: object) -> str:
    """The text of one value."""
    return _value((), value, set())


def _table(path: tuple[str, ...], table: Mapping[object, object], lines: list[str], above: set[int]) -> None:
    if id(table) in above:
        raise ValueError(f"the table {_dotted(path)} contains itself")
    above = above | {id(table)}
    for key in table:
        if not isinstance(key, str):
            raise TypeError(f"keys of tables are str, not {type(key).__name__}")
    if path:
        lines.append(f"\n[{_dotted(path)}]")
    inner: list[tuple[str, Mapping[object, object]]] = []
    for key, value in table.items():
        assert isinstance(key, str)
        if isinstance(value, Mapping):
            inner.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_value((*path, key), value, above)}")
    for key, value in inner:
        _table((*path, key), value, lines, above)


def _dotted(path: tuple[str, ...]) -> str:
    return ".".join(_key(key) for key in path)


def _key(key: str) -> str:
    return key if key and _BARE.issuperset(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but TOML escapes DEL as well.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(path: tuple[str, ...], value: object, above: set[int]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, timedelta):
        # A host file's times have units; a timedelta is exact to the microsecond.
        return f'"{value // timedelta(microseconds=1)}us"'
    if isinstance(value, (list, tuple)):
        if id(value) in above:
            raise ValueError(f"the list at {_dotted(path)} contains itself")
        inside = above | {id(value)}
        return "[" + ", ".join(_value(path, item, inside) for item in value) + "]"
    if isinstance(value, Mapping):
        if id(value) in above:
            raise ValueError(f"the table at {_dotted(path)} contains itself")
        inside = above | {id(value)}
        items = (
            f"{_key(str(key))} = {_value((*path, str(key)), item, inside)}" for key, item in value.items()
        )
        return "{ " + ", ".join(items) + " }"
    raise TypeError(f"{_dotted(path)}: a host file has no value of type {type(value).__name__}")
