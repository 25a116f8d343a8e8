"""Hosts, results and their tables."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as xml
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import punctual
from punctual import Host, HostFileError, PunctualError


def test_errors_have_places_and_a_caret(tmp_path: Path, small: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(small.replace("budget", "bugdet"))
    with pytest.raises(HostFileError) as caught:
        Host.from_file(path)
    error = caught.value
    assert isinstance(error, ValueError) and isinstance(error, PunctualError)
    wrong = next(record for record in error.records if record.nearest == "budget")
    assert (wrong.file, wrong.option, wrong.text) == (str(path), None, "bugdet")
    assert path.read_text().splitlines()[wrong.line - 1][wrong.column - 1 :].startswith("bugdet")
    assert "^^^^^^" in str(error) and "did you mean `budget`?" in str(error)


def test_errors_of_keywords_name_the_option(small: str) -> None:
    with pytest.raises(HostFileError) as caught:
        Host.from_toml(small, set=["domain.vm.budget=30ms"])
    assert caught.value.records[0].option == "--set"
    with pytest.raises(HostFileError, match="domain.nobody"):
        Host.from_toml(small).replace(set=["domain.nobody.budget=1ms"])
    with pytest.raises(ValueError, match="overheads: .*xen-4.0"):
        Host.from_toml(small, overheads="/nowhere")


def test_files_that_cannot_be_read_raise_what_python_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Host.from_file(tmp_path / "missing.toml")
    assert caught.value.filename == str(tmp_path / "missing.toml")
    with pytest.raises(IsADirectoryError):
        Host.from_file(tmp_path)
    host = Host.from_toml("duration='1ms'\n[machine]\nprocessors=1\n[pool.p]\npolicy='edf'\n")
    with pytest.raises(FileNotFoundError):
        host.simulate().perfetto(tmp_path / "no" / "directory")
    with pytest.raises(HostFileError, match="UTF-8"):
        Host.from_toml(b"name = '\xff'")


def test_keywords_and_dicts_make_the_host_of_the_file(small: str) -> None:
    tables = {
        "duration": timedelta(milliseconds=200),
        "machine": {"processors": 1},
        "pool": {"p": {"policy": "deferrable"}},
        "domain": {
            "vm": {
                "budget": "3ms",
                "period": "10ms",
                "task": {
                    "fast": {"period": "20ms", "cost": "1ms"},
                    "slow": {"period": timedelta(milliseconds=40), "cost": "4ms"},
                },
            }
        },
    }
    host = Host.from_toml(small)
    assert punctual.build(**tables) == Host.from_dict(tables) == host
    assert punctual.build(name='a "b" \\c', **tables).name == 'a "b" \\c'
    with pytest.raises(HostFileError, match="control characters"):
        punctual.build(name="a\n\x7f", **tables)
    assert Host.from_toml(host.to_toml()) == host
    assert host != host.replace(seed=2) and host != "host"


def test_what_a_host_file_cannot_say_is_refused() -> None:
    for tables in [{"machine": {"processors": object()}}, {1: 2}, [], {"a": {2: 3}}, {"a": [b"x"]}]:
        with pytest.raises(TypeError):
            Host.from_dict(tables)  # type: ignore[arg-type]
    endless: dict[str, object] = {}
    endless["machine"] = endless
    within: list[object] = []
    within.append(within)
    for tables in [endless, {"machine": {"processors": within}}]:
        with pytest.raises(ValueError, match="contains itself"):
            Host.from_dict(tables)
    with pytest.raises(HostFileError):
        Host.from_dict({"machine": {"processors": float("nan")}})


def test_tables_reach_data_frames_without_loss(examples: Path) -> None:
    pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    results = Host.from_file(examples / "network.toml", duration="50ms").simulate(
        jobs=True, slices=True, packets=True
    )
    for table in [results.jobs, results.slices, results.packets, results.table("tasks")]:
        columns = table.to_dict()
        assert len(table) > 0 and table.shape == (len(table), len(table.columns))
        assert table.to_arrow().to_pydict() == columns
        assert pyarrow.schema(table).names == table.columns
        assert polars.DataFrame(table).to_dict(as_series=False) == columns
        assert table.to_polars().shape == table.shape
        frame = table.to_pandas()
        assert list(frame.columns) == table.columns
        for name, values in columns.items():
            assert [None if pandas.isna(value) else value for value in frame[name]] == values, name
        assert table[table.columns[0]] == columns[table.columns[0]]
    with pytest.raises(KeyError, match="columns: task, job"):
        results.jobs["nothing"]


def test_arrow_memory_outlives_the_table(small: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    expected = Host.from_toml(small).simulate(jobs=True).jobs.to_dict()
    column = pyarrow.table(Host.from_toml(small).simulate(jobs=True).jobs)
    assert column.to_pydict() == expected
    # A stream that nobody reads is released as well.
    for _ in range(100):
        Host.from_toml(small).simulate().jobs.__arrow_c_stream__()


def test_what_was_not_listed_is_listed_later(examples: Path) -> None:
    host = Host.from_file(examples / "network.toml", duration="50ms")
    now, later = host.simulate(jobs=True, slices=True, packets=True), host.simulate()
    assert now == later
    assert (now.jobs, now.slices, now.packets) == (later.jobs, later.slices, later.packets)
    with pytest.raises(PunctualError, match="blame=True"):
        later.blame
    assert len(host.simulate(blame=True).blame) > 0


def test_slices_account_for_the_processors(small: str) -> None:
    results = Host.from_toml(small).simulate()
    slices = results.slices.to_dict()
    ran = sum(
        end - begin
        for level, begin, end in zip(slices["level"], slices["begin_ns"], slices["end_ns"])
        if level == "processor"
    )
    assert ran == results.to_dict()["processors"][0]["busy_ns"] == 10 * 1_000_000 + 5 * 4_000_000


def test_a_host_with_a_network_stack_simulates_and_says_what_it_cannot(examples: Path) -> None:
    host = Host.from_file(examples / "kvm-host.toml", duration="20ms")
    results = host.simulate()
    assert results.to_dict()["flows"] and results.svg().startswith("<svg")
    for refused in [host.check, host.synthesize, lambda: host.tasks, lambda: results.jobs]:
        with pytest.raises(PunctualError, match="host_stack"):
            refused()
    with pytest.raises(PunctualError, match="host_stack"):
        host.simulate(blame=True)


def test_pictures_and_pages(small: str, tmp_path: Path) -> None:
    results = Host.from_toml(small).simulate()
    picture = xml.fromstring(results.svg(begin="0ms", end="40ms"))
    bars = [bar for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(bars) > 5
    xml.fromstring(results._repr_svg_())
    assert (
        "<table>" in results.table("tasks")._repr_html_()
        and "<table>" in Host.from_toml(small).check()._repr_html_()
    )
    assert "srcdoc" in results.report()._repr_html_()
    with pytest.raises(ValueError, match="begin: expected"):
        results.svg(begin="soon")
    with pytest.raises(PunctualError, match="no timeline"):
        results.svg(begin="5s")


def test_generated_sets_are_those_of_the_host_file() -> None:
    tasks = punctual.generate("uunifast", seed=3, tasks=5, utilization="70%")
    assert len(tasks) == 5 and tasks == punctual.generate("uunifast", seed=3, tasks=5, utilization="70%")
    assert tasks != punctual.generate("uunifast", seed=4, tasks=5, utilization="70%")
    share = sum(int(task["cost"][:-2]) / int(task["period"][:-2]) for task in tasks.values())
    assert share == pytest.approx(0.7, abs=1e-6)
    vm = {"budget": "9ms", "period": "10ms", "task": tasks}
    host = punctual.build(machine={"processors": 1}, pool={"p": {"policy": "edf"}}, domain={"vm": vm})
    assert host.tasks["cost_ns"] == [int(task["cost"][:-2]) for task in tasks.values()]
    with pytest.raises(HostFileError, match="did you mean `uunifast`"):
        punctual.generate("uunifats", seed=1, tasks=5)


def test_a_sweep_is_its_simulations(small: str) -> None:
    host = Host.from_toml(small)
    grid = {"domain.vm.budget": ["1ms", "3ms"], "seed": [1, 2]}
    points = punctual.sweep(host, grid, policy=["deferrable", "periodic"], check=True, threads=2)
    assert [tuple(point[key] for key in (*grid, "policy")) for point in points][:3] == [
        ("1ms", 1, "deferrable"),
        ("1ms", 1, "periodic"),
        ("1ms", 2, "deferrable"),
    ]
    for point in points:
        alone = host.replace(
            set=[f"domain.vm.budget={point['domain.vm.budget']}", f"seed={point['seed']}"],
            policy=point["policy"],
        )
        assert point["results"] == alone.simulate() and point["guarantees"] == alone.check()
    assert [point["results"].missed > 0 for point in points] == [True] * 4 + [False] * 4
    with pytest.raises(HostFileError):
        punctual.sweep(host, {"domain.vm.budget": ["1ms", "11ms"]})


def test_a_sweep_takes_values_of_python(small: str) -> None:
    host = Host.from_toml(small)
    grid = {"domain.vm.best_effort": [False], "domain.vm.budget": [timedelta(milliseconds=3)]}
    [point] = punctual.sweep(host, grid)
    assert point["domain.vm.budget"] == timedelta(milliseconds=3)
    assert point["results"] == host.replace(set=["domain.vm.budget=3ms"]).simulate()


def test_the_summary_counts_what_the_results_count(examples: Path) -> None:
    results = Host.from_file(examples / "five-vms.toml", policy="sedf", duration="1s").simulate()
    jobs = [pool["jobs"] for pool in results.to_dict()["pools"]]
    for name in ["released", "completed", "due", "missed"]:
        assert results.summary()[name] == sum(pool[name] for pool in jobs)
    assert results.missed == results.summary()["missed"]
    assert str(results).startswith(results.host.name)


def test_importing_needs_no_data_frames() -> None:
    code = (
        "import sys, punctual; print([m for m in ('pandas','polars','pyarrow','numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.replace("'", '"')) == []


def test_a_fleet_is_placed_as_on_the_command_line(examples: Path, command_line: Any) -> None:
    fleet = examples / "fleet.toml"
    plan = punctual.place(fleet)
    assert plan.to_dict() == command_line("place", str(fleet), "--json")
    assert plan.all_placed and plan == punctual.place(toml=fleet.read_text())
    assert plan.hosts_min <= plan.hosts_used == len(plan.hosts())
    assert all(host.check().all_guaranteed for host in plan.hosts().values())
    answer = command_line("place", str(fleet), "--what-if", "plc-2", "--json")
    assert punctual.what_if("plc-2", fleet) == answer


def test_a_fleet_that_is_wrong_is_refused_with_its_line() -> None:
    with pytest.raises(punctual.HostFileError) as refused:
        punctual.place(toml=SMALL_FLEET.replace("rtds", "rtsd"))
    assert refused.value.records[0].nearest == "rtds"
    with pytest.raises(TypeError):
        punctual.place()
    with pytest.raises(punctual.PunctualError, match="no VM"):
        punctual.what_if("nobody", toml=SMALL_FLEET)


SMALL_FLEET = """
[host.a]
machine = { processors = 1 }
pool.p = { policy = "rtds" }
[vm.b]
budget = "1ms"
period = "10ms"
"""


def test_a_task_set_has_the_utilizations_of_any_generator() -> None:
    utilizations = [0.5, 0.125, 1e-6, 1.0]
    tasks = punctual.task_set(utilizations, seed=3, periods="log-uni-long", deadlines="uni-constrained")
    again = punctual.task_set(iter(utilizations), seed=3, periods="log-uni-long", deadlines="uni-constrained")
    assert tasks == again
    for utilization, task in zip(utilizations, tasks.values(), strict=True):
        period, cost, deadline = (int(task[key].removesuffix("ns")) for key in ("period", "cost", "deadline"))
        assert abs(cost - utilization * period) <= 0.5
        assert cost <= deadline <= period
    for wrong, said in [([0.5, 1.1], "number 2 is 1.1"), ([float("nan")], "number 1 is NaN"), ([0], "is 0")]:
        with pytest.raises(ValueError, match=said):
            punctual.task_set(wrong, seed=1)
    with pytest.raises(ValueError, match="there are uni-short.*automotive"):
        punctual.task_set([0.5], seed=1, periods="short")
