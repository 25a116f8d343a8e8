//! Layout of the memory that guest and host share, version 3 of `docs/vmrpc.md`.
//!
//! The memory consists of 32-bit little-endian words; offsets are in bytes. Each word has one writer, or is
//! changed atomically. A test compares this file with `guest-module/vmrpc.h`.

/// First word: "PVRM".
pub const MAGIC: u32 = 0x4d52_5650;
/// Version of the layout.
pub const VERSION: u32 = 3;
/// Bytes of the shared memory. The size of a PCI BAR is a power of two.
pub const BYTES: u32 = 1 << 23;
/// Queues, one for each vCPU. More vCPUs share them.
pub const QUEUES: u32 = 8;
/// Slots of a queue: calls in progress at once, and entries of its submission ring.
pub const QUEUE_SLOTS: u32 = 8;
/// Slots of all queues; those of queue 0 come first.
pub const SLOTS: u32 = 64;
/// Bytes of a slot's data.
pub const DATA_BYTES: u32 = 1 << 16;
/// Sockets of a guest.
pub const SOCKETS: u32 = 4096;
/// Entries of an event queue. Each socket and each slot is in it at most once, so it never overflows.
pub const EVENTS: u32 = 8192;

/// Host: [`MAGIC`]. This word, the next one and [`GUEST_VERSION_AT`] have the same offsets in every version.
pub const MAGIC_AT: u32 = 0;
/// Host: [`VERSION`].
pub const VERSION_AT: u32 = 4;
/// Host: [`STATUS_SERVING`] or [`STATUS_GONE`].
pub const STATUS_AT: u32 = 8;
/// Host: number of hello calls made in this memory.
pub const EPOCH_AT: u32 = 12;
/// Host: number of servers started in this memory. A new number means that all sockets are lost.
pub const INCARNATION_AT: u32 = 16;
/// Guest: its protocol version, written before anything else; then the guest rings the doorbell.
pub const GUEST_VERSION_AT: u32 = 64;
/// Host: 1 while the server sleeps and needs the doorbell.
pub const HOST_SLEEPING_AT: u32 = 128;
/// The queues. [`in_queue`] has the offsets within one.
pub const QUEUES_AT: u32 = 0x10000;
/// Bytes of a queue.
pub const QUEUE_BYTES: u32 = 0x10000;
/// Host: what each socket is ready for, as `poll` bits.
pub const READY_AT: u32 = 0x90000;
/// Each socket's pending error, 0 for none: the host sets it, the guest exchanges it for 0.
pub const ERROR_AT: u32 = 0x94000;
/// Changed atomically: for each socket, then each slot, a bit for each event queue that holds it.
pub const QUEUED_AT: u32 = 0x98000;
/// Guest: for each socket, the queue of the vCPU that waits for it.
pub const HOME_AT: u32 = 0xa0000;
/// The slots' headers.
pub const HEADERS_AT: u32 = 0xa4000;
/// Bytes of a slot's header.
pub const HEADER_BYTES: u32 = 256;
/// The slots' data.
pub const DATA_AT: u32 = 0x10_0000;

/// Offsets in a queue.
pub mod in_queue {
    /// Host: number of events ever queued.
    pub const EVENT_HEAD: u32 = 0;
    /// Guest: 1 while an event of this queue needs an interrupt.
    pub const NEED_IRQ: u32 = 4096;
    /// Guest: number of events ever taken.
    pub const EVENT_TAIL: u32 = 4160;
    /// Guest: number of calls ever submitted.
    pub const SUBMISSION_HEAD: u32 = 4224;
    /// Guest: the submission ring.
    pub const SUBMISSIONS: u32 = 8192;
    /// Host: the event ring.
    pub const EVENTS: u32 = 16384;
}

/// The server answers calls.
pub const STATUS_SERVING: u32 = 1;
/// The server has ended, and all sockets are closed.
pub const STATUS_GONE: u32 = 2;

/// State of a slot, its first word: the guest may write a request.
pub const FREE: u32 = 0;
/// State of a slot: the request is complete.
pub const SUBMITTED: u32 = 1;
/// State of a slot: the response is complete.
pub const DONE: u32 = 2;

/// Words of a slot's header that the guest writes.
pub mod request {
    /// State: the guest writes `SUBMITTED`, then the host `DONE`, then the guest `FREE`.
    pub const STATE: u32 = 0;
    /// 0 while the caller spins. Otherwise the caller sleeps and needs an event in the queue of this number
    /// minus 1.
    pub const WANT_EVENT: u32 = 1;
    /// The call's number, one of `Op`.
    pub const OP: u32 = 2;
    /// The socket's number.
    pub const SOCKET: u32 = 3;
    /// Flags of `send` and `recv`.
    pub const FLAGS: u32 = 4;
    /// Bytes of data to send, or to receive at most.
    pub const LENGTH: u32 = 5;
    /// First argument.
    pub const FIRST: u32 = 6;
    /// Second argument.
    pub const SECOND: u32 = 7;
    /// Options of level `SOL_SOCKET`, as bits of `call::options`.
    pub const OPTIONS: u32 = 8;
    /// Seconds of `SO_LINGER`.
    pub const LINGER: u32 = 9;
    /// Address: 4 or 6, or 0 for none; then the port and four words of address.
    pub const ADDRESS: u32 = 10;
}

/// Words of a slot's header that the host writes.
pub mod response {
    /// The call's return value, or a negative errno.
    pub const RESULT: u32 = 32;
    /// Bytes of data in the slot.
    pub const LENGTH: u32 = 33;
    /// Flags of a received message.
    pub const FLAGS: u32 = 34;
    /// Number of the new socket.
    pub const SOCKET: u32 = 35;
    /// Address, as in a request.
    pub const ADDRESS: u32 = 36;
}
