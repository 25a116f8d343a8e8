//! Results beside others.

use punctual_model::Results;

/// Results with the name under which they stand beside others.
#[derive(Clone, Debug)]
pub struct Column {
    pub label: String,
    pub results: Results,
}
