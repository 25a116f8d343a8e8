"""Compares what `punctual report` exported, read by programs that others wrote, with the JSON results.

usage: files.py DIRECTORY
"""

import csv
import json
import math
import re
import sys
from pathlib import Path

import pyarrow.parquet
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

TABLES = [
    *("blame", "chains", "deliveries", "distributions", "disturbances", "domains", "enforcement", "flows"),
    *("host_processors", "networks", "pools", "processors", "runs", "tasks", "vcpus", "worst_jobs"),
]
problems = []


def check(condition, text):
    if not condition:
        problems.append(text)


def labels(results):
    """Results with the labels that the exported files give them: those of an array are called by policy."""
    return [*((f"policies {result['pools'][0]['policy']}", result) for result in results["policies"])] + [
        ("netback", results["netback"])
    ]


def tasks(results):
    for label, result in labels(results):
        for task in result["tasks"]:
            yield label, task["parent"], task["name"], task


def distributions(results):
    """Label, parent, name and metric of every distribution that the readers look at."""
    for label, parent, name, task in tasks(results):
        yield label, parent, name, "response", task["jobs"]["response"]
    for label, result in labels(results):
        for flow in result["flows"]:
            yield label, flow["network"], flow["name"], "latency", flow["latency"]
            for part in flow["segments"]:
                metric = "segment_" + part["segment"].replace("-", "_")
                yield label, flow["network"], flow["name"], metric, part["time"]


def tag(label, parent, name, metric):
    return re.sub(r"[\s,]", "_", f"{label}:{parent}/{name}:{metric}")


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
    with open(directory / "flows.csv", newline="") as file:
        rows = {(row["result"], row["network"], row["name"]): row for row in csv.DictReader(file)}
    for label, result in labels(results):
        for flow in result["flows"]:
            row, where = rows.pop((label, flow["network"], flow["name"])), f"CSV flow {label} {flow['name']}"
            check(int(row["delivered"]) == flow["packets"]["delivered"], f"{where}: delivered")
            check(int(row["latency_p99_ns"]) == flow["latency"]["p99_ns"], f"{where}: p99")
            means = {part["segment"]: part["time"]["mean_ns"] for part in flow["segments"]}
            found = {
                key.removeprefix("segment_").removesuffix("_mean_ns").replace("_", "-"): int(value)
                for key, value in row.items()
                if key.startswith("segment_") and key.endswith("_mean_ns") and value != "0"
            }
            check(found == {segment: mean for segment, mean in means.items() if mean}, f"{where}: {found}")
    check(not rows, f"CSV has flows that the results have not: {list(rows)}")


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
    buckets = {}
    for row in rows:
        if row["table"] == "distributions":
            key = (row["result"], row["parent"], row["name"], row["metric"])
            buckets.setdefault(key, []).append([row["bucket_ns"], row["value"]])
    for *key, distribution in distributions(results):
        found = buckets.get(tuple(key), [])
        check(found == distribution["buckets"], f"Parquet {key}: buckets")
    print(f"  Parquet: {table.num_rows} rows of {table.num_columns} columns")


def read_jobs(directory):
    """Jobs in Parquet are those in CSV."""
    table = pyarrow.parquet.read_table(directory / "jobs.parquet")
    for name, kind in [("start_ns", "uint64"), ("missed", "bool"), ("task", "string")]:
        check(str(table.schema.field(name).type) == kind, f"jobs: {table.schema}")

    def shown(value):
        return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)

    with open(directory / "jobs.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    rows = [{name: shown(value) for name, value in row.items()} for row in table.to_pylist()]
    check(rows == lines and len(rows) > 1_000, f"jobs: {len(rows)} rows of Parquet, {len(lines)} of CSV")
    print(f"  jobs: {len(rows)} rows of {table.num_columns} columns")


def read_hlog(path, results):
    reader = HistogramLogReader(str(path), HdrHistogram(1, 3_600_000_000_000, 2))
    histograms = {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        histograms[histogram.get_tag()] = histogram
    for *key, response in distributions(results):
        if response["count"] == 0:
            continue
        histogram = histograms[tag(*key)]
        check(histogram.get_total_count() == response["count"], f"log {key}: count")
        counts = [[low, histogram.get_count_at_value(low)] for low, _ in response["buckets"]]
        check(counts == response["buckets"], f"log {key}: buckets")
        for percentile, quantile in [(50, "p50_ns"), (99, "p99_ns"), (99.9, "p999_ns")]:
            rank = percentile * response["count"] / 100
            # The port rounds the rank to the nearest, the current HdrHistogram and we round it up.
            if math.floor(rank + 0.5) != math.ceil(rank):
                continue
            # Ours never exceed the exact maximum.
            theirs = min(histogram.get_value_at_percentile(percentile), response["max_ns"])
            check(theirs == response[quantile], f"log {key} {quantile}: {theirs}, {response[quantile]}")
    print(f"  HdrHistogram log: {len(histograms)} histograms")


def read_hgrm(directory, results):
    line = re.compile(r"^ *([0-9.]+) +([01]\.[0-9]{12}) +([0-9]+)(?: +([0-9.]+))?$")
    files = {path.stem: path.read_text().splitlines() for path in directory.glob("*.hgrm")}
    for *key, response in distributions(results):
        if response["count"] == 0:
            continue
        text = files[re.sub(r"[^A-Za-z0-9._-]", "-", tag(*key))]
        rows = [match.groups() for match in map(line.match, text) if match]
        where = f"hgrm {key}"
        check(len(rows) == len(text) - 5, f"{where}: {len(text) - 5 - len(rows)} lines are malformed")
        check(int(rows[-1][2]) == response["count"], f"{where}: total count")
        check(round(float(rows[-1][0]) * 1000) == response["max_ns"], f"{where}: maximum {rows[-1]}")
        quantiles = [float(row[1]) for row in rows]
        ascending = quantiles == sorted(quantiles) and quantiles[-1] == 1.0
        check(ascending, f"{where}: percentiles do not ascend to 1")
    print(f"  hgrm: {len(files)} files")


def main(directory):
    results = {name: json.loads((directory / f"{name}.json").read_text()) for name in ["policies", "netback"]}
    read_csv(directory / "csv", results)
    read_parquet(directory / "results.parquet", results)
    read_jobs(directory)
    read_hlog(directory / "results.hlog", results)
    read_hgrm(directory / "hgrm", results)
    for problem in problems:
        print(f"FAILED {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)


main(Path(sys.argv[1]))
