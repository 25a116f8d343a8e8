//! Packet files as a wire: one is replayed at its timestamps, another captures what arrives.
//!
//! The format is that of libpcap (`pcap-savefile(5)`), with link type 1, Ethernet. It has two headers of
//! fixed size, so it is read and written here: the crate `pcap-file` 2.0 rejects files with truncated packets
//! (`tcpdump -s`), and the release candidates of 3.0 reject packets above the snapshot length and link types
//! with an FCS length, which libpcap reads. Tests cover both.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use vm_memory::VolatileSlice;

use crate::frame::{FRAME_BYTES_MAX, HEADER_BYTES};
use crate::narrow::to_u32;
use crate::wire::Wire;

/// Timestamps in microseconds, and in nanoseconds.
const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;
const ETHERNET: u32 = 1;
const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;

/// Why a file cannot be replayed, or appended to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read packets")]
    Read(#[from] io::Error),
    #[error(
        "not a pcap file: it begins with {0:#010x}, expected 0xa1b2c3d4 or 0xa1b23c4d (pcapng is not read)"
    )]
    Magic(u32),
    #[error("a pcap file of link type {0}; expected 1, Ethernet")]
    Link(u32),
    #[error("cannot append: it does not begin with the header of a file that was captured here")]
    Foreign,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Since the epoch.
    pub time: Duration,
    /// The captured bytes.
    pub frame: Vec<u8>,
}

#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    is_big: bool,
    unit_ns: u32,
}

impl<R: Read> Reader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// When it is not a pcap file of Ethernet packets.
    pub fn new(mut from: R) -> Result<Self, Error> {
        let mut header = [0; FILE_HEADER_BYTES];
        from.read_exact(&mut header)?;
        let is_magic = |word: u32| word == MAGIC_US || word == MAGIC_NS;
        let is_big = is_magic(word(&header, 0, true));
        let magic = word(&header, 0, is_big);
        if !is_magic(magic) {
            return Err(Error::Magic(magic));
        }
        // The upper bits are the FCS length.
        match word(&header, 20, is_big) & 0xffff {
            ETHERNET => {}
            link => return Err(Error::Link(link)),
        }
        Ok(Reader { from, is_big, unit_ns: if magic == MAGIC_NS { 1 } else { 1_000 } })
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// When the file ends in the middle of a packet, or a packet is longer than any frame.
    pub fn next_packet(&mut self) -> io::Result<Option<Packet>> {
        let mut header = [0; PACKET_HEADER_BYTES];
        match self.from.read(&mut header)? {
            0 => return Ok(None),
            read => self.from.read_exact(&mut header[read..])?,
        }
        let [seconds, part, bytes] = [0, 4, 8].map(|at| word(&header, at, self.is_big));
        if bytes > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("a packet of {bytes} bytes, at most {FRAME_BYTES_MAX}")));
        }
        let mut frame = vec![0; bytes as usize];
        self.from.read_exact(&mut frame)?;
        let part = Duration::from_nanos(u64::from(part) * u64::from(self.unit_ns));
        Ok(Some(Packet { time: Duration::from_secs(seconds.into()) + part, frame }))
    }
}

fn word(bytes: &[u8], at: usize, is_big: bool) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}

/// The header of a captured file: version 2.4, UTC.
fn file_header() -> [[u8; 4]; FILE_HEADER_BYTES / 4] {
    [MAGIC_NS, 4 << 16 | 2, 0, 0, FRAME_BYTES_MAX, ETHERNET].map(u32::to_le_bytes)
}

/// Writes packets with timestamps in nanoseconds.
#[derive(Debug)]
pub struct Writer<W>(W);

impl<W: Write> Writer<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut to: W) -> io::Result<Self> {
        to.write_all(file_header().as_flattened())?;
        Ok(Writer(to))
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> io::Result<()> {
        let bytes = to_u32(frame.len());
        let words = [(time.as_secs() & 0xffff_ffff) as u32, time.subsec_nanos(), bytes, bytes];
        self.0.write_all(&words.map(u32::to_le_bytes).concat())?;
        self.0.write_all(frame)
    }
}

/// A file that is replayed.
#[derive(Debug)]
struct Replay {
    packets: Reader<BufReader<File>>,
    next: Option<Packet>,
    /// The time of the first packet, here and in the file.
    start: Option<(Instant, Duration)>,
}

/// Packet files as a wire.
#[derive(Debug)]
pub struct Files {
    replay: Option<Replay>,
    capture: Option<Writer<BufWriter<File>>>,
    /// Expires when the next packet is due.
    timer: OwnedFd,
    frame: Vec<u8>,
}

impl Files {
    /// Replays one file, and captures what arrives to another. The first packet is sent at once, the others
    /// at their distance to it.
    ///
    /// # Errors
    /// When a file is not valid, or the kernel provides no timer.
    pub fn new(replay: Option<File>, capture: Option<File>) -> Result<Files, Error> {
        let replay = match replay {
            Some(file) => {
                let mut packets = Reader::new(BufReader::new(file))?;
                Some(Replay { next: packets.next_packet()?, packets, start: None })
            }
            None => None,
        };
        let capture = capture.map(|file| Writer::new(BufWriter::new(file))).transpose()?;
        Files::of(replay, capture)
    }

    /// Appends what arrives to a captured file, which must be open for appending.
    ///
    /// # Errors
    /// When the file was not captured here.
    pub fn append(mut file: File) -> Result<Files, Error> {
        if file.metadata()?.len() == 0 {
            return Files::new(None, Some(file));
        }
        let mut header = [0; FILE_HEADER_BYTES];
        let read = file.read_exact(&mut header);
        if read.is_err() || header[..] != *file_header().as_flattened() {
            return Err(Error::Foreign);
        }
        Files::of(None, Some(Writer(BufWriter::new(file))))
    }

    fn of(replay: Option<Replay>, capture: Option<Writer<BufWriter<File>>>) -> Result<Files, Error> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(io::Error::from)?;
        Ok(Files { replay, capture, timer, frame: Vec::new() })
    }

    /// Arms the timer.
    fn wake_after(&self, wait: Duration) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would disarm it.
        let wait = wait.max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl Wire for Files {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let Some(Replay { packets, next, start }) = &mut self.replay else { return Ok(None) };
        let Some(packet) = next else { return Ok(None) };
        let now = Instant::now();
        let (began, first) = *start.get_or_insert((now, packet.time));
        // A packet with an earlier timestamp than the first one is sent at once.
        let wait = packet.time.saturating_sub(first).saturating_sub(now.duration_since(began));
        if !wait.is_zero() {
            self.wake_after(wait)?;
            return Ok(None);
        }
        room.copy_from(&[0u8; HEADER_BYTES]);
        let place = room.offset(HEADER_BYTES).map_err(|error| io::Error::other(error.to_string()))?;
        place.copy_from(&packet.frame);
        let bytes = HEADER_BYTES + packet.frame.len();
        *next = packets.next_packet()?;
        Ok(Some(bytes))
    }

    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool {
        let Some(capture) = &mut self.capture else { return false };
        self.frame.resize(frame.len(), 0);
        frame.copy_to(&mut self.frame[..]);
        let Some(frame) = self.frame.get(HEADER_BYTES..) else { return false };
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        capture.write(time, frame).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(time_ns: u64, frame: &[u8]) -> Packet {
        Packet { time: Duration::from_nanos(time_ns), frame: frame.to_vec() }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        let packets =
            [packet(1_700_000_000_123_456_789, b"first frame"), packet(1_700_000_001_000_000_000, b"")];
        let mut writer = Writer::new(&mut bytes).expect("written");
        for packet in &packets {
            writer.write(packet.time, &packet.frame).expect("written");
        }
        let mut reader = Reader::new(&bytes[..]).expect("a file");
        for packet in packets {
            assert_eq!(reader.next_packet().expect("read"), Some(packet));
        }
        assert_eq!(reader.next_packet().expect("read"), None);
    }

    #[test]
    fn microseconds_and_the_other_byte_order_are_read() {
        let words = [MAGIC_US, 2 << 16 | 4, 0, 0, 65_535, ETHERNET, 7, 250_000, 3, 60];
        let bytes = [&words.map(u32::to_be_bytes).concat()[..], b"abc"].concat();
        let mut reader = Reader::new(&bytes[..]).expect("a file");
        assert_eq!(reader.next_packet().expect("read"), Some(packet(7_250_000_000, b"abc")));
    }

    #[test]
    fn packets_that_were_cut_are_read() {
        // A snapshot length of 2; the second packet has more nevertheless.
        let header = [MAGIC_US, 4 << 16 | 2, 0, 0, 2, 4 << 28 | 1 << 26 | ETHERNET];
        let packets = [&[1, 2, 2, 60][..], &[1, 3, 3, 3]];
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let file = [&bytes(&header)[..], &bytes(packets[0]), b"ab", &bytes(packets[1]), b"cde"].concat();
        let mut reader = Reader::new(&file[..]).expect("a file");
        for (us, frame) in [(2, &b"ab"[..]), (3, b"cde")] {
            let wanted = packet(1_000_000_000 + us * 1_000, frame);
            assert_eq!(reader.next_packet().expect("read"), Some(wanted));
        }
    }

    #[test]
    fn what_is_no_file_of_frames_is_refused_with_what_it_is() {
        let error = |words: [u32; 6]| {
            Reader::new(&words.map(u32::to_le_bytes).concat()[..]).expect_err("refused").to_string()
        };
        assert!(error([0x0a0d_0d0a, 0, 0, 0, 0, 0]).contains("pcapng is not read"));
        assert_eq!(error([MAGIC_NS, 0, 0, 0, 0, 113]), "a pcap file of link type 113; expected 1, Ethernet");
        let words = [MAGIC_NS, 0, 0, 0, 0, ETHERNET, 0, 0, u32::MAX, u32::MAX];
        let bytes = words.map(u32::to_le_bytes).concat();
        let mut reader = Reader::new(&bytes[..]).expect("a file");
        assert!(reader.next_packet().expect_err("too long").to_string().contains("4294967295 bytes"));
        let mut reader = Reader::new(&bytes[..30]).expect("a file");
        assert_eq!(reader.next_packet().expect_err("cut off").kind(), io::ErrorKind::UnexpectedEof);
    }
}
