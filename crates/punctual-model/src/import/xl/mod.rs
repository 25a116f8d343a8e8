//! What `xl` prints, and what it reads: cpupools, their schedulers' parameters, vCPUs and where they may run.
//!
//! Tables: `tools/xl/xl_sched.c`, `xl_vcpu.c`, `xl_cpupool.c` and `xl_info.c` of Xen 4.10 to 4.22, before
//! `tools/libxl/xl_cmdimpl.c` (4.5 to 4.9). Outputs may stand in any order, in one file or several, with the
//! commands and prompts between them; rows are read from the right, because a name may have spaces.
//! Configurations: xl.cfg(5) and xlcpupool.cfg(5), each in a file of its own.

mod assemble;
mod cfg;
mod config;
mod printed;
mod tables;

use assemble::assemble;
use printed::Printed;

use super::draft::HostDraft;
use super::input::Input;
use super::settings::Settings;

/// What a file is when nothing in it is understood.
const EXPECTED: &str = "expected what `xl vcpu-list`, `xl sched-rtds -v all`, `xl sched-credit`, `xl \
                        sched-credit2` or `xl cpupool-list -c` print, or domain configurations (xl.cfg)";

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut printed = Printed::default();
    let mut draft = HostDraft::default();
    for file in 0..input.files() {
        if cfg::is_configuration(input.text(file)) {
            config::read(input, file, &mut printed, &mut draft);
        } else {
            tables::read(input, file, &mut printed, &mut draft);
        }
    }
    if printed.domains.is_empty() && input.errors.count() == 0 {
        let place = input.place(0, 0..0);
        input.error(place, "no domain is listed", EXPECTED);
    }
    if input.errors.count() == 0 {
        let is_known = printed.pools.iter().any(|(_, pool)| pool.processors.is_some());
        let most = printed.domains.iter().map(|(_, d)| d.vcpus.len().max(d.online.unwrap_or(0))).max();
        draft.size(input, settings, most.filter(|_| !is_known));
    }
    assemble(input, printed, draft)
}
