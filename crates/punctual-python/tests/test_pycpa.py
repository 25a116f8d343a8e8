"""Systems of pyCPA. It is in no package registry, so these have the attributes of its classes, no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import punctual
from punctual import PunctualError


class SPPScheduler:
    def __init__(self, lower_first: bool = True) -> None:
        self.priority_cmp = (lambda a, b: a <= b) if lower_first else (lambda a, b: a >= b)


class RoundRobinScheduler:
    pass


class TDMAScheduler:
    pass


class PJdEventModel:
    def __init__(self, P: int, J: int = 0, dmin: int = 0, phi: int = 0) -> None:
        self.P, self.J, self.dmin, self.phi = P, J, dmin, phi

    def delta_min(self, n: int) -> int:
        return max((n - 1) * self.dmin, (n - 1) * self.P - self.J)


class Named:
    """Hashed by identity, as pyCPA's objects are."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def task(
    name: str, bcet: int, wcet: int, parameter: int | None, model: object, prev_task: object = None
) -> Named:
    values = {"name": name, "bcet": bcet, "wcet": wcet, "scheduling_parameter": parameter}
    return Named(**values, in_event_model=model, prev_task=prev_task)


def system(*resources: Named, deadlines: dict[Any, int] | None = None, paths: tuple[Any, ...] = ()) -> Named:
    constraints = SimpleNamespace(_wcrt_constraints=deadlines or {})
    parts = {"resources": set(resources), "paths": set(paths), "junctions": set()}
    return Named(name="engine", constraints=constraints, **parts)


def resource(name: str, scheduler: object, *tasks: Named) -> Named:
    return Named(name=name, scheduler=scheduler, tasks=set(tasks))


def test_bounds_are_those_of_pycpa_for_static_priorities() -> None:
    # The response times are those of pyCPA 1.2 for these tasks.
    tasks = [task("T1", 5, 10, 1, PJdEventModel(30)), task("T2", 1, 3, 2, PJdEventModel(15))]
    tasks.append(task("T 3", 0, 4, 3, PJdEventModel(60, phi=7)))
    host = punctual.from_pycpa(system(resource("R1", SPPScheduler(), *tasks), deadlines={tasks[2]: 40}))
    answers = host.check().tasks
    assert dict(zip(answers["name"], answers["bound_ns"])) == {"T_3": 20_000, "T1": 10_000, "T2": 13_000}
    drawn = host.tasks.to_dict()
    third = drawn["name"].index("T_3")
    assert (drawn["deadline_ns"][third], drawn["period_ns"][third]) == (40_000, 60_000)
    toml = host.to_toml()
    assert 'offset = "7us"' in toml and 'min = "1ns"' in toml


def test_the_comparison_of_priorities_is_the_schedulers() -> None:
    tasks = [task("low", 1, 1, 1, PJdEventModel(10)), task("high", 1, 1, 9, PJdEventModel(10))]
    host = punctual.from_pycpa(system(resource("R", SPPScheduler(lower_first=False), *tasks)), unit="ms")
    answers = host.check().tasks
    assert dict(zip(answers["name"], answers["bound_ns"])) == {"high": 1_000_000, "low": 2_000_000}


def test_jitter_and_activation_become_the_least_distance_with_a_warning() -> None:
    first = task("first", 1, 2, 1, PJdEventModel(30, J=5))
    second = task("second", 1, 2, 1, PJdEventModel(30, J=6, dmin=2), prev_task=first)
    path = Named(name="both")
    cores = (resource("A", SPPScheduler(), first), resource("B", SPPScheduler(), second))
    with pytest.warns(UserWarning) as warned:
        host = punctual.from_pycpa(system(*cores, paths=(path,)))
    said = sorted(str(warning.message) for warning in warned)
    assert len(said) == 3 and "paths are left out (both)" in said[0] and "as near as 25" in said[1]
    assert 'separation = "24us"' in host.to_toml()
    assert host.check().all_guaranteed


def test_turns_of_one_length_are_round_robin() -> None:
    tasks = [task("a", 1, 2, 3, PJdEventModel(20)), task("b", 1, 2, 3, PJdEventModel(20))]
    host = punctual.from_pycpa(system(resource("R", RoundRobinScheduler(), *tasks)))
    assert 'slice = "3us"' in host.to_toml() and host.simulate().missed == 0


@pytest.mark.parametrize(
    ("scheduler", "given", "said"),
    [
        (TDMAScheduler(), task("t", 1, 1, 1, PJdEventModel(9)), "resource R: no policy is TDMAScheduler"),
        (SPPScheduler(), task("t", 1, 1, None, PJdEventModel(9)), "task t: its scheduling_parameter"),
        (SPPScheduler(), task("t", 1, 1, 1, None), "task t has no event model: analyze_system"),
        (SPPScheduler(), task("t", 1, 1, 1, PJdEventModel(9, J=9)), "task t: two of its events can come"),
        (RoundRobinScheduler(), task("t", 1, 1, None, PJdEventModel(9)), "resource R: round robin has one"),
    ],
)
def test_what_a_host_cannot_say_is_refused_by_name(scheduler: object, given: Named, said: str) -> None:
    with pytest.raises(PunctualError, match=said):
        punctual.from_pycpa(system(resource("R", scheduler, given)))


def test_times_need_a_unit_that_fits() -> None:
    fraction = system(resource("R", SPPScheduler(), task("t", 1, 1, 1, PJdEventModel(20))))
    next(iter(next(iter(fraction.resources)).tasks)).wcet = 0.5
    with pytest.raises(PunctualError, match="0.5 is no whole number of ns: choose a smaller unit"):
        punctual.from_pycpa(fraction, unit="ns")
    with pytest.raises(ValueError, match="expected one of ns, us, ms, s"):
        punctual.from_pycpa(fraction, unit="min")
    with pytest.raises(PunctualError, match="no resource"):
        punctual.from_pycpa(system())
