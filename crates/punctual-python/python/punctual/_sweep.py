"""Grids of parameters on all cores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from punctual._punctual import Host
from punctual._toml import value_text


def _text(value: object) -> str:
    """A value as `--set` takes it: text as it is, everything else as a host file has it."""
    return value if isinstance(value, str) else value_text(value)


def axes(vary: Mapping[str, Iterable[object]]) -> list[tuple[str, list[str]]]:
    """The dimensions of a grid as texts."""
    return [(key, [_text(value) for value in values]) for key, values in vary.items()]


def sweep(
    host: Host,
    vary: Mapping[str, Sequence[object]],
    *,
    policy: Iterable[str] = (),
    simulate: bool = True,
    check: bool = False,
    threads: int | None = None,
) -> list[dict[str, Any]]:
    """Simulates, and with `check=True` checks, the host at each point of a grid, the last key fastest.

    `vary` has the values of each key of the host file, which may have `*` for every name; `policy` is one
    more dimension. A point is a dict of its values, `results` and `guarantees`. All points are read before
    the first one is simulated, so an invalid one is an error at once.
    """
    policies: list[str | None] = list(policy)
    points = []
    for given, chosen in product(product(*vary.values()), policies or [None]):
        at: dict[str, Any] = dict(zip(vary, given))
        one = host.replace(set=[f"{key}={_text(value)}" for key, value in at.items()], policy=chosen)
        points.append(({**at, "policy": chosen} if policies else at, one))

    def point(item: tuple[dict[str, Any], Host]) -> dict[str, Any]:
        values, one = item
        found = dict(values)
        if simulate:
            found["results"] = one.simulate()
        if check:
            found["guarantees"] = one.check()
        return found

    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        return list(pool.map(point, points))
    finally:
        pool.shutdown(cancel_futures=True)
