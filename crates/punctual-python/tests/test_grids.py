"""Grids: the same bytes as the command line, on one machine and on clusters, whatever dies in between."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import punctual
from punctual import Grid, Host, PunctualError

# What a host varies: two of the points miss deadlines.
BUDGETS = ["1ms", "2ms", "3ms"]


def command_line(*arguments: str, at: Path) -> str:
    """What the program that was built beside the package prints."""
    done = subprocess.run([os.environ["PUNCTUAL"], *arguments], capture_output=True, text=True, cwd=at)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def host(tmp_path: Path, small: str) -> Host:
    path = tmp_path / "host.toml"
    path.write_text(small)
    return Host.from_file(path)


def grid_of_seeds(host: Host, seeds: int) -> Grid:
    return Grid(host, {"domain.vm.budget": BUDGETS, "seed": range(1, seeds + 1)})


def printed_for_seeds(at: Path, seeds: int) -> str:
    budgets = f"domain.vm.budget={','.join(BUDGETS)}"
    dimensions = ["--vary", budgets, "--vary", f"seed=1..{seeds}:1"]
    return command_line("sweep", "host.toml", *dimensions, "--csv", at=at)


def test_csv_and_json_are_those_of_the_command_line(tmp_path: Path, host: Host) -> None:
    vary = {"domain.vm.budget": [*BUDGETS, "30ms"], "domain.vm.task.fast.cost": ["1ms", "2ms"]}
    options = ["--vary", "domain.vm.budget=1ms,2ms,3ms,30ms", "--vary", "domain.vm.task.fast.cost=1ms,2ms"]
    options += ["--policy", "deferrable,rtds", "--runs", "2", "--skip-invalid", "--seed", "7"]
    metrics = ["miss-ratio", "schedulable", "refuted"]
    grid = Grid(
        host.replace(seed=7),
        vary,
        policy=["deferrable", "rtds"],
        runs=2,
        metrics=metrics,
        results=True,
        skip_invalid=True,
    )
    found = punctual.run(grid)
    for one in metrics:
        options += ["--metric", one]
    assert found.csv() == command_line("sweep", "host.toml", *options, "--csv", at=tmp_path)
    assert found.json() == command_line("sweep", "host.toml", *options, "--json", at=tmp_path)
    assert "30ms" not in found.csv(), "an invalid point was left out"


def test_the_table_is_that_of_csv(host: Host) -> None:
    found = punctual.run(grid_of_seeds(host, 2))
    table, lines = found.table, found.csv().splitlines()
    assert table.columns == lines[0].split(",")
    rows = zip(*(table[name] for name in table.columns))
    assert [",".join("" if cell is None else str(cell) for cell in row) for row in rows] == lines[1:]
    assert "<table>" in found._repr_html_()


def test_a_directory_is_shared_with_the_command_line(tmp_path: Path, host: Host) -> None:
    options = ["sweep", "host.toml", "--vary", "domain.vm.budget=1ms,2ms,3ms", "--vary", "seed=1..4:1"]
    command_line(*options, "--resume", "points", "--shard", "1/2", at=tmp_path)
    points = tmp_path / "points"
    files = {path: path.stat().st_mtime_ns for path in points.rglob("*.json")}
    assert len(files) == 6
    found = punctual.run(grid_of_seeds(host, 4), directory=points)
    assert len(list(points.rglob("*"))) == len(list(points.rglob("*.json"))) + len(list(points.glob("*")))
    assert len(list(points.rglob("*.json"))) == 12
    assert all(path.stat().st_mtime_ns == at for path, at in files.items()), "none was computed again"
    merged = command_line(*options, "--resume", "points", "--merge", "--csv", at=tmp_path)
    assert found.csv() == merged == printed_for_seeds(tmp_path, 4)


def test_progress_counts_all_points(host: Host) -> None:
    calls: list[tuple[int, int]] = []
    punctual.run(grid_of_seeds(host, 20), progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (60, 60) and calls == sorted(calls)


def test_points_have_their_values_and_pickles_are_the_same_grid(host: Host) -> None:
    grid = Grid(host, {"domain.vm.budget": BUDGETS}, policy=["deferrable", "periodic"])
    assert grid.keys == ["domain.vm.budget", "policy"] and len(grid) == 6
    assert grid[3] == {"domain.vm.budget": "2ms", "policy": "periodic"}
    copy = pickle.loads(pickle.dumps(grid))
    assert list(copy) == list(grid) and repr(copy) == repr(grid)
    assert copy.compute([5, 0]) == grid.compute([5, 0])


def test_what_is_no_grid_is_refused(host: Host) -> None:
    with pytest.raises(PunctualError, match="1 of 2 points .* domain.vm.budget=30ms"):
        Grid(host, {"domain.vm.budget": ["1ms", "30ms"]})
    with pytest.raises(punctual.HostFileError, match="bugdet"):
        Grid(host.replace(), {"domain.vm.bugdet": ["1ms"]}, skip_invalid=True)
    with pytest.raises(PunctualError, match="nothing to vary"):
        Grid(host, {})
    with pytest.raises(PunctualError, match="varied twice"):
        Grid(host, {"policy": ["edf"]}, policy=["edf"])
    for vary, why in [({"seed": []}, "at least one"), ({"seed": [1, 1]}, "twice"), ({"": [1]}, "key")]:
        with pytest.raises(ValueError, match=why):
            Grid(host, vary)
    with pytest.raises(ValueError, match='no metric "late"; there are miss-ratio'):
        Grid(host, {"seed": [1]}, metrics=["late"])
    with pytest.raises(ValueError, match="runs"):
        Grid(host, {"seed": [1]}, runs=0)
    grid = Grid(host, {"seed": [1, 2]})
    with pytest.raises(IndexError, match="0 to 1"):
        grid[2]
    with pytest.raises(IndexError, match="no point 9"):
        grid.compute([0, 9])
    with pytest.raises(ValueError, match="outcomes of 2 points, got 1"):
        grid.csv(grid.compute([0]))
    with pytest.raises(ValueError, match="no outcome"):
        grid.table([b"{}", b"\xff"])
    with pytest.raises(ValueError, match="batch"):
        punctual._grid.batches(grid, 2, 0)


def test_a_file_that_is_no_point_is_named(tmp_path: Path, host: Host) -> None:
    grid = Grid(host, {"seed": [1]})
    punctual.run(grid, directory=tmp_path / "points")
    [path] = (tmp_path / "points").rglob("*.json")
    path.write_text("{}")
    with pytest.raises(PunctualError, match=path.name):
        punctual.run(grid, directory=tmp_path / "points")
    (tmp_path / "file").write_text("")
    with pytest.raises(PunctualError, match="cannot make the directory"):
        punctual.run(grid, directory=tmp_path / "file")


class Killer:
    """Kills a process of a cluster when a batch is there."""

    def __init__(self, processes: Any) -> None:
        self.processes, self.killed = processes, 0

    def __call__(self, done: int, total: int) -> None:
        if not self.killed:
            for process in self.processes():
                os.kill(process, signal.SIGKILL)
                self.killed += 1


@pytest.fixture
def ray_of_two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray")
    # Paths of sockets are short.
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder)
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


def test_ray_loses_nothing_when_a_worker_is_killed(tmp_path: Path, host: Host, ray_of_two: Any) -> None:
    import psutil

    from punctual.ray import sweep

    def busy() -> list[int]:
        of_ray = psutil.Process().children(recursive=True)
        return [one.pid for one in of_ray if one.cmdline()[:1] == ["ray::compute"]][:1]

    grid, killer = grid_of_seeds(host, 40), Killer(busy)
    found = sweep(grid, batch=4, directory=tmp_path / "points", progress=killer)
    assert killer.killed == 1
    assert found.csv() == printed_for_seeds(tmp_path, 40)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").rglob("*.json")}
    assert len(files) == 120
    assert sweep(grid, directory=tmp_path / "points").csv() == found.csv()
    assert all(path.stat().st_mtime_ns == at for path, at in files.items()), "none was computed again"
    with pytest.raises(PunctualError, match="no point of a sweep"):
        next(iter(files)).write_text("{}")
        sweep(grid, directory=tmp_path / "points")


def test_dask_loses_nothing_when_a_worker_is_killed(tmp_path: Path, host: Host) -> None:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    from punctual.dask import sweep

    with (
        dask.config.set(temporary_directory=str(tmp_path)),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=tmp_path
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = client.run(os.getpid)
        killer = Killer(lambda: [min(workers.values())])
        found = sweep(grid_of_seeds(host, 40), client, batch=4, progress=killer)
        assert killer.killed == 1
        assert found.csv() == printed_for_seeds(tmp_path, 40)
        again = sweep(grid_of_seeds(host, 2), batch=1)
        assert again.csv() == printed_for_seeds(tmp_path, 2)


def test_a_figure_is_that_of_the_command_line(tmp_path: Path, host: Host) -> None:
    budgets = {"domain.vm.budget": BUDGETS, "domain.vm.task.fast.cost": ["1ms", "2ms"]}
    metrics = ["weighted-schedulable"]
    found = punctual.run(Grid(host, budgets, policy=["deferrable", "rtds"], metrics=metrics))
    options = ["--vary", f"domain.vm.budget={','.join(BUDGETS)}"]
    options += ["--vary", "domain.vm.task.fast.cost=1ms,2ms"]
    options += ["--policy", "deferrable,rtds", "--metric", metrics[0], "--svg", "figure.svg"]
    options += ["--x", "domain.vm.budget", "--over", "domain.vm.task.fast.cost"]
    command_line("sweep", "host.toml", *options, at=tmp_path)
    figure = found.figure(metrics[0], x="domain.vm.budget", over="domain.vm.task.fast.cost")
    assert figure.svg == (tmp_path / "figure.svg").read_text()
    figure.save(tmp_path / "saved.svg")
    assert figure._repr_svg_() == (tmp_path / "saved.svg").read_text()
    with pytest.raises(PunctualError, match="expected x, one of domain.vm.budget"):
        found.figure(metrics[0])
