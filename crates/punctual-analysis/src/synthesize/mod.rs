//! The smallest budgets that guarantee every deadline.
//!
//! The tests of [`crate::analyse`] are the judge: nothing here knows how a policy works beyond whether its
//! servers have priorities. What makes the search short is that a vCPU's tasks need no less when others take
//! more. So smallest budgets are found one by one from below, the most urgent vCPU first, and repeated where
//! every unit affects every other. Orders of priority, periods and processors are chosen by branch and bound
//! over such solutions, starting from Audsley's assignment (Audsley 1991; for servers Davis & Burns, *An
//! Investigation into Server Parameter Selection for Hierarchical Fixed Priority Pre-emptive Systems*, RTNS
//! 2008).
//!
//! Deadlines that depend on several budgets, those of flows, chains and tasks that move between vCPUs, have
//! no such least solution. `whole` looks for one in which no budget can be smaller.
//!
//! The chosen host is analysed again as a whole before it is returned, and no budget in it can be smaller by
//! one granule.

mod audsley;
mod chosen;
mod error;
mod file;
mod group;
mod options;
mod outcome;
mod place;
mod pools;
mod search;
mod solve;
mod summary;
mod trial;
mod whole;

pub use chosen::Chosen;
pub use error::{Error, Shortfall};
pub use file::{NotTheSame, ReadError, Searched, are_periods_free, read_file, write_file};
pub use options::{Options, Periods, Placement};
pub use outcome::Synthesis;
pub use solve::synthesize;
pub use summary::Summary;
