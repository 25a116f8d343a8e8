//! Sets of instants: sorted spans `[from, until)` in ns that do not touch each other.

/// A span of time: from, until.
pub type Span = (u64, u64);

/// Sorted spans that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// One span; nothing where it is empty.
    pub fn of(span: Span) -> Spans {
        Spans(if span.0 < span.1 { vec![span] } else { Vec::new() })
    }

    /// The union of spans in any order.
    pub fn union(mut spans: Vec<Span>) -> Spans {
        spans.retain(|span| span.0 < span.1);
        spans.sort_unstable();
        let mut union: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match union.last_mut() {
                Some(last) if span.0 <= last.1 => last.1 = last.1.max(span.1),
                _ => union.push(span),
            }
        }
        Spans(union)
    }

    /// One after the other.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span> {
        self.0.iter().copied()
    }

    /// The last one that begins before `at`.
    pub fn last_before(&self, at: u64) -> Option<Span> {
        self.0[..self.0.partition_point(|span| span.0 < at)].last().copied()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long they are together.
    pub fn length(&self) -> u64 {
        self.0.iter().map(|span| span.1 - span.0).sum()
    }

    /// What of them lies within `span`.
    pub fn within(&self, span: Span) -> Spans {
        let first = self.0.partition_point(|known| known.1 <= span.0);
        let cut = |known: &Span| (known.0.max(span.0), known.1.min(span.1));
        Spans(self.0[first..].iter().take_while(|known| known.0 < span.1).map(cut).collect())
    }

    /// What is in both.
    pub fn and(&self, other: &Spans) -> Spans {
        let (mut both, mut a, mut b) = (Vec::new(), 0, 0);
        while let (Some(x), Some(y)) = (self.0.get(a), other.0.get(b)) {
            let span = (x.0.max(y.0), x.1.min(y.1));
            if span.0 < span.1 {
                both.push(span);
            }
            if x.1 < y.1 { a += 1 } else { b += 1 }
        }
        Spans(both)
    }

    /// What is in these and not in the others.
    pub fn without(&self, other: &Spans) -> Spans {
        let (mut left, mut b) = (Vec::new(), 0);
        for &(from, until) in &self.0 {
            let mut from = from;
            while let Some(&(start, end)) = other.0.get(b) {
                if end <= from {
                    b += 1;
                    continue;
                }
                if start >= until {
                    break;
                }
                if from < start {
                    left.push((from, start));
                }
                from = end;
                if end > until {
                    break;
                }
                b += 1;
            }
            if from < until {
                left.push((from, until));
            }
        }
        Spans(left)
    }

    /// The first `length` ns of them.
    pub fn first(&self, length: u64) -> Spans {
        let mut left = length;
        let take = |span: Span| {
            let taken = left.min(span.1 - span.0);
            left -= taken;
            (taken > 0).then_some((span.0, span.0 + taken))
        };
        Spans(self.iter().map_while(take).collect())
    }

    /// Adds others.
    pub fn add(&mut self, other: &Spans) {
        if !other.is_empty() {
            *self = Spans::union(self.0.iter().chain(&other.0).copied().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans() -> impl Strategy<Value = Spans> {
        prop::collection::vec((0u64..60, 0u64..60), 0..6).prop_map(Spans::union)
    }

    fn has(spans: &Spans, at: u64) -> bool {
        spans.iter().any(|span| (span.0..span.1).contains(&at))
    }

    proptest! {
        #[test]
        fn sets_behave_like_sets_of_instants(
            (a, b) in (spans(), spans()),
            window in (0u64..60, 0u64..60),
            n in 0u64..40,
        ) {
            let mut union = a.clone();
            union.add(&b);
            let first = a.first(n);
            prop_assert_eq!(first.length(), a.length().min(n));
            let mut before = 0;
            for at in 0..60 {
                let (in_a, in_b) = (has(&a, at), has(&b, at));
                prop_assert_eq!(has(&union, at), in_a || in_b);
                prop_assert_eq!(has(&a.and(&b), at), in_a && in_b);
                prop_assert_eq!(has(&a.without(&b), at), in_a && !in_b);
                let is_within = (window.0..window.1).contains(&at);
                prop_assert_eq!(has(&a.within(window), at), in_a && is_within);
                prop_assert_eq!(has(&first, at), in_a && before < n);
                before += u64::from(in_a);
            }
        }
    }
}
