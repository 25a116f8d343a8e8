//! A VM by KVM, with two vCPUs that spin and a vhost worker: attached to, held to its budgets, let go.
//!
//! It needs KVM that runs a guest, a TAP and vhost-net. `labs/lab kernel run` boots a machine that has them:
//! `labs/lab kernel tests` runs it there.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::faults::{Victims, wait};
use common::live::needs;
use punctual_linux::os::sched::{Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::vmm::{self, Role};

/// What QEMU gives its guest.
const VCPUS: usize = 2;

/// A firmware of 64 KiB that makes every vCPU spin. The first begins at the reset vector, starts all others
/// by an interrupt between processors (x2APIC, so by registers alone), and spins; the others begin at the
/// start of the firmware, where they spin (Intel SDM volume 3, 11.12 "Extended XAPIC", 9.4 "MP
/// initialization").
fn spinning_firmware() -> Vec<u8> {
    const SPIN: [u8; 2] = [0xEB, 0xFE];
    // `mov ecx, register; mov eax, value; xor edx, edx; wrmsr` in real mode, operands of 32 bits.
    let write = |register: u32, value: u32| {
        let mut code = vec![0x66, 0xB9];
        code.extend(register.to_le_bytes());
        code.extend([0x66, 0xB8]);
        code.extend(value.to_le_bytes());
        code.extend([0x66, 0x31, 0xD2, 0x0F, 0x30]);
        code
    };
    let start = [
        // IA32_APIC_BASE: the usual address, bootstrap processor, x2APIC on.
        write(0x1B, 0xFEE0_0D00),
        // Spurious-interrupt vector: the APIC is on.
        write(0x80F, 0x1FF),
        // INIT to all others, then start-up at F000:0000.
        write(0x830, 0x000C_4500),
        write(0x830, 0x000C_46F0),
        SPIN.to_vec(),
    ]
    .concat();
    let mut firmware = vec![0; 0x1_0000];
    firmware[..2].copy_from_slice(&SPIN);
    firmware[0x100..0x100 + start.len()].copy_from_slice(&start);
    // At the reset vector: a jump to 0x100 of the same segment.
    firmware[0xFFF0..0xFFF3].copy_from_slice(&[0xE9, 0x0D, 0x01]);
    firmware
}

/// A process that ends with the test, however that ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the machine lacks for this test.
fn missing() -> Option<&'static str> {
    let devices = ["/dev/kvm", "/dev/vhost-net", "/dev/net/tun"];
    devices.into_iter().find(|device| !Path::new(device).exists())
}

/// A VM with a monitor at `socket`; its vCPUs spin.
fn spinning_vm(directory: &Path, socket: &Path) -> Ended {
    let firmware = directory.join("spin.rom");
    std::fs::write(&firmware, spinning_firmware()).expect("a firmware");
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    let said = std::fs::File::create(directory.join("qemu")).expect("a file");
    Command::new("qemu-system-x86_64")
        .args(["-nodefaults", "-display", "none", "-accel", "kvm", "-cpu", "host,+x2apic", "-m", "32"])
        .args(["-smp", &VCPUS.to_string(), "-name", "spinning,debug-threads=on", "-qmp", &qmp, "-bios"])
        .arg(&firmware)
        .args(["-netdev", "tap,id=n,ifname=spinning0,script=no,downscript=no,vhost=on"])
        .args(["-device", "virtio-net-pci,netdev=n,romfile="])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .map(Ended)
        .expect("QEMU starts")
}

/// How the VM's threads are: attributes, processors, cgroup.
fn threads(vm: u32) -> Vec<(u32, Role, Attributes, Vec<usize>, String)> {
    let found = vmm::threads_of(Path::new("/proc"), vm).expect("it lives");
    let state = |thread: vmm::Thread| {
        let tid = thread.tid as i32;
        let group = cgroup::group_of(tid).expect("it lives");
        let attributes = attributes(tid).expect("it lives");
        (thread.tid, thread.role, attributes, affinity(tid).expect("it lives"), group)
    };
    found.into_iter().map(state).collect()
}

/// How many of the VM's vCPUs are under enforcement.
fn enforced(vm: u32) -> usize {
    let is_enforced =
        |(_, role, attributes, processors, group): &(_, Role, Attributes, Vec<usize>, String)| {
            matches!(role, Role::Vcpu(_))
                && attributes.policy == Attributes::fifo(1).policy
                && *processors == [1]
                && group.contains("punctual-")
        };
    threads(vm).iter().filter(|thread| is_enforced(thread)).count()
}

/// The processor time of the VM's vCPUs so far.
fn vcpu_time(vm: u32) -> Vec<Duration> {
    let found = vmm::threads_of(Path::new("/proc"), vm).expect("it lives");
    let time = |(_, tid): (u32, u32)| {
        let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("it lives");
        Duration::from_nanos(proc::parse_schedstat(&text).expect("a time").ran.as_ns())
    };
    vmm::vcpus(&found).into_iter().map(time).collect()
}

#[test]
fn a_vm_by_kvm_with_two_vcpus_and_a_vhost_worker_is_held_to_its_budgets_and_let_go() {
    let Some(_turn) = needs() else { return };
    if let Some(missing) = missing() {
        // No switch makes this a failure: no ordinary test machine has nested KVM.
        eprintln!("skipped, {missing} is missing; labs/lab kernel tests runs this test where it exists");
        return;
    }
    let victims = Victims::bystanders("kvm");
    let socket = victims.directory().join("qmp");
    let vm = spinning_vm(victims.directory(), &socket);
    let id = vm.0.id();
    let qemu_said = || std::fs::read_to_string(victims.directory().join("qemu")).unwrap_or_default();
    wait("both vCPUs spin", || {
        let spins = |time: &Duration| *time > Duration::from_millis(300);
        vcpu_time(id).iter().filter(|time| spins(time)).count() == VCPUS
    });
    let before = (threads(id), victims.state());
    assert!(before.0.iter().any(|thread| thread.1 == Role::Vhost), "no vhost worker: {}", qemu_said());

    let host = victims.directory().join("spinning.toml");
    let text = format!(
        "name = \"spinning\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = \"deferrable\"\n[domain.vm]\nvcpus = {VCPUS}\nbudget = \"20ms\"\nperiod = \"100ms\"\n\
         priority = 1\nattach = {{ qmp = \"{}\" }}\nhelpers = {{ processors = [0] }}\n",
        socket.display()
    );
    std::fs::write(&host, text).expect("a host file");
    let said = std::fs::File::create(victims.directory().join("said")).expect("a file");
    let mut run = victims
        .punctual(&["attach", &host.display().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .map(Ended)
        .expect("it starts");
    wait("both vCPUs are under enforcement", || enforced(id) == VCPUS);

    let start = (vcpu_time(id), Instant::now());
    std::thread::sleep(Duration::from_secs(4));
    let elapsed = start.1.elapsed();
    for (vcpu, (now, then)) in vcpu_time(id).iter().zip(&start.0).enumerate() {
        let share = (*now - *then).as_secs_f64() / elapsed.as_secs_f64();
        println!("vCPU {vcpu}: {:.1} % of the processor, its budget is 20.0 %", share * 100.0);
        // Translated twice, a look takes long: what is used too much is owed, so more is not possible.
        assert!((0.05..0.25).contains(&share), "vCPU {vcpu} got {share} of the processor");
    }
    let status = Command::new("kill").args(["-INT", &run.0.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
    let status = run.0.wait().expect("it ends");
    let said = std::fs::read_to_string(victims.directory().join("said")).expect("a file");
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!((threads(id), victims.state()), before, "{said}");
    let spun = vcpu_time(id);
    std::thread::sleep(Duration::from_secs(1));
    assert!(vcpu_time(id).iter().zip(&spun).all(|(now, then)| now > then), "the VM still spins");
}
