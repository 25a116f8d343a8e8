//! What the steps of a packet cost: processor time, and reads of what a cache has lost.

use punctual_sched::Duration;

/// Processor time of each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackCosts {
    /// In the card, each way: from the wire to the interrupt, from the last step to the wire. No processor
    /// time.
    pub card: Duration,
    /// A hard IRQ.
    pub hard_irq: Duration,
    /// A switch to another thread.
    pub switch: Duration,
    /// An IRQ thread before its softirq.
    pub irq_thread: Duration,
    /// An IRQ thread after its softirq, before it sleeps.
    pub irq_thread_end: Duration,
    /// A softirq action, once.
    pub softirq: Duration,
    /// The driver, for a frame.
    pub frame: Duration,
    /// The bridge and the queue of a VM's interface, for a packet.
    pub bridge: Duration,
    /// Protocols of a packet that is received, up to its socket, in the host or in a guest.
    pub protocol: Duration,
    /// A process takes a packet from its socket, without the copy.
    pub receive: Duration,
    /// A process sends a packet: system call, protocols.
    pub send: Duration,
    /// The driver sends a packet.
    pub transmit: Duration,
    /// Each copy of 1024 bytes.
    pub copy_per_kib: Duration,
    /// The vNIC thread gives a packet to its VM, without the copy.
    pub vnic_receive: Duration,
    /// Each buffer of a packet in its VM beyond the first: once for the vNIC thread, once for the guest.
    pub virtio_buffer: Duration,
    /// The vNIC thread takes a packet from its VM.
    pub vnic_send: Duration,
    /// The vNIC thread after it slept, before its first packet.
    pub vnic_wake: Duration,
    /// The vNIC thread before it sleeps.
    pub vnic_end: Duration,
    /// A vCPU thread that wakes up, before it enters the VM.
    pub vcpu_wake: Duration,
    /// Entering a VM.
    pub vm_entry: Duration,
    /// Leaving a VM.
    pub vm_exit: Duration,
    /// A guest's interrupt handler.
    pub guest_interrupt: Duration,
    /// A guest's switch to another process.
    pub guest_switch: Duration,
    /// A socket call to the host (VMRPC), beside leaving and entering the VM.
    pub socket_call: Duration,
    /// How much longer the host's kernel steps take with PREEMPT_RT, in millionths.
    pub preempt_rt_ppm: u32,
    /// Every cost varies uniformly by at most this share in both directions, in millionths.
    pub jitter_ppm: u32,
    /// Late wake-ups in a million of a vCPU.
    pub late_ppm: u32,
    /// Delay of a late wake-up.
    pub late: Duration,
}

impl StackCosts {
    /// The same under PREEMPT_RT.
    pub(crate) fn under_preempt_rt(mut self) -> StackCosts {
        let ppm = u128::from(self.preempt_rt_ppm);
        debug_assert!(ppm <= 1_000_000, "at most twice the cost");
        for cost in [
            &mut self.softirq,
            &mut self.frame,
            &mut self.bridge,
            &mut self.protocol,
            &mut self.receive,
            &mut self.send,
            &mut self.transmit,
            &mut self.vnic_receive,
            &mut self.virtio_buffer,
            &mut self.vnic_send,
            &mut self.vnic_wake,
        ] {
            *cost += Duration::from_ns((u128::from(cost.as_ns()) * ppm / 1_000_000) as u64);
        }
        self
    }
}

/// A last-level cache (rt-stack s.3.5): what others copied since a step was executed has evicted part of what
/// it uses, which is read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    /// Its size in KiB.
    pub size_kib: u32,
    /// Reading one line from memory.
    pub miss: Duration,
    /// What each step uses.
    pub lines: Lines,
}

/// Reads from memory that a step needs when everything it uses is evicted. Steps of the host whose code
/// streams use all the time need none; those of a guest are its own kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lines {
    /// A guest's interrupt handler.
    pub guest_interrupt: u32,
    /// A guest's softirq and protocols.
    pub guest_protocol: u32,
    /// A guest's idle process and switch.
    pub guest_switch: u32,
    /// A guest's process takes a packet.
    pub guest_receive: u32,
    /// A guest's process sends a packet: protocols and driver.
    pub guest_send: u32,
    /// A guest's two socket calls to the host.
    pub guest_calls: u32,
    /// Protocols of a request to a socket of the host.
    pub host_protocol: u32,
    /// A request is taken from a socket of the host.
    pub host_receive: u32,
    /// An answer is sent from a socket of the host.
    pub host_send: u32,
}
