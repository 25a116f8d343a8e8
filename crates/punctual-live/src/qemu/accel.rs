//! Does KVM run an ordinary 64-bit kernel here?
//!
//! That `/dev/kvm` can be opened says little: inside some virtual machines it is there and starts guests that
//! never get anywhere. So a guest is booted once and the answer kept until the machine is booted again.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use super::{Accelerator, Vm, VmSpec};
use crate::cache::Cache;
use crate::image::Image;

/// How long the guest may take to reach its guest program; with KVM that takes about a second.
const BOOT_LIMIT: Duration = Duration::from_secs(10);

const YES: &str = "yes";

/// KVM if it works, else TCG and one line that says why.
///
/// # Errors
/// When no QEMU runs here at all.
pub fn choose(
    cache: &Cache,
    image: &Image,
    progress: &dyn Fn(&str),
) -> Result<(Accelerator, Option<String>), String> {
    if let Err(why) = opens(Path::new("/dev/kvm")) {
        return Ok((Accelerator::Tcg, Some(format!("VMs run by translation (TCG), without KVM: {why}"))));
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let name = format!("kvm-probe-{}", boot.trim());
    let known = fs::read_to_string(cache.path(&name)).ok().filter(|_| !boot.is_empty());
    let found = match known {
        Some(known) => known,
        None => {
            progress("trying whether KVM boots a guest");
            let found = probe(image)?;
            cache.write(&name, found.as_bytes(), 0o644)?;
            found
        }
    };
    if found == YES {
        return Ok((Accelerator::Kvm, None));
    }
    Ok((Accelerator::Tcg, Some(format!("VMs run by translation (TCG): /dev/kvm is there, but {found}"))))
}

fn opens(device: &Path) -> Result<(), String> {
    match File::options().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(format!(
            "{} may not be opened; join its group (usually `usermod -aG kvm USER`) or run as root",
            device.display()
        )),
        Err(error) => Err(format!("{}: {error}", device.display())),
    }
}

/// [`YES`], or what happened instead.
fn probe(image: &Image) -> Result<String, String> {
    let spec = VmSpec::new("kvm-probe", image, Accelerator::Kvm);
    let mut vm = match Vm::start(&spec) {
        Ok(vm) => vm,
        // One line: what QEMU says of KVM.
        Err(error) if error.contains("kvm") || error.contains("KVM") => {
            return Ok(format!("QEMU cannot use it ({})", error.lines().last().unwrap_or_default()));
        }
        Err(error) => return Err(error),
    };
    Ok(match vm.connect(BOOT_LIMIT) {
        Ok(_) => YES.into(),
        Err(_) => format!("a guest did not boot within {} s", BOOT_LIMIT.as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let error = opens(Path::new("/dev/punctual-no-such-device")).unwrap_err();
        assert!(error.contains("/dev/punctual-no-such-device"), "{error}");
    }
}
