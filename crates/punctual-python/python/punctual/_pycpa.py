"""Systems of pyCPA as hosts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from punctual._errors import PunctualError
from punctual._punctual import Host

# pyCPA's times have no unit.
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

# The schedulers that a pool can be, by their classes in pycpa.schedulers.
_FIXED_PRIORITY = "SPPScheduler"
_ROUND_ROBIN = "RoundRobinScheduler"

# The policy of the latter.
_ROUND = "round-robin"


def from_pycpa(system: Any, *, unit: str = "us") -> Host:
    """A host from a `pycpa.model.System`: each resource is a processor with a pool of its own.

    `unit` is what a time of 1 in the system is: ns, us, ms or s. What a host cannot say becomes something
    that asks for at least as much, with a warning, or is a `PunctualError` that names it. Tasks that others
    activate need the event model that `pycpa.analysis.analyze_system` gives them.
    """
    if unit not in _NS:
        raise ValueError(f"unit: expected one of {', '.join(_NS)}, got {unit!r}")
    return _System(system, _NS[unit]).host()


class _System:
    def __init__(self, system: Any, unit_ns: int) -> None:
        self.system, self.unit_ns = system, unit_ns
        self.names: set[str] = set()
        # An attribute of pyCPA that has no method to read it.
        constraints = getattr(system, "constraints", None)
        self.deadlines: dict[Any, Any] = getattr(constraints, "_wcrt_constraints", {})

    def host(self) -> Host:
        resources = sorted(self.system.resources, key=lambda resource: str(resource.name))
        if not resources:
            raise PunctualError("the system has no resource")
        pools = {}
        for processor, resource in enumerate(resources):
            pools[self.name_of(resource)] = {"processors": [processor], **self.pool(resource)}
        if self.system.paths:
            names = ", ".join(sorted(str(path.name) for path in self.system.paths))
            _warn(f"paths are left out ({names}): their tasks have deadlines of their own")
        if self.system.junctions:
            _warn("junctions are left out: what they activate has the event model of its task")
        name = str(self.system.name or "pyCPA")
        return Host.from_dict({"name": name, "machine": {"processors": len(resources)}, "pool": pools}, name)

    def pool(self, resource: Any) -> dict[str, object]:
        tasks = sorted(resource.tasks, key=lambda task: str(task.name))
        kind = type(resource.scheduler).__name__
        if kind == _FIXED_PRIORITY:
            ranks = self.ranks(resource, tasks)
            tables = {self.name_of(task): {**self.task(task), "priority": ranks[task]} for task in tasks}
            return {"policy": "fixed-priority", "task": tables}
        if kind == _ROUND_ROBIN:
            slots = {getattr(task, "scheduling_parameter", None) for task in tasks}
            if len(slots) != 1 or None in slots:
                text = f"resource {resource.name}: round robin has one length of turns for all tasks"
                raise PunctualError(text)
            tables = {self.name_of(task): self.task(task) for task in tasks}
            return {"policy": _ROUND, _ROUND: {"slice": self.time(slots.pop())}, "task": tables}
        raise PunctualError(
            f"resource {resource.name}: no policy is {kind}; there are {_FIXED_PRIORITY} and {_ROUND_ROBIN}"
        )

    def ranks(self, resource: Any, tasks: list[Any]) -> dict[Any, int]:
        """Ranks from 1, the most urgent, as the resource's comparison orders the tasks."""
        comes_first: Callable[[Any, Any], bool] = resource.scheduler.priority_cmp
        for task in tasks:
            if getattr(task, "scheduling_parameter", None) is None:
                raise PunctualError(f"task {task.name}: its scheduling_parameter, the priority, is missing")
        ahead = {
            task: sum(
                bool(comes_first(other.scheduling_parameter, task.scheduling_parameter))
                and not comes_first(task.scheduling_parameter, other.scheduling_parameter)
                for other in tasks
            )
            for task in tasks
        }
        if len(set(ahead.values())) < len(tasks):
            _warn(f"resource {resource.name}: tasks of equal priority run in the order of their release")
        return {task: rank + 1 for task, rank in ahead.items()}

    def task(self, task: Any) -> dict[str, object]:
        model = task.in_event_model
        if model is None:
            raise PunctualError(
                f"task {task.name} has no event model: analyze_system gives one to tasks that others activate"
            )
        cost: object = self.time(task.wcet)
        if task.bcet != task.wcet:
            # A job takes some time.
            least = self.time(task.bcet) if task.bcet > 0 else "1ns"
            cost = {"min": least, "max": self.time(task.wcet)}
        release = self.release(task, model)
        deadline = self.deadlines.get(task)
        if deadline is None:
            return {**release, "cost": cost}
        return {**release, "cost": cost, "deadline": self.time(deadline)}

    def release(self, task: Any, model: Any) -> dict[str, object]:
        is_periodic = type(model).__name__ == "PJdEventModel" and not model.J and task.prev_task is None
        if is_periodic:
            offset = getattr(model, "phi", 0)
            return {"period": self.time(model.P), **({"offset": self.time(offset)} if offset else {})}
        least = model.delta_min(2)
        if least <= 0:
            text = f"task {task.name}: two of its events can come at once; expected a least distance"
            raise PunctualError(text)
        _warn(f"task {task.name}: its events may always come as near as {least}, not only at first")
        return {"separation": self.time(least)}

    def time(self, value: Any) -> str:
        ns = Fraction(value) * self.unit_ns
        if ns.denominator != 1:
            raise PunctualError(f"a time of {value} is no whole number of ns: choose a smaller unit")
        return f"{ns.numerator}ns"

    def name_of(self, thing: Any) -> str:
        """A name as host files have them, unlike all before."""
        base = re.sub(r"[^A-Za-z0-9_-]", "_", str(thing.name)) or "unnamed"
        name, number = base, 2
        while name in self.names:
            name, number = f"{base}-{number}", number + 1
        self.names.add(name)
        return name


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)
