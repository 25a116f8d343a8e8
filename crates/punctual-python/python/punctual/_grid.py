"""Grids whose points any process computes: batches, and what came of all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from os import PathLike
from typing import TYPE_CHECKING, Any

from punctual._frames import Figure

if TYPE_CHECKING:
    from punctual._punctual import Grid, Table

# A batch is sent to a process and its outcomes come back; each process gets so many on average, so that the
# last ones end together.
_BATCHES = 16
# Points of a batch at most: what is lost when a process is killed.
_POINTS_MAX = 256

Batch = tuple[int, list[bytes]]


class Sweep:
    """What came of all points of a grid."""

    grid: Grid

    def __init__(self, grid: Grid, outcomes: Sequence[bytes]) -> None:
        self.grid = grid
        self._outcomes = list(outcomes)

    def csv(self) -> str:
        """What `punctual sweep --csv` prints."""
        return self.grid.csv(self._outcomes)

    def json(self) -> str:
        """What `punctual sweep --json` prints; the grid needs `results=True`."""
        return self.grid.json(self._outcomes)

    @property
    def table(self) -> Table:
        """A row for each point, with every metric."""
        return self.grid.table(self._outcomes)

    def figure(self, metric: str, *, x: str | None = None, over: str | Sequence[str] = ()) -> Figure:
        """A metric as curves: a key with numbers from left to right, a line for each combination of others.

        The points of `over` are added up, for metrics of the analysis: weighted schedulability over another
        key than the utilization.
        """
        added = [over] if isinstance(over, str) else list(over)
        return Figure(self.grid.svg(self._outcomes, metric, x, added))

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def __repr__(self) -> str:
        return f"<punctual.Sweep of {len(self.grid)} points>"


def batches(grid: Grid, processes: int, batch: int | None) -> list[range]:
    """The points in the portions in which they are sent."""
    if batch is not None and batch < 1:
        raise ValueError("batch: expected at least 1")
    own = -(-len(grid) // (_BATCHES * max(processes, 1)))
    size = batch or max(1, min(_POINTS_MAX, own))
    return [range(first, min(first + size, len(grid))) for first in range(0, len(grid), size)]


def compute(grid: Grid, points: range, directory: str | None) -> Batch:
    """A batch, in the process that gets it."""
    return points.start, grid.compute(list(points), directory=directory, threads=1)


def path(directory: str | PathLike[str] | None) -> str | None:
    """A directory as all processes of this machine find it."""
    return None if directory is None else os.path.abspath(os.fspath(directory))


def collect(
    grid: Grid, done: Generator[Batch, None, None], progress: Callable[[int, int], object] | None
) -> Sweep:
    """The whole, of batches in any order. At an exception, `done` is told to end its work."""
    outcomes: list[bytes] = [b""] * len(grid)
    count = 0
    with closing(done):
        for first, found in done:
            outcomes[first : first + len(found)] = found
            count += len(found)
            if progress is not None:
                progress(count, len(grid))
    return Sweep(grid, outcomes)


def run(
    grid: Grid,
    *,
    directory: str | PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Sweep:
    """Computes a grid on this machine, on all processors.

    With `directory` each finished point is a file there, as with `punctual sweep --resume`, and a point that
    is there is not computed again. `progress` is called with the numbers of finished and of all points.
    """
    kept = path(directory)
    portions = batches(grid, threads or os.cpu_count() or 1, None)

    def each() -> Generator[Batch, None, None]:
        for points in portions:
            yield points.start, grid.compute(list(points), directory=kept, threads=threads)

    return collect(grid, each(), progress)


def bar(progress: bool | Callable[[int, int], object]) -> Callable[[int, int], object] | None:
    """What `progress=` asks for: nothing, tqdm's bar, or the caller's own."""
    if not isinstance(progress, bool):
        return progress
    if not progress:
        return None
    from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]

    shown: Any = None

    def show(done: int, total: int) -> None:
        nonlocal shown
        shown = shown or tqdm(total=total, unit="point")
        shown.update(done - shown.n)
        if done == total:
            shown.close()

    return show
