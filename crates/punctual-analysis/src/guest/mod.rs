//! What is inside a vCPU: its tasks by urgency, and their response times given what the vCPU supplies.

mod content;
mod light;
mod limits;
mod locks;
mod processor;
mod refute;
mod several;
mod supplied;
mod urgency;

pub(crate) use content::{Content, content, ranked};
pub(crate) use light::light;
pub(crate) use limits::any_served;
pub(crate) use processor::{edf_processor, ranked_processor};
pub(crate) use refute::{Cap, unsupplied};
pub(crate) use several::several;
pub(crate) use supplied::{Supplier, inside, inside_less};
