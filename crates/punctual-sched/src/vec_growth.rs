//! Vectors that grow by a quarter: most schedulers are guests with one or two units, and a machine has
//! thousands of them.

use alloc::vec::Vec;

/// Makes room for `len` elements in all, and a quarter more if that takes an allocation.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, len: usize) {
    if vec.capacity() < len {
        vec.reserve_exact(len + len / 4 - vec.len());
    }
}

/// Appends an element.
pub(crate) fn push<T>(vec: &mut Vec<T>, element: T) {
    reserve(vec, vec.len() + 1);
    vec.push(element);
}
