//! A timeline as few bytes that a page can carry: differences as variable-length numbers, in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::rows::{RowKind, Timeline};

/// What a page needs to know before it reads the numbers.
#[derive(Serialize, Debug)]
pub struct RowHeader<'a> {
    group: &'a str,
    name: &'a str,
    kind: RowKind,
    /// Number of slices, steps of the budget, and jobs.
    slices: usize,
    steps: usize,
    jobs: usize,
}

/// A timeline in base64 with the description of its rows.
#[derive(Debug)]
pub struct Encoded<'a> {
    pub rows: Vec<RowHeader<'a>>,
    /// Per row, all in LEB128: slices as (begin less the end before, length, label), steps as (time less the
    /// one before, zigzag of value less the one before), jobs as (release less the one before, deadline less
    /// release, response plus one or 0, zigzag of number less the one before plus one). Times start at the
    /// window's begin; the first job may be released before it, so releases are in zigzag too.
    pub base64: String,
}

impl Timeline {
    /// Its compact form; the same timeline gives the same text.
    pub(crate) fn encode(&self) -> Encoded<'_> {
        let mut bytes = Vec::new();
        let rows = self.rows.iter().map(|row| {
            let mut last = self.from_ns;
            for slice in &row.slices {
                debug_assert!(
                    last <= slice.begin_ns && slice.begin_ns < slice.end_ns,
                    "slices do not overlap"
                );
                put(&mut bytes, slice.begin_ns - last);
                put(&mut bytes, slice.end_ns - slice.begin_ns);
                put(&mut bytes, slice.label.into());
                last = slice.end_ns;
            }
            let (mut at, mut value) = (self.from_ns, 0);
            for &(step_ns, left) in &row.budget {
                debug_assert!(at <= step_ns, "steps of a budget ascend");
                put(&mut bytes, step_ns - at);
                put(&mut bytes, zigzag(left, value));
                (at, value) = (step_ns, left);
            }
            let (mut release, mut number) = (self.from_ns, u64::MAX);
            for job in &row.jobs {
                put(&mut bytes, zigzag(job.release_ns, release));
                put(&mut bytes, zigzag(job.deadline_ns, job.release_ns));
                put(
                    &mut bytes,
                    job.end_ns.map_or(0, |end| end.saturating_sub(job.release_ns).saturating_add(1)),
                );
                put(&mut bytes, zigzag(job.number, number.wrapping_add(1)));
                (release, number) = (job.release_ns, job.number);
            }
            RowHeader {
                group: &row.group,
                name: &row.name,
                kind: row.kind,
                slices: row.slices.len(),
                steps: row.budget.len(),
                jobs: row.jobs.len(),
            }
        });
        let rows = rows.collect();
        Encoded { rows, base64: STANDARD.encode(&bytes) }
    }
}

/// The difference, small for small ones of either sign.
fn zigzag(value: u64, before: u64) -> u64 {
    let difference = value.wrapping_sub(before) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}
