"""What the tests share: the examples and the command line to compare with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

# Two pools' worth of behaviour in a few lines: a server, a guest with two tasks.
SMALL = """
duration = "200ms"
[machine]
processors = 1
[pool.p]
policy = "deferrable"
[domain.vm]
budget = "3ms"
period = "10ms"
task.fast = { period = "20ms", cost = "1ms" }
task.slow = { period = "40ms", cost = "4ms" }
"""


@pytest.fixture
def small() -> str:
    return SMALL


@pytest.fixture
def examples() -> Path:
    return ROOT / "examples"


@pytest.fixture
def command_line() -> Any:
    """Runs the program that was built beside the package, and reads the JSON that it prints."""
    program = os.environ["PUNCTUAL"]

    def run(*arguments: str) -> Any:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    return run
