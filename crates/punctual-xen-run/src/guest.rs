//! A guest of Xen with the guest program, and the way to it: its console, which is a terminal of domain 0.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::tools;
use punctual_linux::channel::Stop;
use punctual_vm::image::cpio::Archive;
use punctual_vm::workload::{self, Client};

/// What a guest's kernel is told: the console for the program alone, and all time for real-time tasks.
const KERNEL_LINE: &str = "console=hvc0 quiet loglevel=0 nokaslr mitigations=off audit=0 \
                           sysctl.kernel.sched_rt_runtime_us=-1 rdinit=/init -- fifo --console";

/// The initramfs of a guest: the guest program is its first and only one.
pub(crate) fn ramdisk() -> Vec<u8> {
    let mut archive = Archive::default();
    archive.directory("dev");
    archive.device("dev/console", 5, 1);
    archive.file("init", workload::PROGRAM);
    archive.finish()
}

/// The configuration of a guest for xl.
pub(crate) fn configuration(
    (name, vcpus, pool): (&str, usize, &str),
    (kernel, ramdisk, memory_mib): (&Path, &Path, u32),
) -> String {
    format!(
        "name=\"{name}\"\ntype=\"pv\"\nvcpus={vcpus}\npool=\"{pool}\"\nkernel=\"{}\"\nramdisk=\"{}\"\n\
         memory={memory_mib}\nextra=\"{KERNEL_LINE}\"\ntsc_mode=\"native\"\non_crash=\"destroy\"\n\
         on_poweroff=\"destroy\"\non_reboot=\"destroy\"\n",
        kernel.display(),
        ramdisk.display()
    )
}

/// Waits for the program in a guest to announce itself.
pub(crate) fn connect(name: &str, domain: u32, limit: Duration, stop: Stop) -> Result<Client, Error> {
    let path = tools::console(domain)?;
    let failed = |source| Error::File { what: format!("the console of {name} ({path})"), source };
    let terminal = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let (reader, writer) = (terminal.try_clone().map_err(failed)?, terminal);
    let input = theirs.try_clone().map_err(failed)?;
    // They end with the guest, whose console goes away, or with the conversation.
    std::thread::spawn(move || from_guest(reader, theirs));
    std::thread::spawn(move || to_guest(input, writer));
    Client::connect(ours, limit, stop).map_err(|source| Error::Guest { domain: name.into(), source })
}

/// Hands over what is of the protocol: a kernel may write to the console too.
fn from_guest(terminal: File, mut socket: UnixStream) {
    let mut lines = BufReader::new(terminal);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(1..) if line.first() == Some(&b'{') => {
                if socket.write_all(&line).is_err() {
                    return;
                }
            }
            Ok(1..) => {}
            Ok(0) | Err(_) => return drop(socket.shutdown(std::net::Shutdown::Both)),
        }
    }
}

fn to_guest(mut socket: UnixStream, mut terminal: File) {
    // The other end is gone, or the guest.
    let _ = std::io::copy(&mut socket, &mut terminal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_what_it_was_given() {
        let text = configuration(("one", 2, "guests"), (Path::new("/vmlinux"), Path::new("/g.cpio"), 160));
        for line in ["name=\"one\"", "vcpus=2", "pool=\"guests\"", "ramdisk=\"/g.cpio\"", "memory=160"] {
            assert!(text.lines().any(|known| known == line), "{text}");
        }
        assert!(ramdisk().windows(4).any(|bytes| bytes == b"init"));
    }

    #[test]
    fn what_a_kernel_writes_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("console");
        std::fs::write(&path, "[ 0.1] noise\n{\"a\":1}\nmore\n{\"b\":2}\n").expect("written");
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        from_guest(File::open(&path).expect("opened"), theirs);
        let lines: Vec<String> = BufReader::new(ours).lines().map_while(Result::ok).collect();
        assert_eq!(lines, ["{\"a\":1}", "{\"b\":2}"]);
    }
}
