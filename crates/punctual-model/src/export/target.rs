//! What is exported for which tool.

use serde::Serialize;

/// The tool whose settings are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Xen's toolstack `xl`: cpupool and domain configuration, and the commands for what runs (xl(1),
    /// xl.cfg(5)).
    Xl,
    /// The same with Punctual's scheduler in Xen, which has every policy and parameter: `xl` for cpupools and
    /// affinity, `punctual xen` for the rest.
    Xen,
    /// Parts of libvirt's domain XML (<https://libvirt.org/formatdomain.html>).
    Libvirt,
    /// virsh commands for what libvirt runs (virsh(1)).
    Virsh,
    /// Drop-ins for service units (systemd.exec(5), systemd.resource-control(5)).
    Systemd,
    /// Scripts that start QEMU and set its vCPU threads with taskset(1) and chrt(1).
    Qemu,
}

impl Target {
    /// All targets, in the order in which they are shown to users.
    pub const ALL: [Target; 6] =
        [Target::Xl, Target::Xen, Target::Libvirt, Target::Virsh, Target::Systemd, Target::Qemu];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Xl => "xl",
            Target::Xen => "xen",
            Target::Libvirt => "libvirt",
            Target::Virsh => "virsh",
            Target::Systemd => "systemd",
            Target::Qemu => "qemu",
        }
    }
}

/// What to keep of a unit with a budget *and* a priority where Linux enforces one of them: CPU quotas
/// throttle threads of the fair class only (kernel: `Documentation/scheduler/sched-bwc.rst`), so a real-time
/// thread has no quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Budget and period; Linux decides which unit goes first.
    #[default]
    Budget,
    /// The order of priorities; no unit is limited.
    Priority,
}

/// A file to hand to the target's tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportFile {
    /// Path below the directory of the export.
    pub name: String,
    /// Contents.
    pub text: String,
}
