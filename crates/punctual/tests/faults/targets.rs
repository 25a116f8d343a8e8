//! What cannot be attached to is refused before anything is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_linux::os::sched::{affinity, attributes};
use punctual_linux::os::{cgroup, proc};

use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::{Desk, Machine, Scope};
use crate::newcomers::Victim;

/// A run with these domains is refused, and so is `--dry-run`, each for all of these reasons, and nothing had
/// been changed.
fn is_refused(desk: &Desk, domains: &str, reasons: &[&str]) {
    let host = desk.host("refused", PROCESSOR, domains);
    let host = host.as_str();
    for arguments in [&["attach", host, "--dry-run"][..], &["attach", host]] {
        let mut run = desk.start(arguments);
        assert_eq!(run.wait(), 2, "{arguments:?}: {}", run.said());
        for reason in reasons {
            assert!(run.said().contains(reason), "{arguments:?}: {reason}: {}", run.said());
        }
        let is_dry = arguments.contains(&"--dry-run");
        assert!(is_dry || run.said().contains("nothing had been changed"), "{}", run.said());
    }
    assert_eq!(desk.left(), Vec::<String>::new());
}

#[test]
fn a_thread_is_a_vcpu_of_one_domain() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("two-domains"), Scope::make("two-domains"));
    let machine = Machine::start(scope.directory());
    let domains = machine.domain("first") + &machine.domain("second");
    let reason = format!("domain `second`: thread {} is a vCPU of domain `first` already", machine.id());
    is_refused(&desk, &domains, &[&reason]);
    assert_eq!(machine.residue(&scope.groups()[0]), None);
    // The same by their process.
    let victim = Victim::start("quiet");
    let domains = victim.domain() + &victim.domain().replacen("vm", "again", 1);
    let id = victim.thread("CPU 0/KVM").expect("it waits");
    is_refused(&desk, &domains, &[&format!("domain `again`: thread {id} is a vCPU of domain `vm` already")]);
}

/// A cpuset with one processor.
struct OneProcessor(PathBuf);

impl OneProcessor {
    /// `None` where this machine does not have the controller in cgroup version 1.
    fn make(name: &str, processor: usize) -> Option<OneProcessor> {
        let mount = Path::new("/sys/fs/cgroup/cpuset");
        let Ok(memory) = fs::read_to_string(mount.join("cpuset.mems")) else {
            eprintln!("skipped: there is no cpuset controller of cgroup version 1");
            return None;
        };
        let cpuset = OneProcessor(mount.join(format!("test-{name}-{}", std::process::id())));
        fs::create_dir(&cpuset.0).expect("a group");
        fs::write(cpuset.0.join("cpuset.mems"), memory.trim()).expect("set");
        fs::write(cpuset.0.join("cpuset.cpus"), processor.to_string()).expect("set");
        Some(cpuset)
    }

    /// Takes a single thread.
    fn take(&self, thread: i32) {
        fs::write(self.0.join("tasks"), thread.to_string()).expect("it moves");
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        // A process that was killed leaves it a moment later.
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            fs::remove_dir(&self.0).is_ok()
        });
    }
}

#[test]
fn a_cpuset_without_the_pools_processor_is_named() {
    let Some(_turn) = needs() else { return };
    let Some(cpuset) = OneProcessor::make("cpuset", 0) else { return };
    let (desk, scope) = (Desk::make("cpuset"), Scope::make("cpuset"));
    let machine = Machine::start(scope.directory());
    cpuset.take(machine.id());
    let state = || (attributes(machine.id()).expect("it lives"), affinity(machine.id()).expect("it lives"));
    let before = state();
    let thread = format!("domain `vm`: thread {} may not run on processor {PROCESSOR}", machine.id());
    let group = format!("its cpuset {} has processors 0", cpuset.0.display());
    is_refused(&desk, &machine.domain("vm"), &[&thread, &group]);
    assert_eq!(state(), before);
    assert_eq!(cgroup::group_of(machine.id()).expect("it lives"), scope.groups()[0]);
}

#[test]
fn a_cpuset_without_the_helpers_processors_is_named() {
    let Some(_turn) = needs() else { return };
    let Some(cpuset) = OneProcessor::make("helper", PROCESSOR) else { return };
    let (desk, victim) = (Desk::make("helper"), Victim::start("quiet"));
    let helper = victim.thread("ready").expect("it waits");
    cpuset.take(helper);
    let thread = format!("domain `vm`: helper thread {helper} may run on none of processors ");
    let group = format!("its cpuset {} has processors {PROCESSOR}", cpuset.0.display());
    is_refused(&desk, &victim.domain(), &[&thread, &group]);
}

#[test]
fn a_thread_of_the_kernel_is_named() {
    let Some(_turn) = needs() else { return };
    let Some(thread) = proc::kernel_threads("rcu_preempt").expect("readable").first().copied() else {
        return eprintln!("skipped: this kernel has no thread rcu_preempt");
    };
    let desk = Desk::make("kernel");
    let domain = format!(
        "[domain.vm]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
         attach = {{ threads = [{thread}] }}\n"
    );
    let reason = format!("domain `vm`: thread {thread} (rcu_preempt) is a thread of the kernel");
    is_refused(&desk, &domain, &[&reason]);
}

#[test]
fn a_home_without_room_for_a_group_is_named() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("full-home"), Scope::make("full-home"));
    let limit = scope.directory().join("cgroup.max.descendants");
    fs::write(&limit, "1").expect("set");
    let machine = Machine::start(scope.directory());
    let mut run = desk.start(&["attach", &desk.host("full-home", PROCESSOR, &machine.domain("vm"))]);
    assert_eq!(run.wait(), 2, "{}", run.said());
    let reason = format!("`vm.0` cannot be taken in: {} is 1", limit.display());
    assert!(run.said().contains(&reason), "{}", run.said());
    assert_eq!(machine.residue(&scope.groups()[0]), None);
    assert_eq!(desk.left(), Vec::<String>::new());
}
