//! The ways of packets to a server.

use crate::papers::RtStack;

/// A way of packets to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// A VM with a virtio card on a TAP, moved by QEMU.
    Virtio,
    /// A VM with a virtio card at a port of our switch.
    VhostUser,
    /// A VM whose socket calls the host makes; interrupts announce messages.
    Interrupts,
    /// The same; the guest's idle processor looks for messages itself.
    ExtendedIdle,
    /// A process in a network namespace.
    Container,
    /// A process of the host.
    Process,
}

impl Path {
    pub(super) const ALL: [Path; 6] =
        [Path::Virtio, Path::VhostUser, Path::Interrupts, Path::ExtendedIdle, Path::Container, Path::Process];

    pub(super) fn title(self) -> &'static str {
        match self {
            Path::Virtio => "virtio, QEMU",
            Path::VhostUser => "virtio, our switch",
            Path::Interrupts => "sockets, interrupts",
            Path::ExtendedIdle => "sockets, extended idle",
            Path::Container => "container",
            Path::Process => "process",
        }
    }

    /// In the names of measures.
    pub(super) fn name(self) -> String {
        self.title().replace([' ', ','], "_")
    }

    /// Its path in the model.
    pub(super) fn model(self) -> &'static str {
        match self {
            Path::Virtio | Path::VhostUser => "virtio",
            Path::Interrupts => "outsourcing",
            Path::ExtendedIdle => "rt-outsourcing",
            Path::Container => "container",
            Path::Process => "process",
        }
    }

    /// Mean, 99 % quantile and deviation that the thesis prints for it, beside two heavy receivers.
    pub(super) fn thesis(self, paper: &RtStack) -> Option<[f64; 3]> {
        let of = match self {
            Path::Virtio => paper.loaded.get("vanilla"),
            Path::VhostUser => None,
            Path::Interrupts => paper.techniques.get("virtual-interrupts"),
            Path::ExtendedIdle => paper.loaded.get("outsourcing"),
            Path::Container => paper.containers.get("threaded"),
            Path::Process => paper.loaded.get("host"),
        };
        of.copied()
    }
}
