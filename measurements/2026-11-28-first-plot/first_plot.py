#!/usr/bin/env python3
"""Measures how long it takes from nothing to the first plot: a fresh virtual environment, pip, the first
notebook.

usage: first_plot.py WHEEL [CACHE]   CACHE: pip's directory for downloads (an empty one by default)
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs/notebooks/first-plot.ipynb"
# What the notebook imports and what runs it.
PACKAGES = ["matplotlib", "polars", "nbclient", "nbformat", "ipykernel"]
# Runs the cells of a notebook and prints when the first picture is there, and when all cells have run.
RUN = """
import sys, time
import nbclient, nbformat
start = time.monotonic()
notebook = nbformat.read(sys.argv[1], as_version=4)
client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": sys.argv[2]}})
first = None
with client.setup_kernel():
    for index, cell in enumerate(notebook.cells):
        client.execute_cell(cell, index)
        pictures = [o for o in cell.get("outputs", []) if any("image" in kind for kind in o.get("data", {}))]
        if pictures and first is None:
            first = time.monotonic()
print(first - start, time.monotonic() - start)
"""


def timed(what, *command):
    start = time.monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took = time.monotonic() - start
    print(f"{what}: {took:.1f} s")
    return took, done.stdout


def main():
    wheel = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        cache = sys.argv[2] if len(sys.argv) > 2 else f"{directory}/cache"
        python = f"{directory}/venv/bin/python"
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "--cache-dir", cache, "install"]
        total, _ = timed("python -m venv", sys.executable, "-m", "venv", f"{directory}/venv")
        total += timed("pip install the wheel", *pip, wheel)[0]
        total += timed("import punctual", python, "-c", "import punctual")[0]
        total += timed(f"pip install {' '.join(PACKAGES)}", *pip, *PACKAGES)[0]
        _, printed = timed("the first notebook", python, "-c", RUN, str(NOTEBOOK), str(NOTEBOOK.parent))
        first, last = map(float, printed.split())
        print(f"its first picture after {first:.1f} s, its last after {last:.1f} s")
        print(f"from nothing to the first plot: {total + first:.1f} s")


if __name__ == "__main__":
    main()
