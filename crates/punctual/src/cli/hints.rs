//! Hints of KVM, as `punctual why` and `punctual status` show them.

use punctual_model::text::printable;
use punctual_report::format::{fmt_count, fmt_ns, fmt_share};
use punctual_service::hints::{CountsView, HintsView};
use punctual_service::waits::{CauseView, PartView, WaitCause};

use super::output::wrapped;

/// The hints of a VM; `back` is the time that they are of. `parts` are what its vCPUs waited for in that
/// time, if that is to be told with it.
pub(super) fn shown(hints: &HintsView, parts: &[PartView], back: &str) -> String {
    let counts = &hints.lately;
    let spins = parts.iter().filter_map(|part| spins(part, parts));
    let lines: String = spins
        .chain([yields(counts), preemptions(counts), halts(counts)].into_iter().flatten())
        .map(|line| wrapped("  ", "    ", &line))
        .collect();
    let mut out = String::new();
    if !lines.is_empty() {
        out += &format!("hints of KVM in the last {back}, which are no causes:\n{lines}");
    }
    if let Some(reason) = &hints.reason {
        out += &wrapped("", "  ", &printable(&format!("what KVM counts is not known: {reason}")));
    }
    out
}

/// "1 time", "2 times".
pub(super) fn times(count: u64) -> String {
    format!("{} time{}", fmt_count(count), if count == 1 { "" } else { "s" })
}

/// So much of the waits of a VM's other vCPUs, one part of so many, is to be behind vCPUs of the VM before
/// spins are called waits for each other.
const BEHIND_EACH_OTHER: u64 = 4;

/// How often a vCPU spun, beside what the others waited for meanwhile.
fn spins(part: &PartView, parts: &[PartView]) -> Option<String> {
    let (vcpu, spun) = (part.vcpu?, Some(part.spins_lately).filter(|spins| *spins > 0)?);
    let others = parts.iter().filter(|other| other.vcpu.is_some_and(|of| of != vcpu));
    let waits: Vec<&CauseView> = others.flat_map(|other| &other.lately).collect();
    let waited_ns: u64 = waits.iter().map(|wait| wait.time_ns).sum();
    let behind = waits.iter().filter(|wait| wait.cause == WaitCause::PreemptedBySibling);
    let behind_ns: u64 = behind.map(|wait| wait.time_ns).sum();
    let mut text = format!("vCPU {vcpu} spun and left the guest {} (pause-loop exits)", times(spun));
    if waited_ns == 0 {
        return Some(text + ", and no other vCPU of this VM waited");
    }
    let (waited, share) = (fmt_ns(waited_ns), fmt_share(behind_ns, waited_ns));
    text += &format!("; other vCPUs of this VM waited for {waited}, {share} of it behind vCPUs of the VM");
    if behind_ns >= waited_ns / BEHIND_EACH_OTHER {
        text += ": they wait for each other's locks";
    }
    Some(text)
}

fn yields(counts: &CountsView) -> Option<String> {
    let attempted = counts.yields_attempted.filter(|count| *count > 0)?;
    let ran = counts.yields_successful.map(|count| format!(", and that one ran at once {}", times(count)));
    Some(format!(
        "vCPUs of this VM wait for each other: its kernel asked KVM {} to run one that had lost its \
         processor{}",
        times(attempted),
        ran.unwrap_or_default()
    ))
}

fn preemptions(counts: &CountsView) -> Option<String> {
    let (reported, other) = (counts.preemptions_reported?, counts.preemptions_other?);
    let all = reported.saturating_add(other);
    let text = || {
        let (all, reported) = (times(all), fmt_count(reported));
        format!("its vCPUs lost their processors {all}, {reported} of them where KVM can tell the guest")
    };
    (all > 0).then(text)
}

fn halts(counts: &CountsView) -> Option<String> {
    let halts = counts.halts.filter(|halts| *halts > 0)?;
    let mut text = format!("its vCPUs halted {}", times(halts));
    if let Some(ns) = counts.halt_wait_ns {
        text += &format!(" and slept for {} in that", fmt_ns(ns));
    }
    if let (Some(attempted), Some(successful)) = (counts.polls_attempted, counts.polls_successful) {
        let (attempted, successful) = (times(attempted), fmt_count(successful));
        text += &format!("; KVM polled {attempted}, {successful} of them until the end of the halt");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text as one line: how it is wrapped depends on the width.
    fn line(hints: &HintsView, parts: &[PartView], back: &str) -> String {
        shown(hints, parts, back).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_vcpu_that_spins_waits_for_others_only_where_these_wait_behind_vcpus_of_the_vm() {
        let part = |vcpu: u32, spins_lately: u64, waits: &[(WaitCause, u64)]| {
            let cause = |&(cause, time_ns): &(WaitCause, u64)| CauseView { cause, by: None, time_ns };
            let lately = waits.iter().map(cause).collect();
            PartView { role: "vcpu".into(), vcpu: Some(vcpu), spins_lately, lately, ..PartView::default() }
        };
        let line = |parts: &[PartView]| line(&HintsView::default(), parts, "1 h");
        let (sibling, other) = (WaitCause::PreemptedBySibling, WaitCause::OtherThread);
        let text = line(&[part(0, 5213, &[]), part(1, 0, &[(sibling, 1_000_000), (other, 3_000_000)])]);
        let expected = "hints of KVM in the last 1 h, which are no causes: vCPU 0 spun and left the guest \
                        5,213 times (pause-loop exits); other vCPUs of this VM waited for 4.00 ms, 25.0 % \
                        of it behind vCPUs of the VM: they wait for each other's locks";
        assert_eq!(text, expected);
        let text = line(&[part(0, 5213, &[(sibling, 9)]), part(1, 0, &[(sibling, 1), (other, 7)])]);
        assert!(text.ends_with("12.5 % of it behind vCPUs of the VM"), "{text}");
        let text = line(&[part(0, 1, &[(sibling, 7)]), part(1, 0, &[])]);
        assert!(text.contains("1 time (pause-loop exits), and no other vCPU of this VM waited"), "{text}");
        assert_eq!(line(&[part(0, 0, &[(sibling, 7)]), part(1, 0, &[(sibling, 7)])]), "");
    }

    #[test]
    fn hints_say_what_they_show_and_a_vm_without_them_says_why() {
        let lately = CountsView {
            yields_attempted: Some(5213),
            yields_successful: Some(1),
            preemptions_reported: Some(900),
            preemptions_other: Some(100),
            halts: Some(7),
            polls_attempted: Some(6),
            polls_successful: Some(2),
            halt_wait_ns: Some(3_000_000),
        };
        let text = line(&HintsView { lately, ..HintsView::default() }, &[], "5 min");
        let expected = [
            "hints of KVM in the last 5 min, which are no causes:",
            "vCPUs of this VM wait for each other: its kernel asked KVM 5,213 times to run one that had lost \
             its processor, and that one ran at once 1 time",
            "its vCPUs lost their processors 1,000 times, 900 of them where KVM can tell the guest",
            "its vCPUs halted 7 times and slept for 3.00 ms in that; KVM polled 6 times, 2 of them until the \
             end of the halt",
        ];
        assert_eq!(text, expected.join(" "));
        let none =
            CountsView { yields_attempted: Some(0), preemptions_other: Some(0), ..CountsView::default() };
        assert_eq!(line(&HintsView { lately: none, ..HintsView::default() }, &[], "1 h"), "");
        let reason = Some("debugfs is not mounted\u{7}".into());
        let text = line(&HintsView { reason, ..HintsView::default() }, &[], "1 h");
        assert_eq!(text, "what KVM counts is not known: debugfs is not mounted\\u{7}");
    }
}
