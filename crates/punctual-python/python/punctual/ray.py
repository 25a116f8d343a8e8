"""Grids on a cluster of Ray: `pip install punctual[ray]`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from os import PathLike
from typing import Any

import ray  # type: ignore[import-untyped, unused-ignore]

from punctual import _grid
from punctual._grid import Sweep
from punctual._punctual import Grid

# Batches under way for each processor of the cluster: enough that none waits for the next one.
_AHEAD = 4


def sweep(
    grid: Grid,
    *,
    directory: str | PathLike[str] | None = None,
    batch: int | None = None,
    retries: int = 10,
    progress: bool | Callable[[int, int], object] = False,
) -> Sweep:
    """Computes a grid on the processors of the cluster, which is this machine unless `ray.init` said another.

    A batch whose worker dies is computed again, up to `retries` times. With `directory`, which all machines
    must share, each finished point is a file there and is not computed again, by this call or a later one.
    `progress=True` shows tqdm's bar; a function is called with the numbers of finished and of all points.
    The outcome is the same as on one machine.
    """
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    resources: Any = ray.cluster_resources
    processors = int(resources().get("CPU", 1))
    portions = iter(_grid.batches(grid, processors, batch))
    kept, shared = _grid.path(directory), ray.put(grid)
    # Another version of the task cannot be asked for by its own function's name.
    compute: Any = ray.remote(num_cpus=1, max_retries=retries)(_grid.compute)

    def each() -> Generator[_grid.Batch, None, None]:
        waiting: list[Any] = []
        try:
            while True:
                while len(waiting) < _AHEAD * processors and (points := next(portions, None)):
                    waiting.append(compute.remote(shared, points, kept))
                if not waiting:
                    return
                [done], waiting = ray.wait(waiting, num_returns=1)
                yield ray.get(done)
        finally:
            for one in waiting:
                ray.cancel(one, force=True)

    return _grid.collect(grid, each(), _grid.bar(progress))
