//! What stands between the machine and a QEMU that its guest has taken over: a filter of system calls, and a
//! user without rights.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::spec::{Accelerator, Network, VmSpec};

/// Users without rights, the first that exists.
const USERS: [&str; 2] = ["punctual", "nobody"];

/// The user that QEMU becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub id: u32,
    pub group: u32,
}

/// Why QEMU runs as root: the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NeedsRoot {
    #[error("there is neither a user `punctual` nor `nobody`")]
    NoUser,
    #[error("its disk may need it")]
    Disk,
    #[error("its tap interface may need it")]
    Tap,
    #[error("its `arguments` may need it")]
    Arguments,
    #[error("only root may use /dev/kvm")]
    Kvm,
    #[error("only root may read {}", .0.display())]
    File(PathBuf),
}

/// The user that the QEMU of `spec` becomes; `None` when this process is no root and QEMU has its rights.
pub(super) fn user_for(spec: &VmSpec) -> Result<Option<User>, NeedsRoot> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    user_of(&passwd, spec, Path::new("/dev/kvm")).map(Some)
}

fn user_of(passwd: &str, spec: &VmSpec, kvm: &Path) -> Result<User, NeedsRoot> {
    let entry = |name: &&str| {
        let mut fields = passwd.lines().find(|line| line.split(':').next() == Some(name))?.split(':').skip(2);
        let mut number = || fields.next()?.parse::<u32>().ok().filter(|&id| id != 0);
        Some(User { id: number()?, group: number()? })
    };
    let mut user = USERS.iter().find_map(entry).ok_or(NeedsRoot::NoUser)?;
    if spec.disk.is_some() {
        return Err(NeedsRoot::Disk);
    }
    if matches!(spec.network, Network::Tap { .. }) {
        return Err(NeedsRoot::Tap);
    }
    if !spec.extra.is_empty() {
        return Err(NeedsRoot::Arguments);
    }
    for path in [&spec.kernel, &spec.initrd].into_iter().flatten() {
        if !fs::metadata(path).is_ok_and(|file| file.mode() & 0o004 != 0) {
            return Err(NeedsRoot::File(path.clone()));
        }
    }
    if spec.accelerator == Accelerator::Kvm {
        let device = fs::metadata(kvm).map_err(|_| NeedsRoot::Kvm)?;
        match device.mode() {
            mode if mode & 0o006 == 0o006 => {}
            mode if mode & 0o060 == 0o060 && device.gid() != 0 => user.group = device.gid(),
            _ => return Err(NeedsRoot::Kvm),
        }
    }
    Ok(user)
}

/// Opens what QEMU is to read and names it by descriptor: another user may not reach it by its path, below
/// root's home for example.
pub(super) fn open_files(spec: &mut VmSpec) -> io::Result<Vec<OwnedFd>> {
    let mut files = Vec::new();
    for path in [&mut spec.kernel, &mut spec.initrd].into_iter().flatten() {
        let file = File::open(&*path)?;
        *path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        files.push(file.into());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::image::Image;
    use crate::qemu::Disk;

    const PASSWD: &str = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533::/:/bin/false\n";

    #[test]
    fn qemu_becomes_a_user_without_rights_unless_something_needs_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str, mode: u32| {
            let path = directory.path().join(name);
            fs::write(&path, "").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            path
        };
        let (kernel, initrd) = (file("kernel", 0o644), file("initrd", 0o644));
        let image = Image { kernel, initrd, append: String::new(), packages: Vec::new() };
        let (open, closed) = (file("open-kvm", 0o666), file("closed-kvm", 0o600));
        let of = |spec: &VmSpec| user_of(PASSWD, spec, &closed);
        let plain = VmSpec::new("vm", &image, Accelerator::Tcg);
        let nobody = User { id: 65534, group: 65533 };
        assert_eq!(of(&plain), Ok(nobody));
        let own = format!("{PASSWD}punctual:x:990:991::/:/bin/false\n");
        assert_eq!(user_of(&own, &plain, &closed), Ok(User { id: 990, group: 991 }));
        assert_eq!(user_of("root:x:0:0::/:/bin/sh\n", &plain, &closed), Err(NeedsRoot::NoUser));
        let disk = Some(Disk { path: "/d".into(), format: "raw".into() });
        assert_eq!(of(&VmSpec { disk, ..plain.clone() }), Err(NeedsRoot::Disk));
        let network = Network::Tap { interface: "tap0".into(), vhost: false };
        assert_eq!(of(&VmSpec { network, ..plain.clone() }), Err(NeedsRoot::Tap));
        let extra = vec!["-S".to_owned()];
        assert_eq!(of(&VmSpec { extra, ..plain.clone() }), Err(NeedsRoot::Arguments));
        let secret = file("secret", 0o600);
        let hidden = VmSpec { initrd: Some(secret.clone()), ..plain.clone() };
        assert_eq!(of(&hidden), Err(NeedsRoot::File(secret)));
        let fast = VmSpec { accelerator: Accelerator::Kvm, ..plain };
        assert_eq!(of(&fast), Err(NeedsRoot::Kvm));
        assert_eq!(user_of(PASSWD, &fast, &open), Ok(nobody));
    }
}
