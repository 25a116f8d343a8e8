//! What a page is made of.

use punctual_model::Guarantees;

use crate::Column;
use crate::timeline::Timeline;

#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Results side by side; at least one.
    pub columns: &'a [Column],
    /// What the analysis says about the host.
    pub guarantees: Option<&'a Guarantees>,
    /// An interval of a run with the label of its column.
    pub timeline: Option<(&'a str, &'a Timeline)>,
}
