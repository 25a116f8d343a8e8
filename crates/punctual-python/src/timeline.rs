//! What happened, as pictures and traces. The simulation is repeated for each: the same host gives the same
//! events.

use std::io::{self, Write};

use punctual_model::AnyHost;
use punctual_model::file;
use punctual_report::timeline::{self, Reader, Timeline, Window};
use punctual_report::trace::{PerfettoWriter, StackWriter};
use punctual_sched::{Duration, Instant};
use punctual_sim::Tracer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::signals::Signals;

/// Reads an interval of what happens on the host.
pub(crate) fn read(
    py: Python<'_>,
    host: &AnyHost,
    begin: Option<&str>,
    end: Option<&str>,
    items: u32,
) -> PyResult<Timeline> {
    let time = |key: &str, text: &str| match file::parse_duration(text) {
        Ok(time) => Ok(time.as_ns()),
        Err(why) => Err(PyValueError::new_err(format!("{key}: expected {why}"))),
    };
    let is_chosen = begin.is_some() || end.is_some();
    let window = Window {
        from_ns: begin.map_or(Ok(0), |text| time("begin", text))?,
        until_ns: end.map_or(Ok(u64::MAX), |text| time("end", text))?,
        items_max: items as usize,
    };
    let reader = timeline::read(window, is_chosen, |reader: &mut Reader| write(py, host, reader))?;
    reader.finish().map_err(|e| error::punctual(py, &format!("no timeline: {e}")))
}

/// Writes the trace to a file.
pub(crate) fn write_perfetto(py: Python<'_>, host: &AnyHost, path: &Bound<'_, PyAny>) -> PyResult<()> {
    let file = py.import("builtins")?.call_method1("open", (path, "wb"))?;
    let mut bytes = Chunks { file: file.clone().unbind(), held: Vec::new(), failed: None };
    let written = write(py, host, &mut bytes);
    let flushed = bytes.flush();
    let failed = bytes.failed.take();
    file.call_method0("close")?;
    // What Python said of the file says more than what the writer made of it.
    failed.map_or(Ok(()), Err)?;
    written?;
    Ok(flushed?)
}

/// Bytes on their way to a file of Python.
struct Chunks {
    file: Py<PyAny>,
    held: Vec<u8>,
    failed: Option<PyErr>,
}

/// Bytes handed over at once.
const CHUNK: usize = 1 << 20;

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= CHUNK { self.flush().map(|()| bytes.len()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let held = std::mem::take(&mut self.held);
        let written = Python::attach(|py| self.file.call_method1(py, "write", (held.as_slice(),)).map(drop));
        written.map_err(|error| {
            self.failed = Some(error);
            io::Error::other("the file cannot be written")
        })
    }
}

/// Simulates the host and writes its trace.
fn write(py: Python<'_>, host: &AnyHost, out: &mut (impl Write + Send)) -> PyResult<()> {
    let mut signals = Signals::new();
    let end = Instant::ZERO + Duration::from_ns(host.duration().as_ns());
    let written = py.detach(|| -> Result<io::Result<()>, punctual_sim::Error> {
        match host {
            AnyHost::Pools(host) => {
                let mut writer = PerfettoWriter::new(host, out);
                punctual_sim::simulate_observed(host, (&mut signals, Tracer::new(host, &mut writer)))?;
                Ok(writer.finish(end).map(drop))
            }
            AnyHost::Stack(stack) => {
                let mut writer = StackWriter::new(stack, out);
                punctual_host_stack_sim::simulate_traced(stack, &mut writer)
                    .map_err(|e| punctual_sim::Error::Violation(e.0))?;
                Ok(writer.finish(end).map(drop))
            }
        }
    });
    signals.check()?;
    Ok(written.map_err(|e| error::simulation(py, &e))??)
}
