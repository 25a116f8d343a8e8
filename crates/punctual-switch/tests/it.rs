//! Running switches, with the drivers of their ports in this process.

mod allocations;
mod attack_table;
mod attacks;
mod budget;
mod classes;
mod common;
mod costs;
mod cut_through;
mod descriptors;
mod hostile;
mod idle;
mod plug;
mod priorities;
mod restart;
mod traffic;
mod uplinks;
mod vlans;
