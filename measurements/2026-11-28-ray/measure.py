"""10,000 simulations by `punctual sweep`, `punctual.run`, and on Ray and Dask with two workers, alternating.

usage: PUNCTUAL=FILE measure.py ROUNDS   from the root of the repository; prints a line for each run"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import distributed
import ray

import punctual
import punctual.dask
import punctual.ray

HOST, POINTS, DURATION = "examples/five-vms.toml", 10_000, "5s"


def steal() -> int:
    """Ticks that the machine was taken from this one."""
    return int(open("/proc/stat").readline().split()[8])


def command_line() -> str:
    grid = ["--vary", f"seed=1..{POINTS}:1", "--duration", DURATION, "--csv", "--threads", "2"]
    done = subprocess.run([os.environ["PUNCTUAL"], "sweep", HOST, *grid], capture_output=True, text=True)
    return done.stdout


def main(rounds: int) -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=tempfile.mkdtemp(dir="/tmp"))
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster)

    def grid() -> punctual.Grid:
        # The command reads the file and all points as well.
        return punctual.Grid(punctual.Host.from_file(HOST, duration=DURATION), {"seed": range(1, POINTS + 1)})

    ways: list[tuple[str, Callable[[], str]]] = [
        ("punctual sweep", command_line),
        ("punctual.run", lambda: punctual.run(grid(), threads=2).csv()),
        ("punctual.ray", lambda: punctual.ray.sweep(grid()).csv()),
        ("punctual.dask", lambda: punctual.dask.sweep(grid(), client).csv()),
    ]
    expected = None
    for _ in range(rounds):
        for name, way in ways:
            began, stolen = time.monotonic(), steal()
            found = way()
            took = time.monotonic() - began
            expected = expected or found
            assert found == expected and found.count("\n") == POINTS + 1
            print(f"{name:15} {took:6.2f} s, steal {steal() - stolen}", flush=True)
    client.close()
    cluster.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
