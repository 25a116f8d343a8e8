//! Finds the processes of virtual machine monitors, at little cost and without rights.
//!
//! `/proc/loadavg` ends with the id that the kernel gave last. While that does not change, no process and no
//! thread has started, and a look is that one read. Otherwise the ids since the last look are examined. A
//! process becomes a monitor when it executes the program, some time after it was forked: so each new id is
//! examined again a few times. All processes are examined every [`SCAN_INTERVAL`], for those that execute a
//! monitor later, when ids wrapped around, and when more ids were new than are examined again.
//!
//! Why not the kernel's process connector: it takes CAP_NET_ADMIN, which the service has no other use for,
//! and wakes the service for each process of the host.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_linux::os::proc::Reader;
use punctual_linux::vmm::{self, Monitor, VmProcess};

/// When a new id is examined again, since it was new. Between two of them a monitor waits to be seen.
const AGAIN: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_millis(700),
];
/// How often all processes are examined.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// New ids at most that are examined one by one; if there are more, all processes are.
const WALK_MAX: u32 = 2048;
/// New ids at most that are examined again; for the others all processes are, when the last of these is.
const YOUNG_COUNT_MAX: usize = 256;
/// Bytes of a command line that are read to see whether it is a monitor's.
const PROGRAM_BYTES: usize = 512;
/// Bytes of a monitor's command line that are read.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A process that is a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub process: u32,
    pub vm: VmProcess,
}

/// What a look saw.
#[derive(Debug, Default)]
pub struct Look {
    /// Monitors that were not known.
    pub found: Vec<Found>,
    /// Known ones that run another program: a monitor forks, and the child executes a helper.
    pub lost: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Young {
    id: u32,
    since: Instant,
    /// How often it was examined again.
    times: usize,
}

/// What is remembered between looks.
#[derive(Debug)]
pub struct Discovery {
    proc: PathBuf,
    loadavg: Option<Reader>,
    last: Option<u32>,
    young: Vec<Young>,
    next_scan: Instant,
    /// Are there vhost workers that are kernel threads of their own (before Linux 6.4)?
    has_vhost: bool,
    /// They, by the process that they serve.
    vhost: BTreeMap<u32, Vec<u32>>,
}

impl Discovery {
    /// For the `proc` directory (normally `/proc`). The first look examines all processes.
    pub fn new(proc: &Path) -> Discovery {
        let loadavg = Reader::open(&proc.join("loadavg").to_string_lossy()).ok();
        Discovery {
            proc: proc.to_owned(),
            loadavg,
            last: None,
            young: Vec::new(),
            next_scan: Instant::now(),
            has_vhost: release(proc).is_none_or(|release| release < (6, 4)),
            vhost: BTreeMap::new(),
        }
    }

    /// Looks for monitors that are not known.
    pub fn look(&mut self, now: Instant, is_known: impl Fn(u32) -> bool) -> Look {
        let mut look = Look::default();
        let (before, last) = (self.last, self.last_id());
        self.last = last.or(self.last);
        let new = match (before, last) {
            (Some(before), Some(last)) if before <= last && last - before <= WALK_MAX => {
                Some(before + 1..=last)
            }
            _ => None,
        };
        let is_due = now >= self.next_scan || new.is_none();
        // A scan does not examine again what has not executed its program yet: with no new ids known, some
        // processes may just have been forked. At the first look, too: VMs start while the service does.
        let mut is_complete = new.is_some() || last.is_none();
        for id in new.into_iter().flatten() {
            is_complete &= self.examine(id, now, &is_known, &mut look);
        }
        self.examine_young(now, &is_known, &mut look);
        if is_due {
            self.scan(now, &is_known, &mut look);
            self.next_scan = now + SCAN_INTERVAL;
        }
        if !is_complete {
            // Ids that are not examined again have executed their program by then.
            self.next_scan = self.next_scan.min(now + AGAIN[AGAIN.len() - 1]);
        }
        look
    }

    /// The vhost workers of a process that are kernel threads, as of the last scan.
    pub fn vhost(&self, process: u32) -> &[u32] {
        self.vhost.get(&process).map_or(&[], Vec::as_slice)
    }

    /// The id that the kernel gave last; `None` where it cannot be read.
    fn last_id(&self) -> Option<u32> {
        let mut buffer = [0; 128];
        parse_last_id(self.loadavg.as_ref()?.read(&mut buffer).ok()?)
    }

    /// Examines an id that is new; false when it is not examined again although it might have to be.
    fn examine(&mut self, id: u32, now: Instant, is_known: &impl Fn(u32) -> bool, look: &mut Look) -> bool {
        if is_known(id) {
            return true;
        }
        match self.program_of(id) {
            Program::Gone => return true,
            Program::Monitor(vm) => look.found.push(Found { process: id, vm }),
            Program::None | Program::Other => {}
        }
        let has_room = self.young.len() < YOUNG_COUNT_MAX;
        if has_room {
            self.young.push(Young { id, since: now, times: 0 });
        }
        has_room
    }

    fn examine_young(&mut self, now: Instant, is_known: &impl Fn(u32) -> bool, look: &mut Look) {
        let mut young = std::mem::take(&mut self.young);
        young.retain_mut(|one| {
            if one.since + AGAIN[one.times] > now {
                return true;
            }
            match self.program_of(one.id) {
                Program::Gone => return false,
                Program::Other if is_known(one.id) => {
                    look.lost.push(one.id);
                    return false;
                }
                Program::None | Program::Other => {}
                Program::Monitor(vm) if !is_known(one.id) => {
                    look.found.push(Found { process: one.id, vm });
                }
                Program::Monitor(_) => {}
            }
            let is_due = |again: &Duration| one.since + *again <= now;
            one.times = AGAIN.iter().take_while(|again| is_due(again)).count();
            one.times < AGAIN.len()
        });
        self.young = young;
    }

    /// Examines all processes.
    fn scan(&mut self, now: Instant, is_known: &impl Fn(u32) -> bool, look: &mut Look) {
        self.vhost.clear();
        for entry in fs::read_dir(&self.proc).into_iter().flatten().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if is_known(id) || look.found.iter().any(|found| found.process == id) {
                continue;
            }
            match self.program_of(id) {
                Program::Monitor(vm) => {
                    look.found.push(Found { process: id, vm });
                    // It may be about to execute a helper.
                    self.young.push(Young { id, since: now, times: 0 });
                }
                Program::None if self.has_vhost => {
                    if let Some(owner) = self.vhost_owner(id) {
                        self.vhost.entry(owner).or_default().push(id);
                    }
                }
                Program::None | Program::Gone | Program::Other => {}
            }
        }
    }

    /// The process that a kernel thread serves as a vhost worker.
    fn vhost_owner(&self, id: u32) -> Option<u32> {
        let name = fs::read_to_string(self.proc.join(format!("{id}/comm"))).ok()?;
        vmm::vhost_owner(name.trim_end())
    }

    /// What an id of a process or thread runs.
    fn program_of(&self, id: u32) -> Program {
        let path = self.proc.join(format!("{id}/cmdline"));
        let Ok(mut file) = File::open(path) else { return Program::Gone };
        // One read for the many that are no monitors.
        let mut line = vec![0; PROGRAM_BYTES];
        match file.read(&mut line) {
            Ok(0) => return Program::None,
            Err(_) => return Program::Gone,
            Ok(length) => line.truncate(length),
        }
        let program = line.split(|&byte| byte == 0).next().unwrap_or_default();
        if Monitor::of_program(program).is_none() {
            return Program::Other;
        }
        // What cannot be read any more has ended.
        if file.take(LINE_BYTES_MAX).read_to_end(&mut line).is_err() {
            return Program::Gone;
        }
        match VmProcess::parse(&line) {
            // A thread shows the command line of its process.
            Some(vm) if vmm::process_of(&self.proc, id).is_ok_and(|process| process == id) => {
                Program::Monitor(vm)
            }
            _ => Program::Gone,
        }
    }
}

enum Program {
    /// It has ended, or is a thread of a monitor.
    Gone,
    /// It has no command line: a thread of the kernel, or a process that executes a program just now.
    None,
    Other,
    Monitor(VmProcess),
}

/// Major and minor number of the kernel's release.
fn release(proc: &Path) -> Option<(u32, u32)> {
    let text = fs::read_to_string(proc.join("sys/kernel/osrelease")).ok()?;
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The last id in the text of `/proc/loadavg`.
fn parse_last_id(text: &str) -> Option<u32> {
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// The systemd unit in the text of `/proc/PID/cgroup`: the innermost service or scope.
pub fn unit_of(cgroup: &str) -> Option<String> {
    let path = |prefix: &str| cgroup.lines().find_map(|line| line.strip_prefix(prefix));
    let named = || cgroup.lines().find_map(|line| line.split_once(":name=systemd:").map(|(_, path)| path));
    let is_unit = |name: &&str| name.ends_with(".service") || name.ends_with(".scope");
    path("0::").filter(|path| *path != "/").or_else(named)?.rsplit('/').find(is_unit).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Proc(tempfile::TempDir);

    impl Proc {
        fn new() -> Proc {
            let proc = Proc(tempfile::tempdir().expect("a directory"));
            proc.last(100);
            proc
        }

        /// The last id is this.
        fn last(&self, id: u32) {
            // In place: the reader keeps the file open.
            fs::write(self.0.path().join("loadavg"), format!("0.00 0.01 0.05 1/80 {id}\n")).expect("written");
        }

        /// A process with this command line, or a thread of one.
        fn process(&self, id: u32, line: &str, process: u32) {
            let directory = self.0.path().join(id.to_string());
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("cmdline"), line.replace(' ', "\0")).expect("written");
            fs::write(directory.join("status"), format!("Tgid:\t{process}\n")).expect("written");
            fs::write(directory.join("comm"), "x\n").expect("written");
        }
    }

    /// One that looked twice: at the start of the service, and for what had just been forked then.
    fn settled(proc: &Proc, start: Instant) -> Discovery {
        let mut discovery = Discovery::new(proc.0.path());
        discovery.look(start - AGAIN[AGAIN.len() - 1], |_| false);
        discovery.look(start, |_| false);
        discovery
    }

    fn found(look: &Look) -> Vec<u32> {
        look.found.iter().map(|found| found.process).collect()
    }

    const QEMU: &str = "/usr/bin/qemu-system-x86_64 -name guest=a";

    #[test]
    fn new_processes_are_found_and_threads_are_not() {
        let proc = Proc::new();
        proc.process(50, QEMU, 50);
        proc.process(51, "sleep 1", 51);
        let mut discovery = Discovery::new(proc.0.path());
        let start = Instant::now();
        let none = |_| false;
        assert_eq!(found(&discovery.look(start, none)), [50], "those that run already");
        let known = |id| id == 50;
        assert_eq!(found(&discovery.look(start, known)), [] as [u32; 0]);
        proc.process(101, QEMU, 101);
        proc.process(102, QEMU, 101);
        assert_eq!(
            found(&discovery.look(start, known)),
            [] as [u32; 0],
            "the last id says that nothing started"
        );
        proc.last(102);
        assert_eq!(found(&discovery.look(start, known)), [101]);
    }

    #[test]
    fn a_process_that_executes_a_monitor_later_is_found_and_a_helper_is_lost() {
        let proc = Proc::new();
        let start = Instant::now();
        let mut discovery = settled(&proc, start);
        let at = |ms| start + Duration::from_millis(ms);
        proc.process(101, "libvirtd", 101);
        proc.last(101);
        proc.process(103, "", 103);
        proc.last(103);
        assert_eq!(found(&discovery.look(at(100), |_| false)), [] as [u32; 0]);
        proc.process(103, QEMU, 103);
        assert_eq!(found(&discovery.look(at(200), |_| false)), [103], "it was executing its program");
        fs::remove_dir_all(proc.0.path().join("103")).expect("removed");
        proc.process(101, QEMU, 101);
        assert_eq!(found(&discovery.look(at(399), |_| false)), [] as [u32; 0], "not due");
        assert_eq!(found(&discovery.look(at(400), |_| false)), [101], "300 ms after it was new");
        proc.process(101, "/usr/lib/qemu-bridge-helper", 101);
        let look = discovery.look(at(600), |id| id == 101);
        assert_eq!((found(&look), look.lost), (vec![], vec![101]));
        // Later than examined again: by the scan.
        proc.process(104, "sh", 104);
        proc.last(104);
        for ms in [600, 700, 900, 1100, 1300] {
            assert_eq!(found(&discovery.look(at(ms), |_| false)), [] as [u32; 0]);
        }
        assert!(discovery.young.is_empty(), "{:?}", discovery.young);
        proc.process(104, QEMU, 104);
        assert_eq!(found(&discovery.look(at(9900), |_| false)), [] as [u32; 0]);
        assert_eq!(found(&discovery.look(at(10_000), |id| id == 101)), [104]);
    }

    #[test]
    fn ids_that_wrap_around_and_many_at_once_are_scanned() {
        let proc = Proc::new();
        let mut discovery = Discovery::new(proc.0.path());
        let start = Instant::now();
        discovery.look(start, |_| false);
        proc.process(5, QEMU, 5);
        proc.last(6);
        assert_eq!(found(&discovery.look(start, |_| false)), [5]);
        proc.process(20_000, QEMU, 20_000);
        proc.last(30_000);
        assert_eq!(found(&discovery.look(start, |id| id == 5)), [20_000]);
    }

    #[test]
    fn a_monitor_that_starts_with_the_service_is_found_soon() {
        let proc = Proc::new();
        proc.process(99, "libvirtd", 99);
        let mut discovery = Discovery::new(proc.0.path());
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(found(&discovery.look(start, |_| false)), [] as [u32; 0]);
        // It had been forked, and executes the monitor after that look.
        proc.process(99, QEMU, 99);
        assert_eq!(found(&discovery.look(at(699), |_| false)), [] as [u32; 0]);
        assert_eq!(found(&discovery.look(at(700), |_| false)), [99]);
    }

    #[test]
    fn a_monitor_of_many_new_processes_is_found_soon_though_it_was_late() {
        let proc = Proc::new();
        let start = Instant::now();
        let mut discovery = settled(&proc, start);
        let at = |ms| start + Duration::from_millis(ms);
        // The last one has not executed its program when it is examined.
        let last = 101 + u32::try_from(YOUNG_COUNT_MAX).expect("few");
        (101..=last).for_each(|id| proc.process(id, "sh", id));
        proc.last(last);
        discovery.look(at(100), |_| false);
        proc.process(last, QEMU, last);
        assert_eq!(found(&discovery.look(at(799), |_| false)), [] as [u32; 0]);
        assert_eq!(found(&discovery.look(at(800), |_| false)), [last]);
        // The same, with a scan in the middle.
        let late = last + 1;
        proc.process(late, "sh", late);
        proc.last(late);
        discovery.look(at(10_800), |id| id == last);
        proc.process(late, QEMU, late);
        assert_eq!(found(&discovery.look(at(10_900), |id| id == last)), [late]);
        // Ids wrapped around.
        proc.process(7, "sh", 7);
        proc.last(7);
        discovery.look(at(11_000), |id| id >= last);
        proc.process(7, QEMU, 7);
        assert_eq!(found(&discovery.look(at(11_700), |id| id >= last)), [7]);
    }

    #[test]
    fn vhost_workers_of_older_kernels_belong_to_their_process() {
        let proc = Proc::new();
        proc.process(60, "", 60);
        fs::write(proc.0.path().join("60/comm"), "vhost-50\n").expect("written");
        fs::create_dir_all(proc.0.path().join("sys/kernel")).expect("made");
        for (release, expected) in [("6.1.0-38-rt-amd64\n", &[60][..]), ("6.4.0\n", &[]), ("10.0\n", &[])] {
            fs::write(proc.0.path().join("sys/kernel/osrelease"), release).expect("written");
            let mut discovery = Discovery::new(proc.0.path());
            discovery.look(Instant::now(), |_| false);
            assert_eq!((discovery.vhost(50), discovery.vhost(51)), (expected, &[][..]));
        }
    }

    #[test]
    fn the_unit_is_the_innermost_service_or_scope() {
        let of = |text: &str| unit_of(text).unwrap_or_default();
        let machine = "0::/machine.slice/machine-qemu\\x2d1\\x2drelay.scope/libvirt/emulator\n";
        assert_eq!(of(machine), "machine-qemu\\x2d1\\x2drelay.scope");
        assert_eq!(of("0::/user.slice/user-1.slice/user@1.service/app.slice/fc.service\n"), "fc.service");
        assert_eq!(of("4:cpu:/a\n1:name=systemd:/system.slice/fc.service\n0::/\n"), "fc.service");
        assert_eq!((of("0::/\n"), of("")), (String::new(), String::new()));
    }
}
