//! Where everything stands in the memory that guest and host share: version 3 of `docs/vmrpc.md`.
//!
//! Everything is made of 32-bit little-endian words; offsets are bytes. Each word has one writer, or is
//! changed atomically. `guest-module/vmrpc.h` says the same in C, and a test compares both.

/// First word: "PVRM".
pub const MAGIC: u32 = 0x4d52_5650;
/// Version of the layout.
pub const VERSION: u32 = 3;
/// Bytes of the shared memory; a PCI BAR is a power of two.
pub const BYTES: u32 = 1 << 23;
/// Queues: one for each virtual processor; processors beyond share them.
pub const QUEUES: u32 = 8;
/// Calls of a queue that may be under way at once, and words of its ring of submissions.
pub const QUEUE_SLOTS: u32 = 8;
/// Calls that may be under way at once; those of queue 0 come first.
pub const SLOTS: u32 = 64;
/// Bytes of a call's data.
pub const DATA_BYTES: u32 = 1 << 16;
/// Sockets of a guest.
pub const SOCKETS: u32 = 4096;
/// Words of an event queue: each socket and each slot is in it once at most.
pub const EVENTS: u32 = 8192;

/// Host: [`MAGIC`]. This word, the next one and [`GUEST_VERSION_AT`] are the same in every version.
pub const MAGIC_AT: u32 = 0;
/// Host: [`VERSION`].
pub const VERSION_AT: u32 = 4;
/// Host: what it does, one of the constants `STATUS_`.
pub const STATUS_AT: u32 = 8;
/// Host: how many guests said [`Op::Hello`](crate::call::Op::Hello) in this memory.
pub const EPOCH_AT: u32 = 12;
/// Host: servers that began in this memory; another number means that all sockets are gone.
pub const INCARNATION_AT: u32 = 16;
/// Guest: the version that it speaks, before anything else; then it rings the doorbell.
pub const GUEST_VERSION_AT: u32 = 64;
/// Host: 1 while it sleeps and wants the doorbell.
pub const HOST_SLEEPING_AT: u32 = 128;
/// The queues; what stands in each is in [`in_queue`].
pub const QUEUES_AT: u32 = 0x10000;
/// Bytes of a queue.
pub const QUEUE_BYTES: u32 = 0x10000;
/// Host: what each socket is ready for, in the bits of `poll`.
pub const READY_AT: u32 = 0x90000;
/// Exchanged: each socket's pending error, 0 for none.
pub const ERROR_AT: u32 = 0x94000;
/// Changed atomically: for each socket and slot (from [`SOCKETS`] on), a bit for each event queue it is in.
pub const QUEUED_AT: u32 = 0x98000;
/// Guest: for each socket the queue of the virtual processor that waits for it.
pub const HOME_AT: u32 = 0xa0000;
/// The slots' headers.
pub const HEADERS_AT: u32 = 0xa4000;
/// Bytes of a slot's header.
pub const HEADER_BYTES: u32 = 256;
/// The slots' data.
pub const DATA_AT: u32 = 0x10_0000;

/// Places in a queue, in bytes.
pub mod in_queue {
    /// Host: events that were ever put into it.
    pub const EVENT_HEAD: u32 = 0;
    /// Guest: 1 while an event of this queue needs an interrupt.
    pub const NEED_IRQ: u32 = 4096;
    /// Guest: events that it ever took.
    pub const EVENT_TAIL: u32 = 4160;
    /// Guest: calls that it ever submitted.
    pub const SUBMISSION_HEAD: u32 = 4224;
    /// Guest: the ring of submissions.
    pub const SUBMISSIONS: u32 = 8192;
    /// Host: the events.
    pub const EVENTS: u32 = 16384;
}

/// [`STATUS_AT`]: calls are answered.
pub const STATUS_SERVING: u32 = 1;
/// [`STATUS_AT`]: nobody answers any more, and all sockets are closed.
pub const STATUS_GONE: u32 = 2;

/// A slot's state, its first word: the guest is to fill it in.
pub const FREE: u32 = 0;
/// The guest has filled it in.
pub const SUBMITTED: u32 = 1;
/// The host has answered.
pub const DONE: u32 = 2;

/// Words of a slot's header: the guest's, from here.
pub mod request {
    /// State of the slot: the guest writes `SUBMITTED`, then the host `DONE`, then the guest `FREE`.
    pub const STATE: u32 = 0;
    /// Not 0: the caller sleeps, and wants an event when the call is done; 1 more than its queue.
    pub const WANT_EVENT: u32 = 1;
    /// Which call.
    pub const OP: u32 = 2;
    /// Which socket.
    pub const SOCKET: u32 = 3;
    /// Flags of `send` and `recv`.
    pub const FLAGS: u32 = 4;
    /// Bytes of data sent, or that may be received.
    pub const LENGTH: u32 = 5;
    /// First argument.
    pub const FIRST: u32 = 6;
    /// Second argument.
    pub const SECOND: u32 = 7;
    /// Options of level `SOL_SOCKET`, as bits.
    pub const OPTIONS: u32 = 8;
    /// Seconds of `SO_LINGER`.
    pub const LINGER: u32 = 9;
    /// Address: 0 for none, else 4 or 6. Then the port and four words of address.
    pub const ADDRESS: u32 = 10;
    /// Words that the host reads.
    pub const WORDS: usize = 16;
}

/// Words of a slot's header: the host's.
pub mod response {
    /// What the call returns, or the negated error.
    pub const RESULT: u32 = 32;
    /// Bytes of data in the slot.
    pub const LENGTH: u32 = 33;
    /// Flags of a received message.
    pub const FLAGS: u32 = 34;
    /// The new socket.
    pub const SOCKET: u32 = 35;
    /// Address, as in a request.
    pub const ADDRESS: u32 = 36;
}
