//! A host's scheduling parameters as settings of other tools: Xen's `xl`, libvirt, systemd, QEMU with
//! util-linux.
//!
//! Each target is a function from a [`Host`] to files. What a target cannot express is reported as a
//! [`Loss`]. Rounding gives a unit no less than the host file says. `docs/export.md` has the tables.

mod libvirt;
mod linux;
mod loss;
mod qemu;
mod quota;
mod systemd;
mod target;
mod text;
mod units;
mod virsh;
mod xl;

use serde::Serialize;

use crate::host::Host;

pub use libvirt::{VhostUserPort, vhost_user};
pub use loss::Loss;
pub use target::{ExportFile, Keep, Target};

use loss::Losses;

/// The files of an export and what they leave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// The tool whose settings these are.
    pub target: Target,
    /// In the order in which they are used.
    pub files: Vec<ExportFile>,
    /// What is not in them, in the order of the host file.
    pub losses: Vec<Loss>,
}

/// Writes the settings of `host` for `target`.
pub fn export(host: &Host, target: Target, keep: Keep) -> Export {
    let mut losses = Losses::default();
    losses.add_shared_budgets(host);
    losses.add_events(host);
    let files = match target {
        Target::Xl => xl::files(host, xl::Schedulers::Own, &mut losses),
        Target::Xen => xl::files(host, xl::Schedulers::Punctual, &mut losses),
        Target::Libvirt => libvirt::files(host, keep, &mut losses),
        Target::Virsh => virsh::files(host, keep, &mut losses),
        Target::Systemd => systemd::files(host, keep, &mut losses),
        Target::Qemu => qemu::files(host, keep, &mut losses),
    };
    Export { target, files, losses: losses.list }
}
