//! Finds out whether KVM runs an ordinary 64-bit kernel on this machine.
//!
//! That `/dev/kvm` can be opened says little: inside some virtual machines it can be opened, and the guests
//! that it starts hang. So one guest is booted as a trial, and the answer is kept until this machine reboots.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::Error;
use super::spec::{Accelerator, VmSpec};
use super::vm::Vm;
use crate::cache::{self, Cache};
use crate::image::Image;
use punctual_linux::channel::Stop;

/// How long the guest may take to reach its guest program; with KVM that takes about a second.
const BOOT_LIMIT: Duration = Duration::from_secs(10);

const YES: &str = "yes";

/// KVM if it works, else TCG and one line that says why.
///
/// # Errors
/// When no QEMU runs here at all, or the cache cannot be written.
pub fn choose(
    cache: &Cache,
    image: &Image,
    progress: &dyn Fn(&str),
    stop: Stop,
) -> Result<(Accelerator, Option<String>), Error> {
    let device = Path::new("/dev/kvm");
    if let Err(error) = File::options().read(true).write(true).open(device) {
        let why = format!("VMs run by translation (TCG), without KVM: {}", cannot_open(device, &error));
        return Ok((Accelerator::Tcg, Some(why)));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = format!("kvm-probe-{}", boot.trim());
    let known = fs::read_to_string(cache.path(&name)).ok().filter(|_| !boot.is_empty());
    let found = match known {
        Some(known) => known,
        None => {
            progress("trying whether KVM boots a guest");
            let found = probe(image, stop)?;
            cache.write(&name, found.as_bytes(), 0o644).map_err(cache::Error::from)?;
            found
        }
    };
    if found == YES {
        return Ok((Accelerator::Kvm, None));
    }
    Ok((Accelerator::Tcg, Some(format!("VMs run by translation (TCG): /dev/kvm is there, but {found}"))))
}

/// Why `device` cannot be opened, and what helps.
fn cannot_open(device: &Path, error: &io::Error) -> String {
    let device = device.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{device} may not be opened; join its group (usually `usermod -aG kvm USER`) or run as root"
        ),
        _ => format!("{device}: {error}"),
    }
}

/// [`YES`], or what happened instead.
fn probe(image: &Image, stop: Stop) -> Result<String, Error> {
    let spec = VmSpec::new("kvm-probe", image, Accelerator::Kvm);
    let mut vm = match Vm::start(&spec, stop) {
        Ok(vm) => vm,
        Err(Error::NoMonitor { last_words, .. }) if mentions_kvm(&last_words.lines) => {
            let last = last_words.lines.last().map_or("", String::as_str);
            return Ok(format!("QEMU cannot use it ({last})"));
        }
        Err(error) => return Err(error),
    };
    Ok(match vm.connect(BOOT_LIMIT) {
        Ok(_) => YES.into(),
        // It says nothing about KVM, and must not be kept.
        Err(error) if stop() => return Err(error),
        Err(_) => format!("a guest did not boot within {} s", BOOT_LIMIT.as_secs()),
    })
}

/// Does QEMU complain about KVM, rather than about anything else?
fn mentions_kvm(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains("kvm") || line.contains("KVM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_opened_is_named_with_what_helps() {
        let message = |code| cannot_open(Path::new("/dev/kvm"), &io::Error::from_raw_os_error(code));
        assert!(message(libc::ENOENT).starts_with("/dev/kvm: No such file"), "{}", message(libc::ENOENT));
        assert!(message(libc::EACCES).contains("usermod -aG kvm"), "{}", message(libc::EACCES));
    }

    #[test]
    fn only_a_complaint_about_kvm_means_that_kvm_does_not_work() {
        let lines = |text: &str| [text.to_owned()];
        assert!(mentions_kvm(&lines("failed to initialize kvm: No such device")));
        assert!(!mentions_kvm(&lines("cannot set up guest memory 'pc.ram': Cannot allocate memory")));
    }
}
