//! Where interrupts of devices go.

use std::fs;
use std::io;
use std::path::PathBuf;

use punctual_doctor::doctor::Cpus;
use punctual_linux::preflight::parse_cpu_list;

use super::Session;

/// The file with the processors to which an interrupt may go.
fn affinity_file(number: usize) -> PathBuf {
    format!("/proc/irq/{number}/smp_affinity_list").into()
}

/// The processors to which an interrupt may go, ascending.
///
/// # Errors
/// There is no such interrupt any more, or its file says something else.
pub fn interrupt_affinity(number: usize) -> io::Result<Vec<usize>> {
    let text = fs::read_to_string(affinity_file(number))?;
    parse_cpu_list(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of processors"))
}

impl Session {
    /// Sends an interrupt to these processors, until the end of the session at the latest.
    ///
    /// # Errors
    /// As `write(2)`: the kernel keeps some interrupts where they are (`EIO`).
    pub fn send_interrupt(&mut self, number: usize, processors: &[usize]) -> io::Result<()> {
        let list = processors.iter().copied().collect::<Cpus>().to_string();
        self.restoration.journal.set_file(&affinity_file(number), &list)
    }
}
