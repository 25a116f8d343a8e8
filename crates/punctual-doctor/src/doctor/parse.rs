//! Reads those files of `/proc` that hold more than one value. Sources: proc(5), cgroups(7), and in Linux
//! `Documentation/filesystems/proc.rst`, `Documentation/admin-guide/kernel-parameters.rst`.
//!
//! The crate `procfs-core` reads the same files, but rejects a whole file for one field that it misses. A
//! check wants one field, of a kernel that may be old or of a file that was copied in part.

/// An interrupt line of `/proc/interrupts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    /// Its number.
    pub irq: u32,
    /// How often each processor took it since boot: processor and count.
    pub counts: Vec<(usize, u64)>,
    /// The names of the drivers that have requested it; empty when none has.
    pub name: String,
}

/// The numbered lines of `/proc/interrupts`: those of devices. The architecture's own (`LOC`, `RES`, ...)
/// cannot be moved and are left out.
pub(super) fn interrupts(text: &str) -> Option<Vec<Interrupt>> {
    let mut lines = text.lines();
    let cpus: Vec<usize> = lines
        .next()?
        .split_whitespace()
        .map(|c| c.strip_prefix("CPU")?.parse().ok())
        .collect::<Option<_>>()?;
    Some(lines.filter_map(|line| interrupt(line, &cpus)).collect())
}

fn interrupt(line: &str, cpus: &[usize]) -> Option<Interrupt> {
    let (irq, rest) = line.split_once(':')?;
    let irq = irq.trim().parse().ok()?;
    let mut words = rest.split_whitespace();
    let counts = cpus.iter().map(|&cpu| Some((cpu, words.next()?.parse().ok()?))).collect::<Option<_>>()?;
    // Chip, number within the chip with its trigger, then the names of the handlers; the first two may be
    // missing.
    let name: Vec<&str> = words.collect();
    let is_trigger =
        |word: &&str| ["edge", "level", "fasteoi"].iter().any(|end| word.to_ascii_lowercase().ends_with(end));
    let name = match name.iter().position(is_trigger) {
        Some(trigger) => name[trigger + 1..].join(" "),
        None => name.last().copied().unwrap_or_default().to_owned(),
    };
    Some(Interrupt { irq, counts, name })
}

/// Times of one processor from `/proc/stat`, in ticks of the kernel's clock since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    /// The processor.
    pub cpu: usize,
    /// All of it, steal included. Guests' time is part of user time.
    pub total: u64,
    /// Time for which the hypervisor ran another machine although this one had work.
    pub steal: u64,
}

/// The processors of `/proc/stat`.
pub(super) fn processor_times(text: &str) -> Vec<ProcessorTime> {
    let line = |line: &str| {
        let (name, times) = line.split_once(' ')?;
        let cpu = name.strip_prefix("cpu")?.parse().ok()?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guest times come after and are counted in
        // user.
        let times: Vec<u64> =
            times.split_whitespace().take(8).map(|t| t.parse().ok()).collect::<Option<_>>()?;
        let total = times.iter().fold(0u64, |sum, &t| sum.saturating_add(t));
        Some(ProcessorTime { cpu, total, steal: *times.get(7)? })
    };
    text.lines().filter_map(line).collect()
}

/// The last value of a kernel parameter in a command line: `Some("")` for one without a value.
pub(super) fn parameter<'a>(cmdline: &'a str, name: &str) -> Option<&'a str> {
    words(cmdline)
        .take_while(|&word| word != "--")
        .filter_map(|word| {
            let word = word.trim_matches('"');
            match word.split_once('=') {
                Some((key, value)) => same_name(key, name).then(|| value.trim_matches('"')),
                None => same_name(word, name).then_some(""),
            }
        })
        .last()
}

/// Are the names the same to the kernel? It does not tell `-` from `_` in names of parameters.
fn same_name(a: &str, b: &str) -> bool {
    let fold = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(fold).eq(b.bytes().map(fold))
}

/// Words with white space between them; white space in double quotes does not separate words.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    })
    .filter(|word| !word.is_empty())
}

/// A field of `/proc/PID/status`.
pub(super) fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// A limit of a process (`getrlimit(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Unlimited,
    AtMost(u64),
}

/// The soft limit of a line of `/proc/PID/limits`.
pub(super) fn soft_limit(limits: &str, name: &str) -> Option<Limit> {
    let value = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?;
    if value == "unlimited" { Some(Limit::Unlimited) } else { value.parse().ok().map(Limit::AtMost) }
}

/// What matters of `/proc/PID/task/TID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadStat {
    /// The thread's id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// A thread of the kernel.
    pub kernel: bool,
    /// Real-time priority, 1 to 99; 0 for a thread that has none.
    pub rt_priority: u32,
    /// Scheduling policy as in `sched.h`: 0 other, 1 FIFO, 2 RR, 3 batch, 5 idle, 6 deadline, 7 ext.
    pub policy: u32,
}

impl ThreadStat {
    /// Is it above the fair class: FIFO, RR or deadline?
    pub(super) fn is_real_time(&self) -> bool {
        matches!(self.policy, 1 | 2 | 6)
    }
}

/// `PF_KTHREAD` of Linux' `include/linux/sched.h`.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Reads `/proc/PID/task/TID/stat`. A name may hold anything, brackets and line ends included.
pub(super) fn thread_stat(text: &str) -> Option<ThreadStat> {
    let (tid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    // The state is field 3 of proc(5).
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ThreadStat {
        tid: tid.parse().ok()?,
        name: name.into(),
        kernel: field(9)? & PF_KTHREAD != 0,
        rt_priority: field(40)?.try_into().ok()?,
        policy: field(41)?.try_into().ok()?,
    })
}

/// The path of a process in the hierarchy of a cgroup controller, from `/proc/PID/cgroup`; `""` is version 2.
pub(super) fn cgroup_path<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// A mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CgroupMount {
    /// The cgroup that is mounted, as a path from the hierarchy's root.
    pub root: String,
    /// The directory where it is mounted.
    pub point: String,
    /// Its own options, such as `rw,favordynmods`.
    pub options: String,
}

/// Where the hierarchy of a controller is mounted, from `/proc/PID/mountinfo`; `""` is version 2.
pub(super) fn cgroup_mount(mountinfo: &str, controller: &str) -> Option<CgroupMount> {
    mountinfo.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        let wanted = match controller {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && options.split(',').any(|option| option == controller),
        };
        let mut mount = mount.split(' ').skip(3);
        wanted.then_some(())?;
        Some(CgroupMount { root: mount.next()?.into(), point: mount.next()?.into(), options: options.into() })
    })
}

/// The value of a kernel option in a build configuration: `y`, `m`, a number or text; `n` for one that is not
/// set.
pub(super) fn config_option<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    config.lines().find_map(|line| match line.strip_prefix("# ") {
        Some(comment) => (comment.strip_suffix(" is not set")? == name).then_some("n"),
        None => line.strip_prefix(name)?.strip_prefix('='),
    })
}

/// Major and minor number of a kernel release: `6.18.44-fc` is 6.18.
pub(super) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The choice in force where a file lists all choices with brackets around one: `always [madvise] never`, or
/// with round ones: `none (full)`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| {
        let inside = |open, close| word.strip_prefix(open)?.strip_suffix(close);
        inside('[', ']').or_else(|| inside('(', ')'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERRUPTS: &str = "           CPU0       CPU2
  0:         44          0   IO-APIC   2-edge      timer
  8:          0          1  IR-IO-APIC    8-fasteoi   rtc0
 36:          0      75031 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 40:          7          8 GICv3  23 Level     arch_timer
 41:          3          4   IO-APIC  11-fasteoi   ehci_hcd:usb1, nouveau
NMI:          0          0   Non-maskable interrupts
ERR:          0
";

    #[test]
    fn interrupts_of_devices_are_read_with_their_names() {
        let read = interrupts(INTERRUPTS).expect("interrupts");
        assert_eq!(read.iter().map(|i| i.irq).collect::<Vec<_>>(), [0, 8, 36, 40, 41]);
        assert_eq!(read[2].counts, [(0, 0), (2, 75031)]);
        let names: Vec<_> = read.iter().map(|i| i.name.as_str()).collect();
        assert_eq!(names, ["timer", "rtc0", "virtio1-req.0", "arch_timer", "ehci_hcd:usb1, nouveau"]);
        assert_eq!(interrupts("nonsense\n"), None);
    }

    #[test]
    fn steal_is_the_eighth_time_of_a_processor() {
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3\nintr 5\n";
        assert_eq!(processor_times(stat), [ProcessorTime { cpu: 0, total: 36, steal: 8 }]);
    }

    #[test]
    fn the_last_value_of_a_kernel_parameter_counts_up_to_two_dashes() {
        let line = "ro isolcpus=1 nohz_full=2-3 isolcpus=domain,1-3 dyndbg=\"file a.c +p\" threadirqs -- \
                    preempt=none";
        assert_eq!(parameter(line, "isolcpus"), Some("domain,1-3"));
        assert_eq!(parameter(line, "nohz-full"), Some("2-3"));
        assert_eq!(parameter(line, "threadirqs"), Some(""));
        assert_eq!(parameter(line, "dyndbg"), Some("file a.c +p"));
        assert_eq!(parameter(line, "preempt"), None);
    }

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        let fields = |policy: u32| format!("S 1 1 0 0 -1 2129984 {} 95 {policy}", ["0"; 30].join(" "));
        let read = thread_stat(&format!("42 (a) (b) ) {}", fields(1))).expect("a thread");
        let expected =
            ThreadStat { tid: 42, name: "a) (b) ".into(), kernel: true, rt_priority: 95, policy: 1 };
        assert_eq!(read, expected);
        assert!(read.is_real_time());
        assert_eq!(thread_stat("42 (a) S 1"), None);
    }

    #[test]
    fn limits_and_status_are_read_by_name() {
        let limits = "Max locked memory         8388608    unlimited    bytes\n\
                      Max realtime priority     0    0\n\
                      Max realtime timeout      unlimited    unlimited    us\n";
        assert_eq!(soft_limit(limits, "Max locked memory"), Some(Limit::AtMost(8_388_608)));
        assert_eq!(soft_limit(limits, "Max realtime timeout"), Some(Limit::Unlimited));
        assert_eq!(soft_limit(limits, "Max open files"), None);
        assert_eq!(status_field("Name:\tcat\nCapEff:\t01ff\n", "CapEff"), Some("01ff"));
    }

    #[test]
    fn cgroups_are_found_in_both_versions() {
        let own = "3:cpu,cpuacct:/user/a:b\n2:cpuset:/\n0::/user.slice\n";
        assert_eq!(cgroup_path(own, "cpu"), Some("/user/a:b"));
        assert_eq!(cgroup_path(own, ""), Some("/user.slice"));
        assert_eq!(cgroup_path(own, "memory"), None);
        let mounts = "30 20 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      31 20 0:27 /a /sys/fs/cgroup/unified rw - cgroup2 none rw,nsdelegate\n";
        let mount = |controller| cgroup_mount(mounts, controller).map(|m| (m.root, m.point));
        assert_eq!(mount("cpu"), Some(("/".into(), "/sys/fs/cgroup/cpu".into())));
        assert_eq!(mount(""), Some(("/a".into(), "/sys/fs/cgroup/unified".into())));
        assert_eq!(mount("cpuset"), None);
    }

    #[test]
    fn configuration_version_and_choices_are_read() {
        let config = "CONFIG_HZ=250\n# CONFIG_RT_GROUP_SCHED is not set\nCONFIG_PREEMPT=y\n";
        assert_eq!(config_option(config, "CONFIG_RT_GROUP_SCHED"), Some("n"));
        assert_eq!(config_option(config, "CONFIG_PREEMPT"), Some("y"));
        assert_eq!(config_option(config, "CONFIG_PREEMPT_RT"), None);
        assert_eq!(kernel_version("6.18.44-fc-v669\n"), Some((6, 18)));
        assert_eq!(kernel_version("six"), None);
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("none voluntary (full) lazy"), Some("full"));
        assert_eq!(chosen("1"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_panic(text in "[ -~\n\t]{0,200}|(CPU[0-9] ?){0,3}\n( [0-9]{1,3}: \
                                                +[0-9]{0,22} [a-z-]{0,9}\n){0,5}|.{0,80}") {
            interrupts(&text);
            processor_times(&text);
            thread_stat(&text);
            kernel_version(&text);
            chosen(&text);
            for name in ["", "cpu", "isolcpus", "Max"] {
                parameter(&text, name);
                soft_limit(&text, name);
                status_field(&text, name);
                cgroup_path(&text, name);
                cgroup_mount(&text, name);
                config_option(&text, name);
            }
        }

        #[test]
        fn counts_are_read_back(
            counts in proptest::collection::vec(any::<u64>(), 1..9),
            irq in any::<u32>()
        ) {
            let head: String = (0..counts.len()).map(|cpu| format!(" CPU{cpu}")).collect();
            let row: String = counts.iter().map(|n| format!(" {n}")).collect();
            let read = interrupts(&format!("{head}\n{irq}:{row}  PCI-MSI 5-edge   eth0-rx \
                                            1\n")).expect("a table");
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[0].counts.iter().map(|&(_, n)| n).collect::<Vec<_>>(), counts);
            prop_assert_eq!(read[0].name.as_str(), "eth0-rx 1");
        }
    }
}
