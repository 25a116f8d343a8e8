//! Conversions to narrower integers, where the place that calls knows that the value fits.

/// A length or an index that is far below 2^32.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "asserted")]
pub(crate) const fn to_u32(value: usize) -> u32 {
    debug_assert!(value <= u32::MAX as usize, "a length or an index below 2^32");
    value as u32
}

/// A count of buffers: a ring has no more than 2^15.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "asserted")]
pub(crate) const fn to_u16(value: usize) -> u16 {
    debug_assert!(value <= u16::MAX as usize, "a count below 2^16");
    value as u16
}

/// A small index.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "asserted")]
pub(crate) const fn to_u8(value: usize) -> u8 {
    debug_assert!(value <= u8::MAX as usize, "an index below 2^8");
    value as u8
}

/// An offset or an index. Linux maps memory of VMs of this size on machines of 64 bits alone.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "asserted")]
pub(crate) const fn to_usize(value: u64) -> usize {
    const { assert!(usize::BITS == 64, "the switch needs a machine of 64 bits") };
    value as usize
}

/// The lower half.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the upper half is not asked for")]
pub(crate) const fn low_u64(value: u128) -> u64 {
    value as u64
}

/// Nanoseconds on a time line that begins with the process: 2^64 are 584 years.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a process runs for less than 584 years")]
pub(crate) const fn nanos(time: std::time::Duration) -> u64 {
    time.as_nanos() as u64
}
