"""What the stubs promise to users of mypy and pyright. This file is checked by both."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import punctual


def names(host: punctual.Host) -> list[str]:
    results: punctual.Results = host.simulate(jobs=True)
    missed: int = results.missed
    table: punctual.Table = results.table("tasks")
    found: punctual.Host | None = host.synthesize(periods="free").host
    guaranteed: bool = host.check().all_guaranteed
    plan: punctual.Plan = punctual.place("fleet.toml", method="exact")
    placed: dict[str, punctual.Host] = plan.hosts()
    report: punctual.Report = results.report()
    points: list[dict[str, object]] = punctual.sweep(host, {"seed": [1, 2]})
    printed: str = punctual.run(punctual.Grid(host, {"seed": range(3)}, policy=["edf"])).csv()
    return [*table.columns, report.html, str((missed, found, guaranteed, points, printed, placed))]


def wrong(host: punctual.Host) -> None:
    # Both report each of these; an unused `ignore` is an error, so it must.
    host.simulate(blame="yes")  # type: ignore[arg-type]
    host.synthesize(placement="anywhere")  # type: ignore[arg-type]
    host.replace(42)  # type: ignore[call-arg, arg-type]
    punctual.place("fleet.toml", method="fast")  # type: ignore[arg-type]
    host.name = "other"  # type: ignore[misc]


def of_error(error: punctual.HostFileError) -> tuple[int, str | None]:
    return error.records[0].line, error.records[0].nearest
