//! Tests of the checks on made-up trees of files that stand for machines.

mod interrupts;
mod kernel;
mod processors;
mod real_time;
mod report;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A tree of files, examined as a machine's root.
struct Tree(TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Tree(TempDir::new().expect("a directory"));
        files.iter().for_each(|(path, text)| tree.set(path, text));
        tree
    }

    fn set(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    fn with(self, files: &[(&str, &str)]) -> Self {
        files.iter().for_each(|(path, text)| self.set(path, text));
        self
    }

    fn without(self, path: &str) -> Self {
        let path = self.path(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("it was there");
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn thread(self, tid: u32, name: &str, policy: u32, priority: u32, cpus: &str) -> Self {
        let of_kernel = (name.contains('/') && !name.ends_with("/KVM")) || name == "watchdogd";
        let kernel = if of_kernel { 0x0020_0000 } else { 0 };
        let zeros = ["0"; 30].join(" ");
        let stat = format!("{tid} ({name}) S 2 0 0 0 -1 {kernel} {zeros} {priority} {policy} 0 0 0\n");
        let at = format!("/proc/{tid}/task/{tid}");
        self.set(&format!("{at}/stat"), &stat);
        self.set(&format!("{at}/status"), &format!("Name:\t{name}\nCpus_allowed_list:\t{cpus}\n"));
        self
    }

    fn findings(&self, pool: &str) -> Findings {
        let pool = (!pool.is_empty()).then(|| Cpus::parse_list(pool, 0).expect("processors"));
        examine(Root::new(self.0.path()), pool).expect("a machine")
    }

    fn find(&self, id: &str) -> Finding {
        self.findings("2-3")
            .findings
            .into_iter()
            .find(|finding| finding.id == id)
            .expect("a check of that name")
    }

    fn severity(&self, id: &str) -> Severity {
        self.find(id).severity
    }

    /// Severity and summary.
    fn says(&self, id: &str) -> String {
        let finding = self.find(id);
        format!("{}: {}", finding.severity.name(), finding.summary)
    }
}

/// The files of a desktop of four processors as a distribution leaves it, other than those of each processor.
const DESKTOP_FILES: &[(&str, &str)] = &[
    ("/sys/devices/system/cpu/online", "0-3\n"),
    ("/sys/devices/system/cpu/isolated", "\n"),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
    ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n"),
    ("/proc/version", "Linux version 6.1.0-18-amd64 (gcc 12) #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1\n"),
    ("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"),
    ("/boot/config-6.1.0-18-amd64", "# CONFIG_RT_GROUP_SCHED is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n"),
    ("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc msr\n"),
    ("/proc/self/status", "Name:\tpunctual\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n"),
    (
        "/proc/self/limits",
        "Max locked memory         8388608              8388608              bytes     \n\
         Max realtime priority     0                    0                    \n\
         Max realtime timeout      unlimited            unlimited            us        \n",
    ),
    ("/proc/self/cgroup", "0::/user.slice/session-1.scope\n"),
    (
        "/proc/self/mountinfo",
        "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    ),
    ("/proc/self/timerslack_ns", "50000\n"),
    ("/sys/fs/cgroup/user.slice/session-1.scope/cgroup.controllers", "memory pids\n"),
    ("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n"),
    ("/proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
    ("/proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ("/proc/sys/kernel/numa_balancing", "0\n"),
    ("/proc/sys/kernel/watchdog", "1\n"),
    ("/proc/sys/kernel/nmi_watchdog", "1\n"),
    ("/proc/sys/kernel/watchdog_cpumask", "0-3\n"),
    ("/proc/uptime", "1000.00 3000.00\n"),
    (
        "/proc/stat",
        "cpu  4000 0 0 4000 0 0 0 0 0 0\ncpu0 1000 0 0 1000 0 0 0 0 0 0\ncpu1 1000 0 0 1000 0 0 0 0 0 0\n\
         cpu2 1000 0 0 1000 0 0 0 0 0 0\ncpu3 1000 0 0 1000 0 0 0 0 0 0\n",
    ),
    (
        "/proc/interrupts",
        "           CPU0       CPU1       CPU2       CPU3\n\
         \x20 1:          9          0          0          0   IO-APIC   1-edge      i8042\n\
         \x2030:          0          0      50000        200  PCI-MSI 524288-edge      eth0\n\
         \x2031:          0          0          0          7  PCI-MSI 524289-edge      \n\
         LOC:    1000000    1000000    1000000    1000000   Local timer interrupts\n",
    ),
    ("/proc/irq/1/smp_affinity_list", "0-3\n"),
    ("/proc/irq/1/effective_affinity_list", "0\n"),
    ("/proc/irq/30/smp_affinity_list", "0-3\n"),
    ("/proc/irq/30/effective_affinity_list", "2\n"),
    ("/proc/irq/31/smp_affinity_list", "0-3\n"),
    ("/proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2  partition\t1000\t0\t-2\n"),
    ("/sys/class/net/lo/threaded", "0\n"),
    ("/sys/class/net/eth0/threaded", "0\n"),
    ("/sys/class/net/eth0/device/vendor", "0x8086\n"),
    ("/sys/devices/virtual/workqueue/cpumask", "f\n"),
    ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("/sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n"),
    ("/sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ("/sys/module/kvm_intel/parameters/nested", "Y\n"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
    ("/sys/kernel/mm/ksm/run", "0\n"),
    ("/sys/kernel/debug/sched/preempt", "none (voluntary) full\n"),
];

/// A desktop of four processors with everything as a distribution leaves it. The pools of the tests have
/// processors 2 and 3.
fn desktop() -> Tree {
    let tree = Tree::new(DESKTOP_FILES);
    for cpu in 0..4 {
        let directory = format!("/sys/devices/system/cpu/cpu{cpu}");
        let siblings =
            if cpu % 2 == 0 { format!("{cpu}-{}\n", cpu + 1) } else { format!("{}-{cpu}\n", cpu - 1) };
        tree.set(&format!("{directory}/topology/thread_siblings_list"), &siblings);
        tree.set(&format!("{directory}/cpufreq/scaling_governor"), "powersave\n");
        tree.set(&format!("{directory}/thermal_throttle/core_throttle_count"), "0\n");
        for (state, name, latency) in [(0, "POLL", 0), (1, "C1E", 10), (2, "C6", 133)] {
            let state = format!("{directory}/cpuidle/state{state}");
            tree.set(&format!("{state}/name"), name);
            tree.set(&format!("{state}/latency"), &latency.to_string());
            tree.set(&format!("{state}/disable"), "0\n");
        }
    }
    let tree = (0..4)
        .fold(tree, |tree, cpu| tree.thread(20 + cpu, &format!("ksoftirqd/{cpu}"), 0, 0, &cpu.to_string()));
    tree.thread(30, "migration/2", 1, 99, "2").thread(700, "bash", 0, 0, "0-3")
}
