//! What cannot be attached to is refused before anything is changed.

use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::{Desk, Machine, Scope};
use crate::newcomers::Victim;

/// A run with these domains is refused, and so is `--dry-run`, each for all of these reasons, and nothing had
/// been changed.
fn is_refused(desk: &Desk, domains: &str, reasons: &[&str]) {
    let host = desk.host("refused", PROCESSOR, domains);
    let host = host.as_str();
    for arguments in [&["attach", host, "--dry-run"][..], &["attach", host]] {
        let mut run = desk.start(arguments);
        assert_eq!(run.wait(), 2, "{arguments:?}: {}", run.said());
        for reason in reasons {
            assert!(run.said().contains(reason), "{arguments:?}: {reason}: {}", run.said());
        }
        let is_dry = arguments.contains(&"--dry-run");
        assert!(is_dry || run.said().contains("nothing had been changed"), "{}", run.said());
    }
    assert_eq!(desk.left(), Vec::<String>::new());
}

#[test]
fn a_thread_is_a_vcpu_of_one_domain() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("two-domains"), Scope::make("two-domains"));
    let machine = Machine::start(scope.directory());
    let domains = machine.domain("first") + &machine.domain("second");
    let reason = format!("domain `second`: thread {} is a vCPU of domain `first` already", machine.id());
    is_refused(&desk, &domains, &[&reason]);
    assert_eq!(machine.residue(&scope.groups()[0]), None);
    // The same by their process.
    let victim = Victim::start("quiet");
    let domains = victim.domain() + &victim.domain().replacen("vm", "again", 1);
    let id = victim.thread("CPU 0/KVM").expect("it waits");
    is_refused(&desk, &domains, &[&format!("domain `again`: thread {id} is a vCPU of domain `vm` already")]);
}
