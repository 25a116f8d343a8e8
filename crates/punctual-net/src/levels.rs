//! Queues by priority: the interfaces' priorities as dense levels, and one FIFO queue per level.

use alloc::vec::Vec;

use crate::bitmap::Set;
use crate::packet::InterfaceId;
use crate::path::Path;
use crate::queue::List;

/// Priorities in use, most urgent first; the position is the *level*.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    priority: Option<u32>,
    /// Limit of the level's softnet queue.
    limit: u32,
}

/// Sorts absent priorities behind all others.
fn urgency(priority: Option<u32>) -> u64 {
    priority.map_or(u64::MAX, u64::from)
}

impl Levels {
    /// Gives the interface its level, whose limit becomes at least `limit`. Returns the level if it is new:
    /// then the levels from there on, and the interfaces on them, have moved up by one.
    pub(crate) fn place(
        &mut self,
        path: &mut Path,
        id: InterfaceId,
        priority: Option<u32>,
        limit: u32,
    ) -> Option<usize> {
        let found = self.levels.binary_search_by_key(&urgency(priority), |level| urgency(level.priority));
        let (Ok(at) | Err(at)) = found;
        if found.is_ok() {
            self.levels[at].limit = self.levels[at].limit.max(limit);
        } else {
            self.levels.insert(at, Level { priority, limit });
            for interface in path.interfaces.iter_mut().filter(|interface| interface.level >= at) {
                interface.level += 1;
            }
        }
        path.interfaces[id.index()].level = at;
        found.is_err().then_some(at)
    }

    #[inline]
    pub(crate) fn limit(&self, level: usize) -> u32 {
        self.levels[level].limit
    }

    /// The sum of all limits.
    pub(crate) fn capacity(&self) -> usize {
        self.levels.iter().map(|level| level.limit as usize).sum()
    }
}

/// One queue per level.
#[derive(Clone, Debug, Default)]
pub(crate) struct LevelQueues {
    queues: Vec<List>,
    waiting: Set,
    len: usize,
}

impl LevelQueues {
    /// Makes room for an empty queue at `level`; the queues from there on move up by one.
    pub(crate) fn insert_level(&mut self, level: usize) {
        self.queues.insert(level, List::EMPTY);
        self.waiting.grow(self.queues.len());
        self.waiting.clear();
        for (level, queue) in self.queues.iter().enumerate() {
            if !queue.is_empty() {
                self.waiting.insert(level);
            }
        }
    }

    /// The most urgent level whose queue is not empty.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        if self.len == 0 { None } else { self.waiting.first() }
    }

    #[inline]
    pub(crate) fn queue(&self, level: usize) -> &List {
        &self.queues[level]
    }

    /// Items in all queues.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, level: usize, links: &mut [u32], item: u32) {
        let queue = &mut self.queues[level];
        if queue.is_empty() {
            self.waiting.insert(level);
        }
        queue.push(links, item);
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, level: usize, links: &[u32]) -> Option<u32> {
        let queue = &mut self.queues[level];
        let item = queue.pop(links)?;
        if queue.is_empty() {
            self.waiting.remove(level);
        }
        self.len -= 1;
        Some(item)
    }
}
