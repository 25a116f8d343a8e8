//! What the service of a host is told by `/etc/punctual`: classes of VMs, and the pools that they name.

use punctual_sched::UnitParams;

use crate::host::Pool;
use crate::index::PoolIx;

/// The validated configuration of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceConfig {
    /// What the service does.
    pub mode: Mode,
    /// Is a VM left as it is, beside which not all budgets are guaranteed?
    pub is_strict: bool,
    /// Pools, each processor in at most one.
    pub pools: Vec<Pool>,
    /// Classes, in the order of the files.
    pub classes: Vec<Class>,
}

/// What the service does with VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It changes nothing.
    #[default]
    Observe,
    /// VMs of a class with a pool are under enforcement.
    Enforce,
}

/// What VMs of a kind are to get, and which VMs are of that kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Name.
    pub name: String,
    /// A VM belongs to the class when one of these fits.
    pub matches: Vec<Match>,
    /// The pool of its VMs' vCPUs; `None` without pools.
    pub pool: Option<PoolIx>,
    /// The parameters of each vCPU: `budget`, `period`, `priority`, `best_effort`.
    pub params: UnitParams,
}

/// What tells that a VM belongs to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// Its name, whether libvirt runs it or not.
    Name(Pattern),
    /// Its name, if libvirt runs it.
    Libvirt(Pattern),
    /// Its UUID in lower case.
    Uuid(String),
    /// The class that its metadata in libvirt names.
    Metadata(String),
    /// The systemd unit of its process.
    Unit(Pattern),
}

/// A text in which `*` matches any characters and `?` one, as in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as a file spells it.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// Does it match the whole of `text`? Takes at most the product of both lengths.
    pub fn matches(&self, text: &str) -> bool {
        let (pattern, text): (Vec<char>, Vec<char>) = (self.0.chars().collect(), text.chars().collect());
        let (mut p, mut t) = (0, 0);
        // The last `*`, and where the characters begin for which it does not stand yet.
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, t));
                    p += 1;
                }
                Some(&c) if c == '?' || c == text[t] => (p, t) = (p + 1, t + 1),
                _ => {
                    let Some((at, begin)) = star else { return false };
                    star = Some((at, begin + 1));
                    (p, t) = (at + 1, begin + 1);
                }
            }
        }
        pattern[p..].iter().all(|&c| c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("relay-*", "relay-1", true),
            ("relay-*", "relay-", true),
            ("relay-*", "relay", false),
            ("relay", "relay-1", false),
            ("*", "", true),
            ("", "", true),
            ("?", "", false),
            ("?-*-b", "a-b-b", true),
            ("*a*b", "xaxbxab", true),
            ("*a*b", "xaxbxa", false),
            ("gr?n", "grün", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(text), expected, "{pattern} {text}");
        }
        // The time is bounded by the product of the lengths.
        let (many, long) = ("*a".repeat(500) + "b", "a".repeat(5_000));
        assert!(!Pattern::new(many).matches(&long));
    }
}
