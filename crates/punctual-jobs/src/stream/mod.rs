//! A stream as TCP's bulk transfer: a window that acknowledgements open, smaller after a loss.
//!
//! # Rules
//! All in whole packets: a packet is TCP's segment of full size.
//!
//! - **Sender.** Sends while fewer packets are on their way than the congestion window, and than the flow's
//!   window, allow; the latter is TCP's receive window or send buffer. How the congestion window moves and
//!   when silence ends is the choice of [`Control`]: `basic` has a fixed timeout, `tcp` follows the RFCs.
//! - **Receiver.** Acknowledges every `ack_every` packets, every packet that leaves or fills a gap at once,
//!   and a remaining packet after [`ACK_DELAY_NS`] (RFC 5681, section 4.2). Packets beyond a gap are kept.

mod basic;
mod cubic;
mod receiver;
mod rto;
mod tcp;

pub use basic::Basic;
pub use receiver::{ACK_DELAY_NS, Received, Receiver};
pub use tcp::{Algorithm, Counts, Tcp, TcpParams};

/// How a sender finds its congestion window and when it gives up waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", deny_unknown_fields))]
pub enum Control {
    /// See [`Basic`].
    Basic {
        /// Silence after which everything unacknowledged is sent again; doubles each time.
        timeout_ns: u64,
    },
    /// See [`Tcp`].
    Tcp(TcpParams),
}

impl Control {
    /// Its name in host files and results.
    pub fn name(&self) -> &'static str {
        match self {
            Control::Basic { .. } => "basic",
            Control::Tcp(TcpParams { algorithm: Algorithm::Reno, .. }) => "reno",
            Control::Tcp(TcpParams { algorithm: Algorithm::Cubic, .. }) => "cubic",
        }
    }
}

/// The sender of a stream.
#[derive(Clone, Debug)]
pub enum Sender {
    Basic(Basic),
    Tcp(Tcp),
}

impl Sender {
    /// A sender with at most `window` packets on their way.
    pub fn new(window: u32, control: Control) -> Self {
        match control {
            Control::Basic { timeout_ns } => Sender::Basic(Basic::new(window, timeout_ns)),
            Control::Tcp(params) => Sender::Tcp(Tcp::new(window, params)),
        }
    }

    /// The next packet, if the window allows one; it counts as sent at `now_ns`. True: it was sent before.
    pub fn send(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        match self {
            Sender::Basic(sender) => sender.send(),
            Sender::Tcp(sender) => sender.send(now_ns),
        }
    }

    /// Everything before `up_to` has arrived. Returns a packet to send again at once.
    pub fn acknowledge(&mut self, up_to: u64, now_ns: u64) -> Option<u64> {
        match self {
            Sender::Basic(sender) => sender.acknowledge(up_to),
            Sender::Tcp(sender) => sender.acknowledge(up_to, now_ns),
        }
    }

    /// Silence has lasted until [`Sender::expires_at_ns`].
    pub fn expire(&mut self) {
        match self {
            Sender::Basic(sender) => sender.give_up(),
            Sender::Tcp(sender) => sender.expire(),
        }
    }

    /// When silence has lasted too long, as of what happened at `now_ns`; `None`: nothing is on its way.
    pub fn expires_at_ns(&self, now_ns: u64) -> Option<u64> {
        match self {
            Sender::Basic(sender) => sender.waits().then(|| now_ns.saturating_add(sender.patience_ns())),
            Sender::Tcp(sender) => sender.expires_at_ns(),
        }
    }

    /// One beyond the greatest packet ever sent.
    pub fn sent(&self) -> u64 {
        match self {
            Sender::Basic(sender) => sender.sent(),
            Sender::Tcp(sender) => sender.sent(),
        }
    }

    /// The sender by the RFCs, if it is one.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Sender::Basic(_) => None,
            Sender::Tcp(sender) => Some(sender),
        }
    }
}
