//! What a hostile guest, or a hostile front-end, does to a switch: the attacks of tests and measurements.
//!
//! An attacker has the VMs of two ports: one that misbehaves, and an accomplice. Both are the least urgent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::net::{SendFlags, send};
use vm_memory::{Bytes, GuestAddress};

use super::{FrontEnd, Options, frame};
use crate::driver::{DESC_BYTES, DESC_F_NEXT, DESC_F_WRITE};
use crate::features;
use crate::frame::HEADER_BYTES;
use crate::narrow::{to_u32, to_usize};
use crate::session::{RX, TX};

/// `VIRTQ_DESC_F_INDIRECT`.
const DESC_F_INDIRECT: u16 = 4;

const SET_FEATURES: u32 = 2;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_VRING_ENABLE: u32 = 18;

/// How long a port may be away before an attack on it counts as an error.
const PORT_TIMEOUT: Duration = Duration::from_secs(5);

const BROADCAST: [u8; 6] = [0xff; 6];

/// When the attacker acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Its rings hold work for a plane for as long as a round trip takes. It acts before each.
    Backlog,
    /// Its port goes out of service: it connects again, and acts once.
    Once,
    /// It keeps the control thread busy, and acts all the time.
    Always,
}

/// One attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    pub name: &'static str,
    pub pace: Pace,
    /// The network has VLANs: the attacker's port is in VLAN 10.
    pub has_vlans: bool,
    /// Properties of the VM that misbehaves.
    options: fn() -> Options,
    /// Done once for each connection.
    prepare: fn(&mut Attacker) -> io::Result<()>,
    act: fn(&mut Attacker) -> io::Result<()>,
}

/// A chain of one table with `count` descriptors.
fn describe_table(
    guest: &mut FrontEnd,
    queue: usize,
    head: u16,
    (table, count): (u64, u16),
) -> io::Result<()> {
    let bytes = u32::from(count) * to_u32(to_usize(DESC_BYTES));
    guest.describe(queue, head, table, bytes, DESC_F_INDIRECT, 0)
}

/// Two VMs that attack a switch.
#[derive(Debug)]
pub struct Attacker {
    attack: Attack,
    sockets: [PathBuf; 2],
    addresses: [[u8; 6]; 2],
    guest: Option<FrontEnd>,
    accomplice: FrontEnd,
    /// Acts so far.
    count: u32,
    /// Descriptors that stay open.
    files: Vec<OwnedFd>,
}

impl Attacker {
    /// An attacker with these sockets and addresses: of the VM that misbehaves, and of its accomplice.
    ///
    /// # Errors
    /// If the accomplice cannot connect.
    pub fn new(attack: Attack, sockets: [PathBuf; 2], addresses: [[u8; 6]; 2]) -> io::Result<Attacker> {
        let accomplice = FrontEnd::connected(&sockets[1], Options::default())?;
        Ok(Attacker { attack, sockets, addresses, guest: None, accomplice, count: 0, files: Vec::new() })
    }

    /// Connects, unless the attack goes on with the connection that it has.
    ///
    /// # Errors
    /// If the port does not accept a connection within five seconds.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.guest.is_some() && self.attack.pace != Pace::Once {
            return Ok(());
        }
        let end = Instant::now() + PORT_TIMEOUT;
        loop {
            match self.connect() {
                // The switch may still be about to end the last connection.
                Err(error) if has_ended(&error) && Instant::now() < end => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                result => return result,
            }
        }
    }

    fn connect(&mut self) -> io::Result<()> {
        self.guest = None;
        self.guest = Some(FrontEnd::connected(&self.sockets[0], (self.attack.options)())?);
        (self.attack.prepare)(self)
    }

    /// Acts once. If the switch has ended the connection, the next [`Attacker::prepare`] makes a new one.
    ///
    /// # Errors
    /// If the switch has ended, or memory or descriptors of the attacker's own are missing.
    pub fn act(&mut self) -> io::Result<()> {
        self.count = self.count.wrapping_add(1);
        match (self.attack.act)(self) {
            Err(error) if has_ended(&error) => {
                self.guest = None;
                Ok(())
            }
            result => result,
        }
    }

    fn guest(&mut self) -> io::Result<&mut FrontEnd> {
        self.guest.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Fills the TX ring with these frames, behind headers of zeros.
    fn fill(&mut self, frames: &[Vec<u8>]) -> io::Result<()> {
        self.guest()?.flood_with_all(frames)
    }

    /// Offers all frames of the TX ring that the switch has returned.
    fn send_all(&mut self) -> io::Result<()> {
        self.guest()?.offer_again(TX, u16::MAX).map(drop)
    }

    /// Exchanges frames with its accomplice, as far as rings have room.
    fn exchange(&mut self) -> io::Result<()> {
        self.accomplice.offer_again(TX, u16::MAX)?;
        self.accomplice.refill(RX, 1)?;
        let guest = self.guest()?;
        guest.refill(RX, 1)?;
        guest.offer_again(TX, u16::MAX).map(drop)
    }

    /// Frames from the guest to its accomplice, and back.
    fn prepare_exchange(&mut self, bytes: usize) -> io::Result<()> {
        let [own, other] = self.addresses;
        self.fill(&[frame(other, own, 0, bytes)])?;
        self.accomplice.flood_with(&frame(own, other, 0, bytes))
    }

    /// Chains in the TX ring, each an indirect table of as many descriptors that `describe` writes.
    fn fill_tables(
        &mut self,
        count: u16,
        describe: impl Fn(&FrontEnd, u16, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let one = vec![frame([0; 6], [0; 6], 0, 64)];
        self.fill(&one)?;
        let entries = self.attack_entries();
        let guest = self.guest()?;
        // The tables are in the buffers of the RX ring, which is not used.
        for head in 0..entries {
            let table = guest.buffer(RX, head);
            for index in 0..count {
                let place = table + u64::from(index) * DESC_BYTES;
                describe(guest, index, place, guest.buffer(TX, head))?;
            }
            describe_table(guest, TX, head, (table, count))?;
        }
        Ok(())
    }

    fn attack_entries(&self) -> u16 {
        (self.attack.options)().entries
    }

    /// Receive buffers in pieces of `piece` bytes, `count` in each.
    fn cut_buffers(&mut self, piece: u32, count: u16) -> io::Result<()> {
        self.prepare_exchange(1_514)?;
        let entries = self.attack_entries();
        let guest = self.guest()?;
        for head in 0..entries {
            // A table in the buffer itself, for pieces behind it.
            let table = guest.buffer(RX, head);
            for index in 0..count {
                let is_last = index + 1 == count;
                let flags = if is_last { DESC_F_WRITE } else { DESC_F_WRITE | DESC_F_NEXT };
                let place = table + u64::from(index) * DESC_BYTES;
                guest.describe_at(place, table + 512, piece, flags, index + 1)?;
            }
            describe_table(guest, RX, head, (table, count))?;
        }
        Ok(())
    }
}

/// Has the switch ended the connection, or has it not accepted one? A switch that has ended has no socket.
fn has_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, UnexpectedEof};
    let kinds = [BrokenPipe, ConnectionRefused, ConnectionReset, NotConnected, UnexpectedEof];
    kinds.contains(&error.kind())
}

/// An eventfd that blocks, at its maximum: a `write` to it waits until somebody reads it.
///
/// # Errors
/// If the kernel has no descriptor left.
pub fn full_eventfd() -> io::Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes())?;
    Ok(event)
}

const fn attack(
    name: &'static str,
    pace: Pace,
    prepare: fn(&mut Attacker) -> io::Result<()>,
    act: fn(&mut Attacker) -> io::Result<()>,
) -> Attack {
    Attack { name, pace, has_vlans: false, options: Options::default, prepare, act }
}

fn nothing(_: &mut Attacker) -> io::Result<()> {
    Ok(())
}

/// All attacks.
pub const ATTACKS: &[Attack] = &[
    attack("frames to another VM", Pace::Backlog, |own| own.prepare_exchange(64), Attacker::exchange),
    attack("long frames to another VM", Pace::Backlog, |own| own.prepare_exchange(1_514), Attacker::exchange),
    attack("broadcasts", Pace::Backlog, prepare_broadcasts, Attacker::send_all),
    attack("frames from ever other addresses", Pace::Backlog, prepare_addresses, Attacker::send_all),
    attack("new addresses after each reconnection", Pace::Once, prepare_new_addresses, Attacker::send_all),
    Attack { has_vlans: true, ..attack("tags behind tags", Pace::Backlog, prepare_tags, Attacker::send_all) },
    attack("chains that go in circles", Pace::Backlog, prepare_circles, Attacker::send_all),
    attack("tables of empty descriptors", Pace::Backlog, prepare_empty_tables, Attacker::send_all),
    attack("frames in as many pieces as possible", Pace::Backlog, prepare_pieces, Attacker::send_all),
    attack("headers that do not fit their frames", Pace::Backlog, prepare_headers, Attacker::send_all),
    attack(
        "receive buffers in small pieces",
        Pace::Backlog,
        |own| own.cut_buffers(128, 13),
        Attacker::exchange,
    ),
    attack("receive buffers in tiny pieces", Pace::Once, |own| own.cut_buffers(12, 16), Attacker::exchange),
    attack("kicks", Pace::Always, nothing, kick),
    attack("more entries than the ring has", Pace::Once, nothing, |own| {
        let index = 300 + (own.count % 50_000) as u16;
        own.guest()?.publish_avail(TX, index)
    }),
    attack("frames that leave memory", Pace::Once, nothing, leave_memory),
    attack("receive buffers outside of memory", Pace::Once, prepare_outside, Attacker::exchange),
    Attack {
        options: || Options { sealable: false, ..Options::default() },
        ..attack("memory that shrinks", Pace::Once, |own| own.prepare_exchange(64), shrink)
    },
    attack("full call events that block", Pace::Backlog, prepare_full_calls, Attacker::exchange),
    attack("call events with many waiters", Pace::Backlog, prepare_waiters, Attacker::exchange),
    attack("full error events that block", Pace::Once, prepare_full_error, |own| {
        own.guest()?.publish_avail(TX, 40_000)
    }),
    attack("events that are pipes", Pace::Always, nothing, hand_over_pipe),
    attack("rings disabled and enabled", Pace::Always, nothing, toggle),
    attack("features and interrupts again", Pace::Always, nothing, negotiate),
    attack("connections that end at once", Pace::Always, nothing, |own| {
        own.guest = None;
        own.prepare()
    }),
    attack("rings broken and reset", Pace::Always, nothing, |own| {
        own.guest()?.publish_avail(TX, 40_000)?;
        own.guest = None;
        own.prepare()
    }),
    attack("large memory, mapped and removed", Pace::Always, nothing, map_much),
    attack("requests byte by byte", Pace::Always, nothing, dribble),
    attack("requests without sense", Pace::Always, nothing, |own| {
        let request = own.count % 64;
        own.guest()?.send_request(request, &[u64::MAX, 3, 5, 7], &[])
    }),
];

fn prepare_broadcasts(own: &mut Attacker) -> io::Result<()> {
    let from = own.addresses[0];
    own.fill(&[frame(BROADCAST, from, 0, 64)])
}

/// To an unknown address, from as many senders as the ring has entries.
fn prepare_addresses(own: &mut Attacker) -> io::Result<()> {
    let senders: Vec<_> =
        (0..=255).map(|number| frame([2, 0xee, 0, 0, 0, 0], [2, 0xaa, 0, 0, 1, number], 0, 64)).collect();
    own.fill(&senders)
}

/// Every entry of the table that changes makes planes forget routes that they have cached.
fn prepare_new_addresses(own: &mut Attacker) -> io::Result<()> {
    let [from, to] = own.addresses;
    let round = own.count.to_le_bytes();
    let sender = |number| frame(to, [2, round[0], round[1], round[2], from[5], number], 0, 64);
    let senders: Vec<_> = (0..=255).map(sender).collect();
    own.fill(&senders)
}

fn prepare_tags(own: &mut Attacker) -> io::Result<()> {
    let [from, to] = own.addresses;
    let mut stacked = frame(to, from, 0, 100);
    // A priority alone, and behind it VLAN 20.
    stacked.splice(12..12, [0x81, 0, 0xe0, 0, 0x81, 0, 0, 20]);
    own.fill(&[stacked])
}

fn prepare_circles(own: &mut Attacker) -> io::Result<()> {
    let entries = own.attack_entries();
    own.fill(&[frame([0; 6], [0; 6], 0, 64)])?;
    let guest = own.guest()?;
    for head in 0..entries {
        guest.describe(TX, head, guest.buffer(TX, head), 1, DESC_F_NEXT, head)?;
    }
    Ok(())
}

fn prepare_empty_tables(own: &mut Attacker) -> io::Result<()> {
    own.fill_tables(100, |guest, index, place, buffer| {
        guest.describe_at(place, buffer, 0, if index < 99 { DESC_F_NEXT } else { 0 }, index + 1)
    })
}

/// Frames of 64 bytes with their headers, four bytes in each descriptor.
fn prepare_pieces(own: &mut Attacker) -> io::Result<()> {
    let [from, to] = own.addresses;
    let whole = [&[0; HEADER_BYTES][..], &frame(to, from, 0, 64)].concat();
    let pieces = u16::try_from(whole.len().div_ceil(4)).map_err(super::other)?;
    own.fill_tables(pieces, |guest, index, place, buffer| {
        guest.memory.write_slice(&whole, GuestAddress(buffer)).map_err(super::other)?;
        let is_last = index + 1 == pieces;
        let flags = if is_last { 0 } else { DESC_F_NEXT };
        guest.describe_at(place, buffer + 4 * u64::from(index), 4, flags, index + 1)
    })
}

/// A checksum outside of the frame, and a segment without a size.
fn prepare_headers(own: &mut Attacker) -> io::Result<()> {
    let [from, to] = own.addresses;
    own.fill(&[frame(to, from, 0, 64)])?;
    let entries = own.attack_entries();
    let guest = own.guest()?;
    let headers: [[u8; HEADER_BYTES]; 2] =
        [[1, 0, 0, 0, 0, 0, 0, 4, 16, 0, 0, 0], [1, 1, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0]];
    for (head, header) in (0..entries).zip(headers.iter().cycle()) {
        guest.memory.write_slice(header, GuestAddress(guest.buffer(TX, head))).map_err(super::other)?;
    }
    Ok(())
}

fn kick(own: &mut Attacker) -> io::Result<()> {
    let guest = own.guest()?;
    for _ in 0..32 {
        guest.kick(TX);
        guest.kick(RX);
    }
    Ok(())
}

fn leave_memory(own: &mut Attacker) -> io::Result<()> {
    let [from, to] = own.addresses;
    let guest = own.guest()?;
    // Its first 100 bytes are the last of the memory.
    let place = guest.buffer(TX, 255) + 2048 - 100;
    let start = [&[0; HEADER_BYTES][..], &frame(to, from, 0, 64)].concat();
    guest.memory.write_slice(&start, GuestAddress(place)).map_err(super::other)?;
    guest.describe(TX, 1, place, 60_000, 0, 0)?;
    guest.offer(TX, 1)
}

fn prepare_outside(own: &mut Attacker) -> io::Result<()> {
    own.prepare_exchange(64)?;
    let entries = own.attack_entries();
    let guest = own.guest()?;
    (0..entries).try_for_each(|head| guest.describe(RX, head, 1 << 40, 2048, DESC_F_WRITE, 0))
}

/// The switch finds frames in memory that is gone.
fn shrink(own: &mut Attacker) -> io::Result<()> {
    own.accomplice.offer_again(TX, u16::MAX)?;
    own.accomplice.refill(RX, 1)?;
    let guest = own.guest()?;
    guest.offer_again(TX, u16::MAX)?;
    guest.shorten_memory()?;
    guest.kick(TX);
    Ok(())
}

fn hand_over(guest: &FrontEnd, request: u32, queue: usize, file: &OwnedFd) -> io::Result<()> {
    guest.send_request(request, &[queue as u64], &[file.as_fd()])
}

fn prepare_full_calls(own: &mut Attacker) -> io::Result<()> {
    own.prepare_exchange(64)?;
    own.files = vec![full_eventfd()?, full_eventfd()?];
    let files = own.files.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
    let guest = own.guest()?;
    for queue in [RX, TX] {
        hand_over(guest, SET_VRING_CALL, queue, &files[queue])?;
    }
    guest.request(1, &[]).map(drop)
}

/// The kernel wakes all of them within the signal.
fn prepare_waiters(own: &mut Attacker) -> io::Result<()> {
    const WAITERS: usize = 256;
    own.prepare_exchange(64)?;
    let mut sets = Vec::with_capacity(WAITERS);
    let guest = own.guest()?;
    for _ in 0..WAITERS {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for queue in [RX, TX] {
            let call = &guest.queues[queue].call;
            let data = epoll::EventData::new_u64(queue as u64);
            epoll::add(&set, call, data, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        sets.push(set);
    }
    own.files = sets;
    Ok(())
}

fn prepare_full_error(own: &mut Attacker) -> io::Result<()> {
    own.files = vec![full_eventfd()?];
    let file = own.files[0].try_clone()?;
    let guest = own.guest()?;
    hand_over(guest, SET_VRING_ERR, TX, &file)?;
    guest.request(1, &[]).map(drop)
}

fn hand_over_pipe(own: &mut Attacker) -> io::Result<()> {
    let (_read, write) = rustix::pipe::pipe()?;
    hand_over(own.guest()?, SET_VRING_CALL, TX, &write)
}

fn toggle(own: &mut Attacker) -> io::Result<()> {
    let guest = own.guest()?;
    for (queue, on) in [(RX, 0), (RX, 1), (TX, 0), (TX, 1)] {
        guest.send_request(SET_VRING_ENABLE, &[queue as u64 | on << 32], &[])?;
    }
    Ok(())
}

fn negotiate(own: &mut Attacker) -> io::Result<()> {
    let guest = own.guest()?;
    guest.send_request(SET_FEATURES, &[features::OFFERED], &[])?;
    guest.replace_call(TX)
}

/// Eight regions of 16 GiB in a file with holes.
fn map_much(own: &mut Attacker) -> io::Result<()> {
    const REGION: u64 = 16 << 30;
    let file = rustix::fs::memfd_create("large", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, 8 * REGION)?;
    let region = |number: u64| [number * REGION, REGION, number * REGION, number * REGION];
    let body: Vec<u64> = std::iter::once(8).chain((0..8).flat_map(region)).collect();
    let files = [file.as_fd(); 8];
    own.guest()?.send_request(SET_MEM_TABLE, &body, &files)?;
    own.guest = None;
    own.prepare()
}

/// A request that comes byte by byte.
fn dribble(own: &mut Attacker) -> io::Result<()> {
    let bytes = [SET_FEATURES, 1, 8].map(u32::to_ne_bytes).concat();
    let bytes = [&bytes[..], &features::OFFERED.to_ne_bytes()].concat();
    let at = to_usize(own.count.into()) % bytes.len();
    let stream = own.guest()?.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
    send(stream, &bytes[at..=at], SendFlags::NOSIGNAL)?;
    std::thread::sleep(Duration::from_micros(50));
    Ok(())
}
