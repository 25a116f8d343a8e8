// Runs Perfetto's trace processor (WebAssembly, as the Perfetto UI ships it) as a child process:
// the bytes of its RPC protocol (protos/perfetto/trace_processor/trace_processor.proto,
// TraceProcessorRpcStream) come in on stdin and its replies leave on stdout.
//
// usage: node engine.js DIRECTORY     (with engine_bundle.js and trace_processor*.wasm)
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const directory = process.argv[2];
const log = (...words) => fs.writeSync(2, words.join(" ") + "\n");

// The engine is built for a web worker: it loads its WebAssembly with a synchronous request.
class FileRequest {
  open(_method, url) {
    this.file = path.join(directory, path.basename(url));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
}

// What a web worker has and this process has not (or, for `process`, the other way round).
const worker = {
  process: undefined,
  self: {},
  WorkerGlobalScope: class {},
  location: { href: "file:///engine_bundle.js" },
  XMLHttpRequest: FileRequest,
  console: { log, warn: log, error: log },
};
worker.self.location = worker.location;

const bundle = fs.readFileSync(path.join(directory, "engine_bundle.js"), "utf8");
vm.compileFunction(bundle, Object.keys(worker))(...Object.values(worker));

const port = {
  postMessage(reply) {
    for (let sent = 0; sent < reply.length; ) sent += fs.writeSync(1, reply, sent);
  },
};
worker.self.onmessage({ data: port });
// The engine starts in promises: the first request waits until they have run.
setImmediate(() => process.stdin.on("data", (bytes) => port.onmessage({ data: new Uint8Array(bytes) })));
