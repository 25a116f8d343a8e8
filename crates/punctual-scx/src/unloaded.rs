//! Stands in for the loader in a program without the scheduler.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::interface::{Event, Mechanism, State, Table};

/// Why a scheduler is not loaded.
#[derive(Debug, thiserror::Error)]
#[error("this program is built without the scheduler (cargo feature `sched-ext`, clang)")]
pub struct Error;

/// There is none.
#[derive(Debug)]
pub enum Loaded {}

impl Loaded {
    /// # Errors
    /// Always.
    pub fn load(_processor: usize, _tells_sleep: bool) -> Result<Loaded, Error> {
        Err(Error)
    }
}

impl AsFd for Loaded {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}

impl Mechanism for Loaded {
    fn read(&mut self, _now_ns: u64) -> io::Result<State> {
        match *self {}
    }

    fn take_events(&mut self, _events: &mut Vec<Event>) {
        match *self {}
    }

    fn decide(&mut self, _table: &Table) -> io::Result<()> {
        match *self {}
    }

    fn add(&mut self, _unit: u32, _group: u64) -> io::Result<()> {
        match *self {}
    }

    fn remove(&mut self, _group: u64) {
        match *self {}
    }
}
