//! The descriptors for which the loop waits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Signals,
    Libvirt,
    Hook,
    Listener,
    /// The process that enforces.
    Enforcer,
    /// The end of a process.
    Process(u32),
    /// A client of the control socket, by its number.
    Client(u32),
}

const CLIENT: u64 = 1 << 32;
const PROCESS: u64 = 2 << 32;

impl Token {
    fn number(self) -> u64 {
        match self {
            Token::Signals => 1,
            Token::Libvirt => 2,
            Token::Hook => 3,
            Token::Listener => 4,
            Token::Enforcer => 5,
            Token::Client(number) => CLIENT | u64::from(number),
            Token::Process(process) => PROCESS | u64::from(process),
        }
    }

    fn of(number: u64) -> Option<Token> {
        let low = u32::try_from(number & u64::from(u32::MAX)).ok()?;
        match (number & !u64::from(u32::MAX), low) {
            (0, 1) => Some(Token::Signals),
            (0, 2) => Some(Token::Libvirt),
            (0, 3) => Some(Token::Hook),
            (0, 4) => Some(Token::Listener),
            (0, 5) => Some(Token::Enforcer),
            (CLIENT, number) => Some(Token::Client(number)),
            (PROCESS, process) => Some(Token::Process(process)),
            _ => None,
        }
    }
}

/// Events in one wait at most.
const EVENTS_MAX: usize = 64;

/// The epoll of the loop.
#[derive(Debug)]
pub(crate) struct Descriptors(OwnedFd);

impl Descriptors {
    pub(crate) fn new() -> io::Result<Descriptors> {
        Ok(Descriptors(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Waits for input on a descriptor, too.
    pub(crate) fn add(&self, descriptor: impl AsFd, token: Token) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token.number());
        Ok(epoll::add(&self.0, descriptor, data, epoll::EventFlags::IN)?)
    }

    /// Says for which directions to wait.
    pub(crate) fn modify(
        &self,
        descriptor: impl AsFd,
        token: Token,
        input: bool,
        output: bool,
    ) -> io::Result<()> {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, input);
        flags.set(epoll::EventFlags::OUT, output);
        Ok(epoll::modify(&self.0, descriptor, epoll::EventData::new_u64(token.number()), flags)?)
    }

    /// Waits for events, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> io::Result<Vec<Token>> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let buffer = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.0, buffer, Some(&limit)) {
            Ok(_) => {
                let numbers = events.iter().map(|event: &epoll::Event| {
                    let data = event.data;
                    data.u64()
                });
                Ok(numbers.filter_map(Token::of).collect())
            }
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_told_apart() {
        let fixed = [Token::Signals, Token::Libvirt, Token::Hook, Token::Listener, Token::Enforcer];
        let numbered =
            [Token::Process(1), Token::Process(u32::MAX), Token::Client(1), Token::Client(u32::MAX)];
        for token in fixed.into_iter().chain(numbered) {
            assert_eq!(Token::of(token.number()), Some(token));
        }
        assert_eq!((Token::of(0), Token::of(6), Token::of(u64::MAX)), (None, None, None));
    }
}
