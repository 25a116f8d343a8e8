//! The order of the units that are eligible on a processor.

use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::decision::UnitId;

/// Fills `out` with those of the units `0..units` that are `eligible`, in the order of `key` and, among
/// equals, of their ids.
pub(crate) fn rank<K: Ord>(
    out: &mut Vec<UnitId>,
    units: usize,
    eligible: impl Fn(UnitId) -> bool,
    key: impl Fn(UnitId) -> K,
) {
    out.clear();
    out.extend((0..units as u32).map(UnitId).filter(|&unit| eligible(unit)));
    sort(out, &|a, b| key(a).cmp(&key(b)).then(a.cmp(&b)));
}

/// One copy of the sort for all policies: each that has its own makes the library of a hypervisor 10 KB
/// larger.
fn sort(units: &mut [UnitId], order: &dyn Fn(UnitId, UnitId) -> Ordering) {
    units.sort_unstable_by(|a, b| order(*a, *b));
}
