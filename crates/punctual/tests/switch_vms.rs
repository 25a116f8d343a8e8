//! Two VMs under an unmodified QEMU, connected by `punctual switch`.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use punctual_vm::image;

const HOST: &str = "
duration = '1s'
[machine]
processors = 2
[pool.all]
policy = 'fixed-priority'
[domain.dom0]
priority = 1
[domain.first]
priority = 1
[domain.second]
priority = 2
[network.lan]
driver = 'dom0'
discipline = 'preemptive'
[flow.probe]
kind = 'ping'
from = 'first'
to = 'second'
";

/// The first process of a guest. Its number is on the kernel's command line.
const INIT: &str = r#"#!/bin/busybox sh
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
for module in /modules/*; do busybox insmod "$module"; done
for word in $(busybox cat /proc/cmdline); do
    case $word in vm=*) vm=${word#vm=} ;; esac
done
busybox ifconfig eth0 10.0.0.$vm up
echo "vm $vm is up"
if [ $vm = 2 ]; then
    while true; do
        busybox nc -l -p 5000 >/tmp/got
        echo "got $(busybox md5sum </tmp/got)"
    done
fi
busybox dd if=/dev/urandom of=/tmp/file bs=64k count=32 2>/dev/null
while ! busybox ping -c 1 -W 1 10.0.0.2 >/dev/null; do :; done
echo "sending $(busybox md5sum </tmp/file)"
busybox nc 10.0.0.2 5000 </tmp/file
busybox ping -c 1000 -W 1 10.0.0.2
"#;

/// How long anything may take: two guests under translation boot on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);

/// A process that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the test cannot do without; `None` where that is missing.
fn image() -> Option<image::Image> {
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    let problem = match qemu {
        Err(error) => format!("qemu-system-x86_64: {error}"),
        Ok(_) => match image::prepare(&|_| (), || false) {
            Ok(image) => return Some(image),
            Err(error) => format!("no image for guests: {error}"),
        },
    };
    assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped, {problem}");
    eprintln!("skipped, {problem}");
    None
}

/// The image's files, with another first process.
fn initrd(image: &image::Image, folder: &Path) {
    let mut archive = fs::read(&image.initrd).expect("the image");
    archive.resize(archive.len().next_multiple_of(512), 0);
    for (path, contents) in [("init", INIT), ("TRAILER!!!", "")] {
        let fields = [1, 0o100_755, 0, 0, 1, 0, contents.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        let header: String = fields.iter().map(|field| format!("{field:08x}")).collect();
        archive.extend(format!("070701{header}{path}\0").bytes());
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(contents.bytes());
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    fs::write(folder.join("initrd"), archive).expect("written");
}

/// The switch, and the arguments for QEMU that it prints for each VM.
fn switch(folder: &Path) -> (Killed, BufReader<ChildStderr>, HashMap<String, Vec<String>>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["switch", "host.toml", "--check", "--json", "--sockets", "."])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut lines = BufReader::new(child.stderr.take().expect("piped"));
    let mut next = || {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("text") > 0, "the switch ended early");
        line
    };
    let mut arguments = HashMap::new();
    while arguments.len() < 2 {
        let line = next();
        if let Some(name) = line.trim_end().strip_suffix(':').filter(|name| !name.contains(' ')) {
            let words = next().split_whitespace().map(str::to_owned).collect();
            arguments.insert(name.to_owned(), words);
        }
    }
    (Killed(child), lines, arguments)
}

/// Ends the switch by Ctrl-C. Returns what it counted.
fn interrupt(switch: &mut Killed) -> serde_json::Value {
    let pid = rustix::process::Pid::from_child(&switch.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let mut text = String::new();
    switch.0.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert!(switch.0.wait().expect("an end").success(), "an invariant was violated: {text}");
    serde_json::from_str(&text).expect("JSON")
}

/// A VM, and the lines of its console.
fn vm(folder: &Path, image: &image::Image, number: u32, network: &[String]) -> (Killed, Receiver<String>) {
    let append = format!("{} vm={number}", image.append);
    let mut child = Command::new("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"])
        .args(["-machine", "q35,memory-backend=memory", "-accel", "tcg", "-cpu", "max", "-m", "192M"])
        .args(["-object", "memory-backend-memfd,id=memory,size=192M,share=on"])
        .arg("-kernel")
        .arg(&image.kernel)
        .args(["-initrd", "initrd", "-append", &append])
        .args(network)
        // Under translation QEMU 7.2 crashes when it masks message-signalled interrupts of vhost-user.
        .args(["-global", "virtio-net-pci.vectors=0"])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("QEMU");
    let console = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, lines) = channel();
    std::thread::spawn(move || console.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    (Killed(child), lines)
}

/// Waits for a line that contains `wanted`.
fn await_line(lines: &Receiver<String>, wanted: &str) -> String {
    let (end, mut seen) = (Instant::now() + LIMIT, Vec::new());
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if line.contains(wanted) {
            return line;
        }
        seen.push(line);
    }
    panic!("no line with {wanted:?} after:\n{}", seen.join("\n"));
}

#[test]
fn guests_under_a_stock_qemu_reach_each_other_and_a_restarted_switch() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), HOST).expect("written");
    initrd(&image, folder.path());
    let (mut switch_once, _errors, arguments) = switch(folder.path());
    let start = |number, name: &str| vm(folder.path(), &image, number, &arguments[name]);
    let ((_first, sender), (_second, receiver)) = (start(1, "first"), start(2, "second"));
    // 2 MiB in segments, unchanged.
    let sent = await_line(&sender, "sending ").replace("sending ", "");
    let got = await_line(&receiver, "got ").replace("got ", "");
    assert_eq!(sent.trim(), got.trim());
    await_line(&sender, "seq=3 ");
    let counted = interrupt(&mut switch_once);
    let port = &counted["ports"][0];
    assert_eq!(port["name"], "first");
    let (bytes, packets) = (port["delivered"]["bytes"].as_u64(), port["delivered"]["packets"].as_u64());
    assert!(bytes > Some(2 << 20), "{port:#}");
    assert!(packets < Some(1_500), "segments crossed as one: {packets:?} packets");
    assert!(!folder.path().join("first.sock").exists(), "the sockets are gone");
    // QEMU connects again within a second.
    let (mut switch_again, _errors, _) = switch(folder.path());
    // What the first switch carried has been printed by now.
    sender.try_iter().for_each(drop);
    let line = await_line(&sender, "seq=");
    let before: u32 =
        line.split("seq=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a number");
    await_line(&sender, &format!("seq={} ", before + 5));
    let counted = interrupt(&mut switch_again);
    assert!(counted["ports"][1]["delivered"]["packets"].as_u64() >= Some(5), "{counted:#}");
}
