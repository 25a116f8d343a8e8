"""Grids on a cluster of Dask: `pip install punctual[dask]`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from os import PathLike
from typing import Any

import distributed  # type: ignore[import-untyped, unused-ignore]

from punctual import _grid
from punctual._grid import Sweep
from punctual._punctual import Grid


def sweep(
    grid: Grid,
    client: distributed.Client | None = None,
    *,
    directory: str | PathLike[str] | None = None,
    batch: int | None = None,
    retries: int = 10,
    progress: bool | Callable[[int, int], object] = False,
) -> Sweep:
    """Computes a grid on the workers of `client`, or of the client that was made last.

    A batch that fails on a worker is computed again, up to `retries` times; Dask itself repeats those whose
    worker dies. With `directory`, which all machines must share, each finished point is a file there and is
    not computed again, by this call or a later one. `progress=True` shows tqdm's bar; a function is called
    with the numbers of finished and of all points. The outcome is the same as on one machine.
    """
    # Dask types few of its methods.
    at: Any = client if client is not None else distributed.get_client()
    as_completed: Any = distributed.as_completed
    portions = _grid.batches(grid, sum(at.nthreads().values()), batch)
    kept = _grid.path(directory)
    shared = at.scatter(grid, broadcast=True, hash=False)
    waiting: Any = [
        at.submit(_grid.compute, shared, points, kept, retries=retries, pure=False) for points in portions
    ]

    def each() -> Generator[_grid.Batch, None, None]:
        try:
            for done, found in as_completed(waiting, with_results=True):
                done.release()
                yield found
        finally:
            at.cancel(waiting)

    return _grid.collect(grid, each(), _grid.bar(progress))
