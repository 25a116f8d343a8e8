//! Packets on their way through the host.

use std::collections::VecDeque;

use punctual_sched::Duration;

/// Payload of a frame of a stream: 1500 bytes less 52 of TCP/IP with timestamps.
pub(crate) const FRAME_BYTES: u32 = 1448;
/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    /// A request: index into the requests.
    Request(u32),
    /// Some frames of a stream, merged to one packet (GRO).
    Stream { frames: u32 },
}

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) server: usize,
    pub(crate) bytes: u32,
    pub(crate) load: Payload,
}

/// A packet on its way out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sent {
    Answer { server: usize, request: u32 },
    Ack { server: usize },
}

/// Bytes of a stream that a process reads at once at most (iperf 2: 128 KiB).
const READ_BYTES: u32 = 128 << 10;

/// Takes the packet that a process reads next: those of a stream together.
pub(crate) fn read_packets(socket: &mut VecDeque<Packet>) -> Option<Packet> {
    let mut packet = socket.pop_front()?;
    while let Payload::Stream { frames } = &mut packet.load
        && let Some(Packet { bytes, load: Payload::Stream { frames: more }, .. }) = socket.front().copied()
        && packet.bytes + bytes <= READ_BYTES
    {
        *frames += more;
        packet.bytes += bytes;
        socket.pop_front();
    }
    Some(packet)
}

/// What the buffers of a VM's card beyond the first cost for a packet: a page each (`receive_mergeable`).
pub(crate) fn further_buffers(each: Duration, bytes: u32) -> Duration {
    each * u64::from(bytes.div_ceil(4096).max(1) - 1)
}
