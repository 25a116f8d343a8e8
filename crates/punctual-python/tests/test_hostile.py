"""Threads, forks, pickles, Ctrl-C, panics and random calls: nothing crashes, and errors are exceptions."""

from __future__ import annotations

import copy
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import punctual
from punctual import Host, HostFileError

# A simulation that would take minutes: how long a test waits for Ctrl-C decides it.
LONG = "duration=100000s"


def test_pickles_come_back_equal(examples: Path) -> None:
    host = Host.from_file(
        examples / "five-vms.toml",
        set=["domain.*.generate.load=80%"],
        seed=5,
        duration="200ms",
        overheads="xen-4.0",
    )
    results = host.simulate(blame=True)
    plan = punctual.place(examples / "fleet.toml")
    tables = [results.jobs, results.slices, results.blame]
    for thing in [host, results, host.check(), *tables, results.report(), plan]:
        for again in [pickle.loads(pickle.dumps(thing)), copy.deepcopy(thing)]:
            if not isinstance(thing, punctual.Report):
                assert again == thing
    # The file itself survives, so changes of it do as well.
    assert pickle.loads(pickle.dumps(host)).replace(seed=6) == host.replace(seed=6)
    assert pickle.loads(pickle.dumps(plan)).hosts() == plan.hosts()
    found = host.synthesize(effort=100)
    again = pickle.loads(pickle.dumps(found))
    assert (again.to_dict(), again.toml, again.host) == (found.to_dict(), found.toml, found.host)


def test_exceptions_are_pickled_with_their_records() -> None:
    with pytest.raises(HostFileError) as caught:
        Host.from_toml("[machine]\nprocesors = 1\n")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is HostFileError
    assert (str(again), again.records) == (str(caught.value), caught.value.records)


def test_threads_simulate_the_same_and_beside_each_other(examples: Path) -> None:
    host = Host.from_file(examples / "misbehaving.toml")
    expected = host.simulate().to_json()
    ticks, done = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    beside = threading.Thread(target=tick)
    beside.start()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: host.simulate().to_json(), range(16)))
        long = pool.submit(host.replace(duration="2000s").simulate)
        before = ticks
        long.result()
        during = ticks - before
    done.set()
    beside.join()
    assert found == [expected] * 16
    # With the interpreter held, the other thread would stand still until the simulation ends.
    assert during >= 5


def test_a_child_of_a_fork_simulates(small: str) -> None:
    host = Host.from_toml(small)
    expected = host.simulate().to_json()
    child = os.fork()
    if child == 0:
        same = host.simulate().to_json() == expected and host.check() == host.check()
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


CALLS = {
    "simulate": "host.simulate()",
    "stack": "stack.simulate()",
    # On a fast machine one check is over before the signal comes.
    "check": "[crowd.check() for _ in range(40)]",
    "jobs": "results.jobs",
    "svg": "results.svg(end='1us')",
    "synthesize": "many.synthesize(periods='free', priorities='free', placement='exact', effort=10**9)",
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_it_within_a_fifth_of_a_second(call: str, examples: Path) -> None:
    program = f"""
import signal, sys, threading, time, os
import punctual
host = punctual.Host.from_file({str(examples / "misbehaving.toml")!r})
results = host.simulate()
host = host.replace(set=[{LONG!r}])
vm = {{"task": {{f"t{{i}}": {{"period": f"{{7 + 3 * i}}ms", "cost": "200us"}} for i in range(6)}}}}
many = punctual.build(machine={{"processors": 4}}, pool={{"p": {{"policy": "deferrable"}}}},
    domain={{f"vm{{i}}": {{**vm, "budget": "1ms", "period": "10ms", "priority": i + 1}} for i in range(14)}})
crowd = punctual.build(machine={{"processors": 8}}, pool={{"p": {{"policy": "rtds"}}}},
    domain={{f"vm{{i}}": {{**vm, "budget": "4ms", "period": f"{{10 + i % 7}}ms"}} for i in range(60)}})
stack = punctual.Host.from_file({str(examples / "kvm-host.toml")!r}, duration="1000s")
if {call!r} in ("jobs", "svg"):
    # Results of a long run, without the run.
    make, parts = results.__reduce__()
    results = make(host.to_toml(), parts[1], False)
sent = []
def send():
    time.sleep(0.05)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=send, daemon=True).start()
try:
    {CALLS[call]}
except KeyboardInterrupt:
    print(time.monotonic() - sent[0])
else:
    sys.exit("it ended by itself")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.2


def test_a_panic_is_an_exception() -> None:
    if not hasattr(punctual._punctual, "_panic"):
        pytest.skip("only builds with debug assertions panic on purpose")
    with pytest.raises(BaseException, match="on purpose") as caught:
        punctual._punctual._panic()
    assert type(caught.value).__name__ == "PanicException"


def value(chance: random.Random, depth: int = 0) -> Any:
    """Something that a caller may pass, fitting or not."""
    simple = [
        None,
        True,
        -1,
        0,
        1,
        2**64,
        -(2**70),
        1.5,
        float("nan"),
        "",
        "1ms",
        "free",
        "\ud800",
        "\0",
        "0%",
        "domain.vm.budget=1ms",
        "=",
        "a" * 5000,
        b"\xff",
        object(),
        int,
        [],
        {},
        (),
        [1, "1ms"],
        ["seed=3"],
    ]
    if depth < 2 and chance.random() < 0.3:
        keys = [chance.choice(["machine", "pool", "domain", "vm", "p", "", "a.b", 'q"'])] * chance.randint(
            1, 3
        )
        return {key: value(chance, depth + 1) for key in keys}
    return chance.choice(simple)


def test_random_calls_return_or_raise(small: str) -> None:
    host = Host.from_toml(small, duration="5ms")
    results = host.simulate()
    things: dict[str, tuple[Any, list[str]]] = {
        "from_toml": (Host.from_toml, ["name", "set", "seed", "policy", "overheads"]),
        "from_dict": (Host.from_dict, ["name"]),
        "replace": (host.replace, ["set", "seed", "policy", "overheads"]),
        "check": (host.check, ["enforced_every"]),
        "simulate": (host.simulate, ["blame", "jobs", "slices", "packets"]),
        "synthesize": (host.synthesize, ["periods", "candidates", "granularity", "margin", "placement"]),
        "table": (results.table, []),
        "svg": (results.svg, ["begin", "end", "items"]),
        "report": (results.report, ["begin", "end"]),
        "column": (results.jobs.__getitem__, []),
        "eq": (host.__eq__, []),
        "generate": (punctual.generate, ["seed", "tasks", "utilization"]),
        "sweep": (punctual.sweep, ["vary", "policy", "threads"]),
    }
    chance = random.Random(37)
    # What wrong calls may raise; anything else is a fault of the package.
    expected = (
        TypeError,
        ValueError,
        KeyError,
        OverflowError,
        AttributeError,
        punctual.PunctualError,
        OSError,
    )
    outcomes: dict[str, int] = {}
    for _ in range(2000):
        call, keywords = things[chance.choice(list(things))]
        # A path would be written to.
        positional = [value(chance) for _ in range(chance.randint(0, 2))] if call != results.report else []
        named = {key: value(chance) for key in keywords if chance.random() < 0.4}
        if chance.random() < 0.1:
            named["unknown"] = 1
        try:
            call(*positional, **named)
            outcome = "returned"
        except expected as error:
            outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert (
        min(outcomes.get(name, 0) for name in ("returned", "TypeError", "ValueError", "HostFileError")) > 20
    )


def test_memory_does_not_grow(small: str) -> None:
    host = Host.from_toml(small)

    def work() -> None:
        results = host.replace(seed=3).simulate(jobs=True, slices=True)
        results.jobs.__arrow_c_stream__()
        results.to_dict()
        pickle.loads(pickle.dumps(results.jobs))
        host.check().tasks
        with pytest.raises(HostFileError):
            Host.from_toml("[machine]\n")

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(50):
        work()
    before = resident()
    for _ in range(250):
        work()
    # A table or text of 10 kB that is lost in each round would show.
    assert resident() - before < 5 << 19


def test_signals_of_others_are_handled_while_it_works(small: str) -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        host = Host.from_toml(small, duration="4000s")
        while not heard:
            host.simulate()
    finally:
        signal.signal(signal.SIGALRM, previous)
