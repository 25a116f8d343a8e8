"""Policies in Python beside the built-in ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from punctual import Host, Params, Policy, PunctualError, ViolationError


class Deferrable(Policy):
    """The deferrable server: a budget in every period, kept while the unit sleeps."""

    def __init__(self, cpus: int) -> None:
        super().__init__(cpus)
        self.params: list[Params] = []
        self.left: list[int] = []
        self.next: list[int] = []
        self.awake: set[int] = set()

    def insert(self, now: int, unit: int, params: Params) -> None:
        assert params.budget_ns is not None and params.period_ns is not None
        self.params.append(params)
        self.left.append(params.budget_ns)
        self.next.append(now + params.period_ns)

    def wake(self, now: int, unit: int) -> None:
        self.awake.add(unit)

    def sleep(self, now: int, unit: int) -> None:
        self.awake.discard(unit)

    def charge(self, now: int, cpu: int, unit: int, ran: int) -> None:
        self.left[unit] -= ran

    def pick(self, now: int, cpu: int) -> tuple[int | None, int | None]:
        ready = [unit for unit in self.awake if self.left[unit] > 0]
        unit = min(ready, key=lambda unit: (self.params[unit].priority or 0, unit), default=None)
        return unit, None if unit is None else now + self.left[unit]

    def next_timer(self) -> int | None:
        return min(self.next, default=None)

    def on_timer(self, now: int) -> None:
        for unit, params in enumerate(self.params):
            if self.next[unit] <= now:
                self.left[unit] = params.budget_ns or 0
                self.next[unit] += params.period_ns or 1

    def account(self, unit: int) -> int:
        return self.left[unit]


def test_a_server_in_python_is_the_built_in_one(examples: Path) -> None:
    host = Host.from_file(examples / "misbehaving.toml", duration="2s")
    ours, built_in = host.simulate(policies={"guests": Deferrable}, jobs=True), host.simulate(jobs=True)
    assert ours.jobs == built_in.jobs
    assert ours.to_dict()["tasks"] == [
        {**task, "context_switches": there["context_switches"]}
        for task, there in zip(built_in.to_dict()["tasks"], ours.to_dict()["tasks"])
    ]
    # Under another policy the same jobs would be late.
    assert host.replace(policy="fixed-priority").simulate(jobs=True).jobs != ours.jobs


def test_results_of_such_policies_are_not_simulated_again(examples: Path) -> None:
    results = Host.from_file(examples / "misbehaving.toml", duration="100ms").simulate(
        policies={"guests": Deferrable}
    )
    for refused in [lambda: results.jobs, results.svg, results.report, lambda: results.perfetto("nowhere")]:
        with pytest.raises(PunctualError, match="policies in Python"):
            refused()


class Overrunning(Deferrable):
    """Runs units beyond their budgets."""

    def pick(self, now: int, cpu: int) -> tuple[int | None, int | None]:
        return min(self.awake, default=None), None

    def charge(self, now: int, cpu: int, unit: int, ran: int) -> None:
        self.left[unit] = max(0, self.left[unit] - ran)


class Lazy(Deferrable):
    """Lets the processor idle while a unit has work and budget."""

    def pick(self, now: int, cpu: int) -> tuple[int | None, int | None]:
        return None, None


def test_invariants_are_checked(examples: Path) -> None:
    host = Host.from_file(examples / "misbehaving.toml", duration="1s")
    for broken in (Overrunning, Lazy):
        with pytest.raises(ViolationError):
            host.simulate(policies={"guests": broken})


def test_an_exception_of_a_policy_ends_the_simulation(examples: Path) -> None:
    host = Host.from_file(examples / "misbehaving.toml", duration="100s")

    class Raising(Deferrable):
        def charge(self, now: int, cpu: int, unit: int, ran: int) -> None:
            raise ZeroDivisionError("on purpose")

    class Unknown(Deferrable):
        def pick(self, now: int, cpu: int) -> tuple[int | None, int | None]:
            return 77, None

    class Stuck(Deferrable):
        def on_timer(self, now: int) -> None:
            pass

    class Wrong(Deferrable):
        def pick(self, now: int, cpu: int) -> tuple[int | None, int | None]:
            return "unit"  # type: ignore[return-value]

    for policy, error in [
        (Raising, ZeroDivisionError),
        (Unknown, KeyError),
        (Stuck, ValueError),
        (Wrong, TypeError),
    ]:
        with pytest.raises(error):
            host.simulate(policies={"guests": policy})
    with pytest.raises(TypeError):
        host.simulate(policies={"guests": lambda: None})  # type: ignore[dict-item, misc]
    with pytest.raises(KeyError, match="nobody"):
        host.simulate(policies={"nobody": Deferrable})
    with pytest.raises(PunctualError, match="built-in"):
        host.simulate(policies={"guests": Deferrable}, blame=True)
