//! Interrupts that classes match: they go where their class says, and back when no class matches them.

use std::collections::BTreeMap;
use std::io;

use punctual_enforce::session::{Session, interrupt_affinity};
use rustix::io::Errno;

use crate::protocol::{HeldInterrupts, RefusedInterrupt};

/// Another program that moves an interrupt so often is let have its way.
const PUT_BACK_MAX: u32 = 5;

/// Where interrupts go, by their numbers.
pub(crate) trait Affinities {
    /// The processors to which one may go, ascending.
    fn now(&self, number: usize) -> io::Result<Vec<usize>>;
    /// Sends one to others.
    fn send(&mut self, number: usize, to: &[usize]) -> io::Result<()>;
}

impl Affinities for Session {
    fn now(&self, number: usize) -> io::Result<Vec<usize>> {
        interrupt_affinity(number)
    }

    fn send(&mut self, number: usize, to: &[usize]) -> io::Result<()> {
        self.send_interrupt(number, to)
    }
}

/// The interrupts of a device, and where they are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub device: String,
    pub numbers: Vec<usize>,
    /// Ascending.
    pub to: Vec<usize>,
    /// Why there.
    pub reason: String,
}

/// An interrupt that a class matches.
#[derive(Debug)]
struct One {
    /// Where it went before.
    before: Vec<usize>,
    /// Where it goes; `None` until it was sent anywhere.
    to: Option<Vec<usize>>,
    /// How often it was put back.
    put_back: u32,
    /// Why it is left where it is.
    refused: Option<String>,
}

/// What happened to an interrupt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Another program had moved it.
    PutBack(String),
    /// It is left where it is.
    Refused(String),
}

/// The interrupts that classes match.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    all: BTreeMap<usize, One>,
    sent: Vec<Sent>,
}

impl Interrupts {
    /// Sends interrupts where they are to go. Those of devices that are not wanted any more go back.
    pub(crate) fn tend(&mut self, wanted: Vec<Sent>, affinities: &mut impl Affinities) -> Vec<Happened> {
        let mut happened = Vec::new();
        let is_wanted = |number: &usize| wanted.iter().any(|sent| sent.numbers.contains(number));
        for (number, one) in self.all.extract_if(.., |number, _| !is_wanted(number)) {
            // What somebody else moved since stays there; one that is gone needs nothing.
            if one.to.is_some_and(|to| affinities.now(number).is_ok_and(|now| now == to)) {
                let back = affinities.send(number, &one.before);
                let text = |error| format!("interrupt {number} could not be put back: {error}");
                happened.extend(back.err().map(|error| Happened::Refused(text(error))));
            }
        }
        for sent in &wanted {
            for number in &sent.numbers {
                happened.extend(self.send(*number, sent, affinities));
            }
        }
        self.sent = wanted;
        happened
    }

    fn send(&mut self, number: usize, sent: &Sent, affinities: &mut impl Affinities) -> Option<Happened> {
        // One that was freed meanwhile has no files.
        let now = affinities.now(number).ok()?;
        let new = One { before: now.clone(), to: None, put_back: 0, refused: None };
        let one = self.all.entry(number).or_insert(new);
        let is_elsewhere = one.to.as_ref().is_some_and(|to| *to != sent.to);
        if is_elsewhere {
            // Another place is another try.
            (one.to, one.put_back, one.refused) = (None, 0, None);
        }
        if one.refused.is_some() {
            return None;
        }
        let was_moved = one.to.is_some() && now != sent.to;
        one.to = Some(sent.to.clone());
        if now == sent.to {
            return None;
        }
        let of = format!("interrupt {number} of {}", sent.device);
        one.put_back += u32::from(was_moved);
        if one.put_back > PUT_BACK_MAX {
            let reason = "another program moves it (irqbalance?)";
            one.refused = Some(reason.into());
            return Some(Happened::Refused(format!("{of} is given up: {reason}")));
        }
        if let Err(error) = affinities.send(number, &sent.to) {
            let reason = match Errno::from_io_error(&error) {
                Some(Errno::IO) => "the kernel keeps it where it is (a managed interrupt)".into(),
                _ => error.to_string(),
            };
            one.refused = Some(reason.clone());
            return Some(Happened::Refused(format!("{of} stays where it is: {reason}")));
        }
        was_moved.then(|| Happened::PutBack(format!("{of} was moved and was put back")))
    }

    /// How they are.
    pub(crate) fn report(&self) -> Vec<HeldInterrupts> {
        let refused = |numbers: &[usize]| {
            let one = |number: &usize| {
                let reason = self.all.get(number)?.refused.clone()?;
                Some(RefusedInterrupt { number: *number, reason })
            };
            numbers.iter().filter_map(one).collect()
        };
        let held = |sent: &Sent| HeldInterrupts {
            device: sent.device.clone(),
            processors: sent.to.clone(),
            reason: sent.reason.clone(),
            refused: refused(&sent.numbers),
        };
        self.sent.iter().map(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interrupts that may go anywhere, and one that the kernel manages.
    #[derive(Default)]
    struct Machine {
        at: BTreeMap<usize, Vec<usize>>,
        managed: usize,
    }

    impl Affinities for Machine {
        fn now(&self, number: usize) -> io::Result<Vec<usize>> {
            self.at.get(&number).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn send(&mut self, number: usize, to: &[usize]) -> io::Result<()> {
            if number == self.managed {
                return Err(Errno::IO.into());
            }
            self.at.insert(number, to.to_vec());
            Ok(())
        }
    }

    fn machine() -> Machine {
        let at = [(40, vec![0, 1, 2, 3]), (41, vec![1]), (42, vec![3])];
        Machine { at: at.into(), managed: 42 }
    }

    fn eno6(to: &[usize]) -> Vec<Sent> {
        let (device, reason) = ("eno6".into(), "no pool has them".into());
        vec![Sent { device, numbers: vec![40, 41, 42, 43], to: to.to_vec(), reason }]
    }

    #[test]
    fn interrupts_go_where_their_class_says_and_back() {
        let (mut machine, mut interrupts) = (machine(), Interrupts::default());
        let before = machine.at.clone();
        let said = interrupts.tend(eno6(&[0, 2]), &mut machine);
        let managed = "interrupt 42 of eno6 stays where it is: the kernel keeps it where it is (a managed \
                       interrupt)";
        assert_eq!(said, [Happened::Refused(managed.into())]);
        assert_eq!(
            (&machine.at[&40], &machine.at[&41], &machine.at[&42]),
            (&vec![0, 2], &vec![0, 2], &vec![3])
        );
        assert_eq!(interrupts.tend(eno6(&[0, 2]), &mut machine), [], "it is said once");
        let report = interrupts.report();
        assert_eq!((report.len(), report[0].refused.len(), report[0].refused[0].number), (1, 1, 42));
        // Another place, then none.
        interrupts.tend(eno6(&[2]), &mut machine);
        assert_eq!((&machine.at[&40], &machine.at[&41]), (&vec![2], &vec![2]));
        assert_eq!(interrupts.tend(Vec::new(), &mut machine), []);
        assert_eq!(machine.at, before);
        assert!(interrupts.report().is_empty());
    }

    #[test]
    fn an_interrupt_that_another_program_moves_is_put_back_until_that_does_it_again_and_again() {
        let (mut machine, mut interrupts) = (machine(), Interrupts::default());
        interrupts.tend(eno6(&[0]), &mut machine);
        for _ in 0..PUT_BACK_MAX {
            machine.at.insert(40, vec![3]);
            let said = interrupts.tend(eno6(&[0]), &mut machine);
            assert_eq!(said, [Happened::PutBack("interrupt 40 of eno6 was moved and was put back".into())]);
            assert_eq!(machine.at[&40], [0]);
        }
        machine.at.insert(40, vec![3]);
        let said = interrupts.tend(eno6(&[0]), &mut machine);
        let given_up = "interrupt 40 of eno6 is given up: another program moves it (irqbalance?)";
        assert_eq!(said, [Happened::Refused(given_up.into())]);
        assert_eq!(interrupts.tend(eno6(&[0]), &mut machine), []);
        // Its way stays when no class matches the interrupt any more.
        interrupts.tend(Vec::new(), &mut machine);
        assert_eq!((&machine.at[&40], &machine.at[&41]), (&vec![3], &vec![1]));
    }
}
