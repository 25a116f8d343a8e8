//! What runs attach to: processes, or a QEMU, in a cgroup of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use punctual_linux::os::sched::{self, Attributes, set_affinity, set_attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::vmm;
use punctual_vm::qemu::Qmp;

use super::{Outcome, wait};

/// A victim: its process, and what a run attaches to.
pub(crate) struct Victim {
    process: Child,
    /// Of QEMU, the directory with its monitors.
    monitors: Option<PathBuf>,
    pub group: PathBuf,
}

impl Victim {
    pub(crate) fn id(&self) -> i32 {
        self.process.id() as i32
    }

    pub(crate) fn is_vm(&self) -> bool {
        self.monitors.is_some()
    }

    pub(crate) fn threads(&self) -> Vec<i32> {
        proc::threads(self.id()).unwrap_or_default()
    }

    /// The threads that become units.
    pub(crate) fn vcpus(&self) -> Vec<i32> {
        if !self.is_vm() {
            return vec![self.id()];
        }
        let threads = vmm::threads_of(Path::new("/proc"), self.process.id()).unwrap_or_default();
        vmm::vcpus(&threads).into_iter().map(|(_, tid)| tid as i32).collect()
    }

    /// The host file's domain that attaches to it.
    pub(crate) fn domain(&self, index: usize, by_monitor: bool) -> String {
        let (vcpus, attach) = match &self.monitors {
            Some(monitors) if by_monitor => (2, format!("qmp = \"{}\"", monitors.join("run").display())),
            Some(_) => (2, format!("process = {}", self.id())),
            None => (1, format!("threads = [{}]", self.id())),
        };
        format!(
            "[domain.d{index}]\nvcpus = {vcpus}\nbudget = \"1ms\"\nperiod = \"10ms\"\npriority = {index}\n\
             attach = {{ {attach} }}\n"
        )
    }

    /// A command of the operator's monitor.
    pub(crate) fn monitor(&self, command: &str, arguments: &serde_json::Value) -> Outcome<serde_json::Value> {
        let monitors = self.monitors.as_ref().ok_or("no VM")?;
        let mut monitor = Qmp::connect(&monitors.join("operator"), Duration::from_secs(10), || false)?;
        Ok(monitor.execute_with(command, arguments)?)
    }

    /// Plugs in the second vCPU, if there is none yet.
    pub(crate) fn plug(&self) -> Outcome<()> {
        let places = self.monitor("query-hotpluggable-cpus", &serde_json::json!({}))?;
        let free = places.as_array().and_then(|all| all.iter().find(|place| place.get("qom-path").is_none()));
        let Some(free) = free else { return Ok(()) };
        let mut cpu = free["props"].clone();
        cpu["driver"] = free["type"].clone();
        self.monitor("device_add", &cpu).map(drop)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Loops that work, sleep by starting a process, and are scheduled in different ways.
pub(crate) fn processes(group: &Path) -> Outcome<Vec<Victim>> {
    let work = "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.02; done";
    let fair = |nice| Attributes { nice, ..Attributes::other() };
    let own = [
        (work, fair(0), vec![0, 1]),
        (work, fair(5), vec![0, 1]),
        ("sleep 10000", Attributes { policy: sched::RR, ..Attributes::fifo(7) }, vec![0]),
        ("while :; do sleep 0.05; done", Attributes { policy: 3, ..fair(3) }, vec![1]),
    ];
    let mut victims = Vec::new();
    for (script, attributes, processors) in own {
        let process = Command::new("sh")
            .args(["-c", &format!("echo $$ > {}/cgroup.procs; {script}", group.display())])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let victim = Victim { process, monitors: None, group: group.to_owned() };
        let is_inside = || cgroup::is_inside(victim.id(), group).unwrap_or(false);
        wait("a victim is in its group", is_inside)?;
        set_affinity(victim.id(), &processors)?;
        set_attributes(victim.id(), &attributes)?;
        victims.push(victim);
    }
    Ok(victims)
}

/// A QEMU whose firmware looks for something to boot again and again.
pub(crate) fn vm(group: &Path, directory: &Path, number: u64) -> Outcome<Victim> {
    let directory = directory.join(format!("vm{number}"));
    fs::create_dir_all(&directory)?;
    let monitor = |name: &str| format!("unix:{},server=on,wait=off", directory.join(name).display());
    let disk = directory.join("disk");
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(&disk)
        .arg("16M")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg,thread=multi"]);
    command.args(["-m", "32", "-smp", "1,maxcpus=2", "-boot", "reboot-timeout=50"]);
    command.args(["-name", "chaos,debug-threads=on", "-qmp", &monitor("run"), "-qmp", &monitor("operator")]);
    // Without it there is nowhere to save the VM's state to.
    if made.is_ok_and(|status| status.success()) {
        command.args(["-drive", &format!("if=none,id=disk,format=qcow2,file={}", disk.display())]);
    }
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let victim = Victim { process, monitors: Some(directory), group: group.to_owned() };
    fs::write(group.join("cgroup.procs"), victim.id().to_string())?;
    wait("QEMU answers", || victim.monitor("query-status", &serde_json::json!({})).is_ok())?;
    wait("QEMU has a vCPU", || !victim.vcpus().is_empty())?;
    Ok(victim)
}
