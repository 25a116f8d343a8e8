"""Random task sets of the literature."""

from __future__ import annotations

from collections.abc import Iterable

from punctual._punctual import Host, _task_set

_Task = dict[str, str]


def generate(recipe: str, *, seed: int, **keys: object) -> dict[str, _Task]:
    """A random task set, as a host file's `generate` table with these keys draws it.

    The result is the `task` table of a VM: names, each with period, cost and deadline.
    """
    table = {"recipe": recipe, "seed": seed, **keys}
    # A whole processor: the share that the recipe rt-xen takes its load from.
    vm = {"budget": "1s", "period": "1s", "generate": table}
    pool = {"pool": {"policy": "deferrable"}}
    host = Host.from_dict({"machine": {"processors": 1}, "pool": pool, "domain": {"vm": vm}}, "generate")
    tasks = host.tasks.to_dict()
    columns = zip(tasks["name"], tasks["period_ns"], tasks["cost_ns"], tasks["deadline_ns"])
    return {
        str(name): {"period": f"{period}ns", "cost": f"{cost}ns", "deadline": f"{deadline}ns"}
        for name, period, cost, deadline in columns
    }


def task_set(
    utilizations: Iterable[float], *, seed: int, periods: str = "uni-moderate", deadlines: str = "implicit"
) -> dict[str, _Task]:
    """Tasks with these utilizations, which any generator may have drawn: parts of a processor, at most 1.

    Periods and deadlines come from the named distributions of a host file's `generate` table. Costs are
    rounded to whole nanoseconds. The result is the `task` table of a VM.
    """
    drawn = _task_set([float(one) for one in utilizations], seed, periods, deadlines)
    return {
        f"t{number}": {"period": f"{period}ns", "cost": f"{cost}ns", "deadline": f"{deadline}ns"}
        for number, (period, cost, deadline) in enumerate(drawn, start=1)
    }
