//! Stands in for the loader in a program without the programs for the kernel.

use std::io;

use crate::interface::{Mark, Settings, Story, Sum, Tally, Thread};

/// Why the programs are not loaded.
#[derive(Debug, thiserror::Error)]
#[error("this program is built without it (cargo feature `waits-bpf`, clang)")]
pub struct Error;

/// There is none.
#[derive(Debug)]
pub enum Loaded {}

impl Loaded {
    /// # Errors
    /// Always.
    pub fn load(_settings: &Settings) -> Result<Loaded, Error> {
        Err(Error)
    }
}

impl Tally for Loaded {
    fn watch(&mut self, _thread: u32) -> io::Result<()> {
        match *self {}
    }

    fn forget(&mut self, _thread: u32) {
        match *self {}
    }

    fn thread(&mut self, _thread: u32) -> io::Result<Option<Thread>> {
        match *self {}
    }

    fn occupant(&mut self, _processor: u32) -> io::Result<Option<u32>> {
        match *self {}
    }

    fn mark(&mut self, _thread: u32, _mark: Mark) -> io::Result<()> {
        match *self {}
    }

    fn turn(&mut self) -> io::Result<()> {
        match *self {}
    }

    fn stories(&mut self) -> io::Result<Vec<Story>> {
        match *self {}
    }

    fn sums(&mut self) -> io::Result<Vec<Sum>> {
        match *self {}
    }

    fn no_spins(&self) -> Option<&str> {
        match *self {}
    }

    fn lost(&self) -> u64 {
        match *self {}
    }
}
