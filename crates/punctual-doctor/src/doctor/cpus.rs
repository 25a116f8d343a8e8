//! Sets of processors as the kernel writes them: lists (`0-3,8`) and masks (`ff,00000000`).
//!
//! They are read here and not by a crate because the kernel's command line knows more than ranges: strides
//! (`0-7:1/2`) and the words `N` and `all`.

use std::collections::BTreeSet;
use std::fmt;

/// A greater number is refused: Linux's `NR_CPUS` ends here on every architecture.
const CPUS_MAX: usize = 8192;

/// A set of processors of this machine, in the kernel's numbering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

impl Cpus {
    /// Reads a list: numbers and ranges with commas between them. A range may have a stride (`0-7:1/2`: one
    /// of every two); `N` is the last processor of `count`; `all` is all of them. An empty text is the empty
    /// set. Source: Linux, `Documentation/admin-guide/kernel-parameters.rst`, "cpu lists".
    pub fn parse_list(text: &str, count: usize) -> Option<Cpus> {
        let mut set = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.trim().is_empty()) {
            set.extend(range(part.trim(), count)?);
        }
        Some(Cpus(set))
    }

    /// Reads a mask: hexadecimal words of 32 bits with commas between them, the highest first.
    pub fn parse_mask(text: &str) -> Option<Cpus> {
        let mut set = BTreeSet::new();
        for (word, digits) in text.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
            if word * 32 >= CPUS_MAX {
                return None;
            }
            set.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 32 + bit));
        }
        Some(Cpus(set))
    }

    /// As the kernel takes a mask.
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |w: usize| (0..32).filter(|bit| self.contains(w * 32 + bit)).fold(0u32, |m, b| m | 1 << b);
        let mut text = format!("{:x}", word(words - 1));
        for w in (0..words - 1).rev() {
            text += &format!(",{:08x}", word(w));
        }
        text
    }

    /// Is the processor in the set?
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Has it no processor?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many processors it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Those that are in both sets.
    pub fn intersection(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 & &other.0)
    }

    /// Those that are in either set.
    pub fn union(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 | &other.0)
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &Cpus) -> Cpus {
        Cpus(&self.0 - &other.0)
    }

    /// Does it have all of `other`?
    pub fn covers(&self, other: &Cpus) -> bool {
        other.0.is_subset(&self.0)
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Cpus(cpus.into_iter().collect())
    }
}

/// As a list: `0-3,8`.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last {
                _ if last == first => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

fn range(text: &str, count: usize) -> Option<Vec<usize>> {
    let last = count.checked_sub(1);
    if text == "all" {
        return Some((0..count.min(CPUS_MAX)).collect());
    }
    let number = |text: &str| match text {
        "N" => last,
        _ => text.parse::<usize>().ok().filter(|&n| n < CPUS_MAX && !text.starts_with('+')),
    };
    let (range, stride) = match text.split_once(':') {
        None => (text, (1, 1)),
        Some((range, stride)) => {
            let (used, group) = stride.split_once('/')?;
            (range, (number(used)?, number(group)?))
        }
    };
    let (from, to) = match range.split_once('-') {
        None => (number(range)?, number(range)?),
        Some((from, to)) => (number(from)?, number(to)?),
    };
    let (used, group) = stride;
    if from > to || group == 0 || used > group {
        return None;
    }
    Some((from..=to).filter(|cpu| (cpu - from) % group < used).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Option<String> {
        Cpus::parse_list(text, 8).map(|cpus| cpus.to_string())
    }

    #[test]
    fn lists_are_read_as_the_kernel_does() {
        assert_eq!(list("0-3,8\n").as_deref(), Some("0-3,8"));
        assert_eq!(list("").as_deref(), Some(""));
        assert_eq!(list("0-7:1/2").as_deref(), Some("0,2,4,6"));
        assert_eq!(list("4-N").as_deref(), Some("4-7"));
        assert_eq!(list("all").as_deref(), Some("0-7"));
        for bad in ["3-1", "a", "1-", "-1", "0-7:3/2", "0-7:1/0", "0-7:1", "9999999", "+1", "1 2"] {
            assert_eq!(list(bad), None, "{bad}");
        }
    }

    #[test]
    fn masks_are_words_of_32_bits_with_the_highest_first() {
        let mask = |text| Cpus::parse_mask(text).map(|cpus| cpus.to_string());
        assert_eq!(mask("3").as_deref(), Some("0-1"));
        assert_eq!(mask("1,00000000,80000001\n").as_deref(), Some("0,31,64"));
        assert_eq!(mask(""), None);
        assert_eq!(mask("xy"), None);
        assert_eq!(mask("100000000"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in proptest::collection::btree_set(0..CPUS_MAX, 0..50)) {
            let cpus: Cpus = cpus.into_iter().collect();
            prop_assert_eq!(Cpus::parse_list(&cpus.to_string(), CPUS_MAX), Some(cpus.clone()));
            prop_assert_eq!(Cpus::parse_mask(&cpus.mask()), Some(cpus));
        }

        #[test]
        fn no_text_makes_reading_panic(text in "[0-9a-fN,:/ +-]{0,30}|.{0,20}", count in 0usize..10) {
            if let Some(cpus) = Cpus::parse_list(&text, count) {
                prop_assert!(cpus.iter().all(|cpu| cpu < CPUS_MAX));
            }
            Cpus::parse_mask(&text);
        }
    }
}
