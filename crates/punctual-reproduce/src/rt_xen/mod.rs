//! RT-Xen: servers for domains on one processor, against Credit and SEDF.

pub(crate) mod fig5;
pub(crate) mod fig6;
pub(crate) mod readings;
pub(crate) mod table1;
pub(crate) mod table2;
pub(crate) mod table4;

use punctual_sched::servers::{deferrable, periodic, polling, sporadic};
use punctual_sched::{credit, sedf};

/// The policies that RT-Xen compares, in the order of its Table 1.
pub(crate) const POLICIES: [&str; 6] =
    [deferrable::NAME, periodic::NAME, polling::NAME, sporadic::NAME, credit::NAME, sedf::NAME];
