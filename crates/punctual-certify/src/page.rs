//! A certificate as one HTML page that needs nothing else. The most important things come first: the verdict
//! and what was promised and measured.

use maud::{Markup, html};
use punctual_model::acceptance::{Measure, Statistic};
use punctual_report::format::{fmt_count, fmt_ns};
use punctual_report::html::{Cell, Frame, Section, Table, details, document};

use crate::certificate::{Cause, CauseKind, Certificate, Check, Measurement, Outcome, Worst};
use crate::verdict::statistic;

/// Latencies of a measure that are shown with their causes.
const WORST: usize = 10;

/// The page.
pub fn render(certificate: &Certificate) -> String {
    let sections: Vec<Section> = [
        Some(verdict(certificate)),
        promised(certificate),
        Some(measured(certificate)),
        worst(certificate),
        cures(certificate),
        Some(machine(certificate)),
        Some(conduct(certificate)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let digest = certificate.digest();
    document(&Frame {
        kind: "Punctual certificate",
        title: &certificate.host,
        tab: &format!("{}: certificate", certificate.host),
        subtitle: html! { (date(certificate.begun_us)) ", kernel " (kernel(certificate)) },
        skip: ("#verdict", "To the verdict"),
        sections: &sections,
        footer: html! {
            "Made by Punctual " (certificate.program) ". SHA-256 of the data: " code { (digest) } ". \
                `punctual certify --verify` checks the JSON file. Percentiles are at most 1/128 above the \
                true value."
        },
    })
}

/// `2026-11-28 03:04:05 UTC`.
pub fn date(us: u64) -> String {
    // Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let s = us / 1_000_000;
    let days = s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let [hour, minute, second] = [s / 3_600 % 24, s / 60 % 60, s % 60];
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The instant with milliseconds, without the date.
fn time_of_day(us: u64) -> String {
    let date = date(us);
    format!("{}.{:03}", date.get(11..19).unwrap_or_default(), us / 1_000 % 1_000)
}

fn kernel(certificate: &Certificate) -> &str {
    let item = certificate.fingerprint.iter().find(|item| item.name == "kernel release");
    item.and_then(|item| item.value.as_deref()).unwrap_or("unknown")
}

/// The outcome in a word, and what it means.
pub fn outcome(of: Outcome) -> (&'static str, &'static str) {
    match of {
        Outcome::Passed => ("Passed", "Every limit holds."),
        Outcome::Failed => ("Failed", "A limit is exceeded."),
        Outcome::Incomplete => ("Incomplete", "No limit is exceeded, but something is missing."),
        Outcome::Measured => ("Measured", "There are no limits to judge by."),
    }
}

fn verdict(certificate: &Certificate) -> Section {
    let verdict = &certificate.verdict;
    let (class, icon) = match verdict.outcome {
        Outcome::Passed => ("good", "✓"),
        Outcome::Failed => ("bad", "✗"),
        Outcome::Incomplete => ("warn", "!"),
        Outcome::Measured => ("plain", "i"),
    };
    let (word, meaning) = outcome(verdict.outcome);
    let exceeded: Vec<String> =
        verdict.checks.iter().filter(|check| check.holds() == Some(false)).map(exceeded).collect();
    Section::new(
        "verdict",
        "Verdict",
        html! {
            div class={ "banner " (class) } {
                span.icon aria-hidden="true" { (icon) }
                div {
                    p.lead { (word) }
                    p { (meaning) }
                }
            }
            (list(&exceeded))
            (list(&verdict.missing))
        },
    )
}

fn list(items: &[String]) -> Markup {
    html! { @if !items.is_empty() { ul.notes { @for item in items { li { (item) } } } } }
}

/// A limit that does not hold, as a sentence.
pub fn exceeded(check: &Check) -> String {
    let found = check.found.map_or_else(|| "nothing".into(), |found| shown(check.statistic, found));
    format!("{}: {} is {found}, the limit is {}", check.place(), name(check.statistic), limit(check))
}

/// A statistic's name without the unit: `p99`.
pub fn name(of: Statistic) -> &'static str {
    let key = of.key();
    key.rsplit_once('_').map_or(key, |(name, _)| name)
}

fn limit(check: &Check) -> String {
    let most = if check.statistic == Statistic::Lost { check.most } else { check.most.saturating_mul(1000) };
    shown(check.statistic, most)
}

/// A value of a statistic with its unit.
pub fn shown(of: Statistic, value: u64) -> String {
    if of == Statistic::Lost { format!("{} ppm", fmt_count(value)) } else { fmt_ns(value) }
}

fn promised(certificate: &Certificate) -> Option<Section> {
    let checks = &certificate.verdict.checks;
    let caption = "What was promised and measured";
    let mut table = Table::new(caption, "Measure", &["Statistic", "Promised", "Measured", "Verdict"]);
    for check in checks {
        let (class, word) = match check.holds() {
            Some(true) => ("good", "holds"),
            Some(false) => ("bad", "exceeded"),
            None => ("warn", "not measured"),
        };
        let cells = [
            Cell::text(name(check.statistic)),
            Cell::number(limit(check)),
            Cell::number(check.found.map_or_else(|| "-".into(), |found| shown(check.statistic, found))),
            Cell::Text(html! { span class={ "pill " (class) } { (word) } }),
        ];
        table.row(check.place().to_string(), cells);
    }
    (!checks.is_empty()).then(|| Section::new("promised", caption, html! { (table) }).called("Promised"))
}

/// The statistics that a table shows of a measure.
pub fn statistics(of: Measure) -> &'static [Statistic] {
    match of {
        Measure::Wakeup => {
            &[Statistic::P50, Statistic::P99, Statistic::P999, Statistic::P99999, Statistic::Max]
        }
        Measure::Noise | Measure::Hardware => &[Statistic::Lost, Statistic::Max],
    }
}

/// What a measure is, in a sentence.
pub fn explained(of: Measure) -> &'static str {
    match of {
        Measure::Wakeup => "How late a thread runs after its timer expired.",
        Measure::Noise => "Gaps in the execution of a thread that spins.",
        Measure::Hardware => {
            "The parts of the gaps that the kernel does not know of: firmware, hardware, a hypervisor below."
        }
    }
}

fn measured(certificate: &Certificate) -> Section {
    let table = |measure: Measure| {
        let shown_ones = statistics(measure);
        let mut columns: Vec<&str> = shown_ones.iter().map(|one| name(*one)).collect();
        columns.extend(["latencies", "watched"]);
        let mut table = Table::new(explained(measure), "Processor", &columns);
        for one in certificate.measurements.iter().filter(|one| one.measure == measure) {
            let mut cells: Vec<Cell> =
                shown_ones.iter().map(|what| Cell::number(shown(*what, statistic(one, *what)))).collect();
            cells.push(Cell::number(fmt_count(one.latencies.count())));
            cells.push(Cell::number(fmt_ns(one.watched_ns)));
            table.row(processor(one), cells);
        }
        table
    };
    let tables: Vec<(Measure, Table)> =
        Measure::ALL.iter().map(|&measure| (measure, table(measure))).collect();
    let body = html! {
        @for (measure, table) in &tables {
            h3 { (measure.name()) }
            p { (explained(*measure)) }
            @if table.is_empty() { p.note { "Not measured." } } @else { (table) }
        }
    };
    Section::new("measured", "What was measured", body).called("Measured")
}

fn processor(of: &Measurement) -> String {
    match &of.guest {
        None => format!("processor {}", of.processor),
        Some(guest) => format!("{guest}, vCPU {}", of.processor),
    }
}

/// The longest latencies of the host and of each guest, at most so many of each measure. Those of `hardware`
/// are among the gaps already.
pub fn longest(certificate: &Certificate, most: usize) -> Vec<(&Measurement, &Worst)> {
    let mut guests: Vec<Option<&str>> =
        certificate.measurements.iter().map(|one| one.guest.as_deref()).collect();
    guests.dedup();
    let of = |guest: Option<&str>, measure: Measure| {
        let there = certificate.measurements.iter();
        let there = there.filter(|one| one.guest.as_deref() == guest && one.measure == measure);
        let mut all: Vec<_> = there.flat_map(|one| one.worst.iter().map(move |worst| (one, worst))).collect();
        all.sort_by_key(|(_, worst)| std::cmp::Reverse(worst.length_ns));
        all.truncate(most);
        all
    };
    guests
        .into_iter()
        .flat_map(|guest| [Measure::Wakeup, Measure::Noise].map(|measure| of(guest, measure)).concat())
        .collect()
}

/// A cause in words: `hog (SCHED_FIFO 99, thread 5) 1.20 ms`.
pub fn cause(of: &Cause) -> String {
    let what = match of.kind {
        CauseKind::Thread => of.who.as_str(),
        CauseKind::Idle => "idle processor",
        CauseKind::Itself => "interrupt, firmware or hypervisor",
    };
    format!("{what} {}", fmt_ns(of.time_ns))
}

/// The causes of a latency in words.
pub fn causes(of: &Worst) -> String {
    match of.causes.as_slice() {
        [] => "not known".into(),
        all => all.iter().map(cause).collect::<Vec<_>>().join(", "),
    }
}

fn worst(certificate: &Certificate) -> Option<Section> {
    let all = longest(certificate, WORST);
    let caption = "The longest latencies and who had the processor";
    let mut table = Table::new(caption, "When (UTC)", &["Measure", "Length", "Who had the processor"]);
    for (measurement, worst) in &all {
        let cells = [
            Cell::text(measurement.place().to_string()),
            Cell::number(fmt_ns(worst.length_ns)),
            Cell::Text(html! { span.sentence { (causes(worst)) } }),
        ];
        table.row(time_of_day(worst.at_us), cells);
    }
    let body = html! {
        (table)
        p.note { "Causes are known from: " (certificate.conduct.causes) "." }
    };
    (!all.is_empty()).then(|| Section::new("worst", "The worst", body))
}

fn cures(certificate: &Certificate) -> Option<Section> {
    let findings = &certificate.findings;
    let bad =
        |finding: &&crate::certificate::Finding| matches!(finding.severity.as_str(), "critical" | "warning");
    let mut table = Table::new("What punctual doctor found", "Check", &["Severity", "Finding", "Remedy"]);
    for finding in findings.iter().filter(bad) {
        let cells = [
            Cell::text(&finding.severity),
            Cell::Text(html! { span.sentence { (finding.summary) ". " (finding.why) } }),
            Cell::Text(html! { @if let Some(fix) = &finding.fix { code { (fix) } } @else { "-" } }),
        ];
        table.row(finding.id.clone(), cells);
    }
    (!table.is_empty())
        .then(|| Section::new("cures", "What would help", html! { (table) }).called("Remedies"))
}

fn machine(certificate: &Certificate) -> Section {
    let mut table = Table::new("The machine", "Fact", &["Value", "Source"]);
    for item in &certificate.fingerprint {
        let value = match (&item.value, &item.reason) {
            (Some(value), _) if value.is_empty() => html! { "(empty)" },
            (Some(value), _) => html! { span.sentence { (value) } },
            (None, reason) => html! { "unknown: " (reason.as_deref().unwrap_or("no reason")) },
        };
        table.row(item.name.clone(), [Cell::Text(value), Cell::Text(html! { code { (item.source) } })]);
    }
    Section::new("machine", "The machine", html! { (details("Its fingerprint", &table)) })
}

fn conduct(certificate: &Certificate) -> Section {
    let conduct = &certificate.conduct;
    let class = match conduct.priority {
        0 => "the fair class".to_owned(),
        priority => format!("SCHED_FIFO, priority {priority}"),
    };
    let loads = if conduct.loads.is_empty() { "none".into() } else { conduct.loads.join(", ") };
    let processors = conduct.processors.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let ms = |ms: u64| fmt_ns(ms.saturating_mul(1_000_000));
    let rows = [
        ("Begun", date(certificate.begun_us)),
        ("Ended", date(certificate.ended_us)),
        ("Length", format!("{} of {}", ms(conduct.measured_ms), ms(conduct.wanted_ms))),
        ("Processors", processors),
        ("Measuring threads", class),
        ("Interval of timers", fmt_ns(conduct.interval_ns)),
        ("Loads beside", loads),
    ];
    let mut table = Table::new("How it was measured", "What", &["Value"]);
    for (name, value) in rows {
        table.row(name, [Cell::text(value)]);
    }
    let mut methods: Vec<String> = Vec::new();
    for one in &certificate.measurements {
        let method = format!("{}: {}", one.measure.name(), one.method);
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    let body = html! { (table) (list(&methods)) (list(&conduct.notes)) };
    Section::new("conduct", "How it was measured", body).called("Conduct")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{certificate, measurement};
    use punctual_model::acceptance::{Limit, Limits, PlaceLimits};

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (s, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_795_826_045, "2026-11-28 00:34:05 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
        ] {
            assert_eq!(date(s * 1_000_000), expected);
        }
    }

    #[test]
    fn the_page_has_the_verdict_the_promise_and_the_causes_and_escapes_names() {
        let every = vec![Limit { measure: Measure::Wakeup, statistic: Statistic::Max, most: 5 }];
        let limits = Limits { host: PlaceLimits { every, single: Vec::new() }, ..Limits::default() };
        let measurements = vec![measurement(None, 3, Measure::Wakeup, &[1_000, 9_000])];
        let certificate = certificate(measurements, Some(limits));
        let page = render(&certificate);
        for part in [
            "Failed",
            "wakeup of processor 3: max is 9.00 us, the limit is 5.00 us",
            "&lt;hog&gt; &amp; co 7 ns",
            &certificate.digest(),
            "6.12.1",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("<hog>") && !page.contains("http://") && !page.contains("https://"));
        assert_eq!(page, render(&certificate), "the same bytes");
    }
}
