"""Reads what `punctual report` exported with readers that others wrote, and compares it with the JSON results.

usage: files.py DIRECTORY
"""

import csv
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

TABLES = ["distributions", "domains", "pools", "processors", "runs", "tasks", "vcpus"]
problems = []


def check(condition, text):
    if not condition:
        problems.append(text)


def tasks(results):
    """Every task with its label, as the exported files call them."""
    for result in results:
        label = result["pools"][0]["policy"]
        for task in result["tasks"]:
            yield label, task["parent"], task["name"], task


def read_csv(directory, results):
    names = sorted(path.stem for path in directory.glob("*.csv"))
    check(names == TABLES, f"CSV tables: {names}")
    with open(directory / "tasks.csv", newline="") as file:
        rows = {(row["result"], row["parent"], row["name"]): row for row in csv.DictReader(file)}
    for *key, task in tasks(results):
        row, jobs = rows.pop(tuple(key)), task["jobs"]
        for metric in ["released", "completed", "due", "missed"]:
            check(int(row[metric]) == jobs[metric], f"CSV {key} {metric}: {row[metric]}")
        check(int(row["response_p99_ns"]) == jobs["response"]["p99_ns"], f"CSV {key}: p99")
        check(int(row["cpu_time_ns"]) == task["cpu_time_ns"], f"CSV {key}: processor time")
    check(not rows, f"CSV has tasks that the results have not: {list(rows)}")


def read_parquet(path, results):
    table = pyarrow.parquet.read_table(path)
    check(str(table.schema.field("value").type) == "uint64", f"Parquet: {table.schema}")
    rows = table.to_pylist()
    numbers = {
        (row["result"], row["parent"], row["name"], row["metric"]): row["value"]
        for row in rows
        if row["table"] == "tasks"
    }
    for label, parent, name, task in tasks(results):
        for metric in ["released", "completed", "due", "missed"]:
            found = numbers[label, parent, name, metric]
            check(found == task["jobs"][metric], f"Parquet {label} {parent}/{name} {metric}: {found}")
        buckets = [
            [row["bucket_ns"], row["value"]]
            for row in rows
            if row["table"] == "distributions"
            and (row["result"], row["parent"], row["name"], row["metric"]) == (label, parent, name, "response")
        ]
        check(buckets == task["jobs"]["response"]["buckets"], f"Parquet {label} {parent}/{name}: buckets")
    print(f"  Parquet: {table.num_rows} rows of {table.num_columns} columns")


def read_hlog(path, results):
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 2))
    histograms = {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        histograms[histogram.get_tag()] = histogram
    for label, parent, name, task in tasks(results):
        response = task["jobs"]["response"]
        if response["count"] == 0:
            continue
        histogram = histograms[f"{label}:{parent}/{name}:response"]
        check(histogram.get_total_count() == response["count"], f"log {label} {parent}/{name}: count")
        for percentile, key in [(50, "p50_ns"), (99, "p99_ns"), (99.9, "p999_ns")]:
            # Ours never exceed the exact maximum.
            theirs = min(histogram.get_value_at_percentile(percentile), response["max_ns"])
            check(theirs == response[key], f"log {label} {parent}/{name} {key}: {theirs}, {response[key]}")
    print(f"  HdrHistogram log: {len(histograms)} histograms")


def read_hgrm(directory, results):
    line = re.compile(r"^ *([0-9.]+) +([01]\.[0-9]{12}) +([0-9]+)(?: +([0-9.]+))?$")
    files = {path.stem: path.read_text().splitlines() for path in directory.glob("*.hgrm")}
    for label, parent, name, task in tasks(results):
        response = task["jobs"]["response"]
        if response["count"] == 0:
            continue
        text = files[f"{label}-{parent}-{name}-response"]
        rows = [match.groups() for match in map(line.match, text) if match]
        where = f"hgrm {label} {parent}/{name}"
        check(len(rows) == len(text) - 5, f"{where}: {len(text) - 5 - len(rows)} lines are malformed")
        check(int(rows[-1][2]) == response["count"], f"{where}: total count")
        check(round(float(rows[-1][0]) * 1000) == response["max_ns"], f"{where}: maximum {rows[-1]}")
        quantiles = [float(row[1]) for row in rows]
        check(quantiles == sorted(quantiles) and quantiles[-1] == 1.0, f"{where}: percentiles do not ascend to 1")
    print(f"  hgrm: {len(files)} files")


def main(directory):
    results = json.loads((directory / "policies.json").read_text())
    read_csv(directory / "csv", results)
    read_parquet(directory / "results.parquet", results)
    read_hlog(directory / "results.hlog", results)
    read_hgrm(directory / "hgrm", results)
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


main(Path(sys.argv[1]))
