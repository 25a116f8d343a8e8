//! RT-Xen: servers for domains on one processor, against Credit and SEDF.

pub mod fig5;
pub mod fig6;
pub mod table1;
pub mod table2;
pub mod table4;

use punctual_sched::servers::{deferrable, periodic, polling, sporadic};
use punctual_sched::{credit, sedf};

/// The policies that RT-Xen compares, in the order of its Table 1.
pub const POLICIES: [&str; 6] =
    [deferrable::NAME, periodic::NAME, polling::NAME, sporadic::NAME, credit::NAME, sedf::NAME];
