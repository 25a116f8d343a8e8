"""The package and the command line say the same of the same hosts."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from punctual import Host

POOLS = ["misbehaving", "five-vms", "mixed-pools", "smp-guest", "containers", "network", "best-effort"]
SHORT = ["--duration", "300ms"]


@pytest.mark.parametrize("name", [*POOLS, "kvm-host"])
def test_a_simulation_has_the_bytes_of_the_command_line(name: str, examples: Path) -> None:
    path = examples / f"{name}.toml"
    done = subprocess.run(
        [os.environ["PUNCTUAL"], "sim", path, "--json", *SHORT], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert Host.from_file(path, duration="300ms").simulate().to_json() == done.stdout


@pytest.mark.parametrize("name", POOLS)
def test_a_check_has_the_answers_of_the_command_line(name: str, examples: Path, command_line: Any) -> None:
    path = examples / f"{name}.toml"
    guarantees = Host.from_file(path).check()
    assert guarantees.to_dict() == command_line("check", str(path), "--json")
    again = Host.from_file(path).check(enforced_every="1ms").to_dict()
    assert again == command_line("check", str(path), "--json", "--enforced-every", "1ms")


def test_changes_are_those_of_the_command_line(examples: Path, command_line: Any) -> None:
    path = examples / "five-vms.toml"
    changed = Host.from_file(
        path, set=["domain.*.generate.load=90%"], seed=7, duration="400ms", policy="rtds", overheads="xen-4.0"
    )
    options = "--set domain.*.generate.load=90% --seed 7 --duration 400ms --policy rtds --overheads xen-4.0"
    assert changed.simulate(blame=True).to_dict() == command_line(
        "sim", str(path), "--json", "--blame", *options.split()
    )
    step_by_step = Host.from_file(path, set=["domain.*.generate.load=90%"]).replace(seed=7, policy="edf")
    assert step_by_step.replace(policy="rtds", duration="400ms", overheads="xen-4.0") == changed


@pytest.mark.parametrize("periods", ["given", "free"])
def test_budgets_are_those_of_the_command_line(periods: str, examples: Path, command_line: Any) -> None:
    path = examples / "five-vms.toml"
    found = Host.from_file(path).synthesize(periods=periods)
    options = ["--periods", periods]
    assert found.to_dict() == command_line("synthesize", str(path), "--json", *options)
    printed = subprocess.run(
        [os.environ["PUNCTUAL"], "synthesize", path, "-o", "-", *options], capture_output=True, text=True
    )
    assert found.found and found.toml == printed.stdout
    assert found.host is not None and found.host.check().all_guaranteed


def test_no_budgets_are_no_error(small: str, tmp_path: Path, command_line: Any) -> None:
    text = small.replace('cost = "4ms"', 'cost = "39ms"')
    (tmp_path / "host.toml").write_text(text)
    found = Host.from_toml(text).synthesize()
    assert not found.found and found.host is None and found.toml is None
    assert found.to_dict() == command_line("synthesize", str(tmp_path / "host.toml"), "--json")


def test_jobs_are_the_rows_of_the_command_line(examples: Path, tmp_path: Path) -> None:
    path, rows = examples / "five-vms.toml", tmp_path / "jobs.csv"
    subprocess.run(
        [os.environ["PUNCTUAL"], "sim", path, "--jobs", rows, *SHORT], check=True, capture_output=True
    )
    jobs = Host.from_file(path, duration="300ms").simulate(jobs=True).jobs
    with rows.open() as file:
        expected = list(csv.DictReader(file))
    assert len(jobs) == len(expected) > 30
    shown = {
        name: ["" if value is None else str(value) for value in column]
        for name, column in jobs.to_dict().items()
    }
    shown["missed"] = [value.lower() for value in shown["missed"]]
    for name, column in shown.items():
        assert column == [row[name] for row in expected], name


def test_a_trace_and_a_report_are_those_of_the_command_line(examples: Path, tmp_path: Path) -> None:
    path = examples / "network.toml"
    written = {kind: tmp_path / f"by-command.{kind}" for kind in ("pftrace", "html")}
    command = [os.environ["PUNCTUAL"], "sim", path, "--duration", "30ms", "--trace", written["pftrace"]]
    subprocess.run([*command, "--report", written["html"]], check=True, capture_output=True)
    results = Host.from_file(path, duration="30ms").simulate()
    results.perfetto(tmp_path / "own.pftrace")
    assert (tmp_path / "own.pftrace").read_bytes() == written["pftrace"].read_bytes()
    report = results.report(tmp_path / "own.html")
    own = (tmp_path / "own.html").read_text()
    assert own == report.html
    # The command line calls the column after the file, the package after the host.
    assert own.replace(results.host.name, "NAME") != own
    page = written["html"].read_text()
    assert own.count("<tr") == page.count("<tr") and len(own) == pytest.approx(len(page), rel=0.05)


def test_tables_are_those_of_the_command_line(examples: Path, tmp_path: Path) -> None:
    path = examples / "five-vms.toml"
    results = Host.from_file(path, duration="300ms").simulate(blame=True)
    (tmp_path / "five.json").write_text(results.to_json())
    command = [os.environ["PUNCTUAL"], "report", tmp_path / "five.json", "--csv", tmp_path / "tables"]
    subprocess.run(command, check=True, capture_output=True)
    for name in results.tables:
        with (tmp_path / "tables" / f"{name}.csv").open() as file:
            expected = list(csv.DictReader(file))
        table = results.table(name).to_dict()
        for column, values in table.items():
            if column != "result":
                shown = ["" if value is None else str(value) for value in values]
                assert shown == [row[column] for row in expected], (name, column)
