//! Files of `xentrace`: a sequence of records. Each is a word with its event, the number of its data words
//! and whether it has a time; then the time stamp counter, two words, if it has one; then up to seven data
//! words (`TRC_HD_*` in `xen/include/public/trace.h`). Words are little endian. `xentrace` writes the buffers
//! of the processors in turn, with a `TRC_TRACE_CPU_CHANGE` record before each.

use alloc::vec::Vec;
use core::fmt;

/// `TRC_TRACE_CPU_CHANGE`: number of the processor whose records follow, and their size in bytes.
const CPU_CHANGE: u32 = 0x0001_f003;
/// `TRC_LOST_RECORDS`: a buffer was full. The number of lost records, and four words about the first.
const LOST: u32 = 0x0001_f001;
/// Maximum of data words in a record (`TRACE_EXTRA_MAX`).
const WORDS_MAX: usize = 7;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the processor that wrote it.
    pub cpu: u32,
    /// The event, `TRC_*` of Xen.
    pub event: u32,
    /// The processor's time stamp counter, if the record has a time.
    pub tsc: Option<u64>,
    words: [u32; WORDS_MAX],
    count: u8,
}

impl Record {
    /// Data words.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.count)]
    }
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order of the file, which is by time for each processor.
    pub records: Vec<Record>,
    /// Number of records that Xen reports as lost.
    pub lost: u64,
}

/// The file ends within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Offset of that record in bytes.
    pub at: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record at byte {} is incomplete: is xentrace still running?", self.at)
    }
}

impl core::error::Error for Truncated {}

/// Reads a file of `xentrace`.
///
/// # Errors
/// It ends within a record.
pub fn read(bytes: &[u8]) -> Result<Trace, Truncated> {
    let mut trace = Trace::default();
    let mut cpu = 0;
    let mut rest = bytes;
    while !rest.is_empty() {
        let truncated = Truncated { at: bytes.len() - rest.len() };
        let (mut record, after) = read_one(rest).ok_or(truncated)?;
        rest = after;
        match (record.event, record.words()) {
            (CPU_CHANGE, [changed, ..]) => cpu = *changed,
            (LOST, [count, ..]) => trace.lost += u64::from(*count),
            _ => {
                record.cpu = cpu;
                trace.records.push(record);
            }
        }
    }
    Ok(trace)
}

/// The first record, and what follows it.
fn read_one(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let (head, mut rest) = word(bytes)?;
    let count = (head >> 28 & 7) as u8;
    let mut record = Record { cpu: 0, event: head & 0x0fff_ffff, tsc: None, words: [0; WORDS_MAX], count };
    if head >> 31 == 1 {
        let (low, after) = word(rest)?;
        let (high, after) = word(after)?;
        record.tsc = Some(u64::from(high) << 32 | u64::from(low));
        rest = after;
    }
    for place in &mut record.words[..usize::from(count)] {
        (*place, rest) = word(rest)?;
    }
    Some((record, rest))
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn records_have_the_processor_that_was_named_before() {
        let change = 2 << 28 | CPU_CHANGE;
        let bytes = file(&[change, 3, 44, 1 << 31 | 1 << 28 | 0x21001, 7, 1, 9, change, 0, 0, 0x21002]);
        let trace = read(&bytes).unwrap();
        let seen: Vec<_> = trace.records.iter().map(|r| (r.cpu, r.event, r.tsc, r.words())).collect();
        assert_eq!(seen, [(3, 0x21001, Some(1 << 32 | 7), &[9][..]), (0, 0x21002, None, &[])]);
    }

    #[test]
    fn a_file_that_ends_within_a_record_says_where() {
        let bytes = file(&[0x21002, 3 << 28 | 0x21001, 7, 1]);
        assert_eq!(read(&bytes), Err(Truncated { at: 4 }));
        assert_eq!(read(&bytes[..6]), Err(Truncated { at: 4 }));
    }

    #[test]
    fn lost_records_are_counted() {
        let bytes = file(&[5 << 28 | LOST, 12, 0, 0, 0, 0, 5 << 28 | LOST, 3, 0, 0, 0, 0]);
        assert_eq!(read(&bytes).map(|trace| (trace.records.len(), trace.lost)), Ok((0, 15)));
    }
}
