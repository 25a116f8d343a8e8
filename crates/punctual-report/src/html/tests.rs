//! The page says what the results say, loads nothing, and runs nothing that came from a file.

use super::*;
use crate::Column;
use crate::format::fmt_duration;
use crate::table::tests::{disturbed, results, under_linux, with_packets};
use crate::timeline::{Job, Row, RowKind, Slice, Timeline, Use};
use punctual_model::guarantees::{CounterExample, Remedy, TaskGuarantee, Verdict, Warning};
use punctual_model::results::{Cause, JobStats, SmpRounds, Source, TaskBlame};
use punctual_model::{Guarantees, Results};

fn column(label: &str, results: Results) -> Column {
    Column { label: label.into(), results }
}

fn page(columns: &[Column]) -> Page<'_> {
    Page { columns, guarantees: None, timeline: None }
}

fn timeline() -> Timeline {
    let row = |group: &str, name: &str, kind| Row {
        group: group.into(),
        name: name.into(),
        kind,
        slices: vec![
            Slice { begin_ns: 1_000, end_ns: 2_000, label: 0 },
            Slice { begin_ns: 2_500, end_ns: 9_000, label: 1 },
        ],
        budget: vec![(0, 5_000), (2_000, 0), (5_000, 5_000)],
        jobs: vec![Job { number: 0, release_ns: 500, deadline_ns: 8_000, end_ns: Some(9_000) }],
    };
    Timeline {
        from_ns: 0,
        to_ns: 10_000,
        cut: true,
        labels: vec![("control.0".into(), Use::Execution), ("idle".into(), Use::Idle)],
        rows: vec![
            row("processors", "cpu 0", RowKind::Processor),
            row("control", "control.0", RowKind::Vcpu),
            row("control", "task0", RowKind::Task),
        ],
    }
}

fn guarantees(of: Verdict) -> Guarantees {
    let task = |parent: &str, name: &str, verdict| TaskGuarantee {
        parent: parent.into(),
        name: name.into(),
        deadline_ns: 50_000_000,
        verdict,
        dominant: None,
        test: "test".into(),
    };
    Guarantees {
        host: "factory".into(),
        tasks: vec![
            task("control", "task0", Verdict::Guaranteed { bound_ns: 40_000_000, slack_ns: 10_000_000 }),
            task("logging", "task0", Verdict::Guaranteed { bound_ns: 40_000_000, slack_ns: 10_000_000 }),
            task("video", "task1", of),
        ],
        vcpus: Vec::new(),
        flows: Vec::new(),
        chains: Vec::new(),
        modes: Vec::new(),
        warnings: vec![Warning { about: "video.0".into(), text: "its period is <odd>".into() }],
        remedies: vec![Remedy {
            vcpu: "video.0".into(),
            budget_ns: 7_040_000,
            budget_now_ns: 6_000_000,
            period_ns: 10_000_000,
            tasks: vec!["task1".into()],
        }],
    }
}

/// The part of a page between two marks.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("{from} is missing"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to} is missing")).0
}

fn words(markup: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in markup.chars() {
        match c {
            '<' => inside = true,
            '>' => {
                inside = false;
                text.push(' ');
            }
            c if !inside => text.push(c),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn verdict(page: &Page<'_>) -> String {
    words(between(&render(page), "<section id=\"verdict\"", "</section>"))
}

#[test]
fn vcpus_that_wait_for_each_other_have_a_table_of_their_rounds() {
    let caption = "vCPUs that wait for each other: rtds";
    let mut results = results("rtds", 0);
    assert!(!render(&page(&[column("rtds", results.clone())])).contains(caption));
    results.tasks[0].cpu_time_ns = 2_000_000_000;
    results.tasks[0].smp = Some(Box::new(SmpRounds { rounds: 5_000, spun_ns: 500_000_000 }));
    let page = render(&page(&[column("rtds", results)]));
    let table = words(between(&page, caption, "</table>"));
    for part in ["5,000", "2,500/s", "25.0 %"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn the_verdict_says_who_missed() {
    insta::assert_snapshot!(verdict(&page(&[column("credit", results("credit", 240))])));
}

#[test]
fn the_verdict_tells_a_met_deadline_from_a_guaranteed_one() {
    let columns = [column("rtds", results("rtds", 0))];
    let of = |guarantee| {
        let guarantees = guarantees(guarantee);
        let page = Page { guarantees: Some(&guarantees), ..page(&columns) };
        let html = render(&page);
        let tone = between(&html, "<div class=\"banner ", "\"").to_owned();
        (tone, words(between(&html, "<p class=\"lead\">", "</div>")))
    };
    let why = Verdict::Unknown { why: "the test is only sufficient".into() };
    let counter_example =
        CounterExample { pattern: "all at once".into(), missed_by_ns: 1, late_min_ns: None, short_ns: None };
    insta::assert_debug_snapshot!([
        of(Verdict::Guaranteed { bound_ns: 1, slack_ns: 1 }),
        of(why),
        of(Verdict::NotGuaranteed { counter_example }),
    ]);
}

#[test]
fn several_results_stand_side_by_side() {
    let columns = [column("periodic", results("periodic", 0)), column("credit", results("credit", 700))];
    insta::assert_snapshot!(verdict(&page(&columns)));
}

#[test]
fn many_results_stand_in_rows() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let columns = names.map(|name| column(name, results("rtds", if name == "c" { 700 } else { 0 })));
    let verdict = verdict(&page(&columns));
    assert!(verdict.contains("Result control video logging a ✓ met ✓ met ✓ met b"), "{verdict}");
    assert!(verdict.contains("c ✓ met ✗ missed 28.0 % ✗ missed 1.1 % d"), "{verdict}");
}

#[test]
fn a_live_run_says_on_which_machine() {
    let machine = Some("Some CPU, 8 processors, Linux 6.12.1".into());
    let columns = [column("live", Results { source: Source::Live, machine, ..results("rtds", 0) })];
    let html = render(&page(&columns));
    let run = words(between(&html, "<section id=\"run\"", "</section>"));
    assert!(run.contains("live on Some CPU, 8 processors, Linux 6.12.1"), "{run}");
    assert!(!run.contains("simulation"), "{run}");
}

#[test]
fn sections_are_there_when_there_is_something_to_show() {
    let sections = |page: &Page<'_>| {
        let html = render(page);
        let links = between(&html, "<nav", "</nav>").to_owned();
        links
            .lines()
            .filter_map(|line| Some(line.split_once("\"#")?.1.split_once('"')?.0.to_owned()))
            .collect::<Vec<_>>()
    };
    let simulated = column("sim", results("rtds", 0));
    let mut live = simulated.clone();
    live.results.source = Source::Live;
    let timeline = timeline();
    assert_eq!(
        sections(&page(std::slice::from_ref(&simulated))),
        ["verdict", "run", "deadlines", "latency", "processors", "details"]
    );
    let columns = [simulated, live];
    let all = Page { timeline: Some(("sim", &timeline)), ..page(&columns) };
    assert_eq!(
        sections(&all),
        ["verdict", "run", "deadlines", "latency", "paired", "timeline", "budgets", "processors", "details"]
    );
    let column = column("sim", with_packets(results("rtds", 0)));
    assert_eq!(
        sections(&page(std::slice::from_ref(&column))),
        ["verdict", "run", "deadlines", "latency", "packets", "processors", "details"]
    );
}

#[test]
fn a_chain_that_is_late_is_no_met_deadline() {
    insta::assert_snapshot!(verdict(&page(&[column("rtds", with_packets(results("rtds", 0)))])));
}

#[test]
fn a_guarantee_that_does_not_cover_everything_says_so() {
    let columns = [column("rtds", with_packets(results("rtds", 0)))];
    let guarantees = guarantees(Verdict::Guaranteed { bound_ns: 1, slack_ns: 1 });
    let page = Page { guarantees: Some(&guarantees), ..page(&columns) };
    let verdict = verdict(&page);
    assert!(verdict.contains("It leaves chain loop undecided."), "{verdict}");
    assert!(verdict.contains("chain loop ✗ missed 1.5 % ? not analysed"), "{verdict}");
}

fn packets(page: &Page<'_>) -> String {
    between(&render(page), "<section id=\"packets\"", "</section>").to_owned()
}

#[test]
fn a_bar_has_every_part_of_the_way_with_its_share_of_the_mean() {
    let columns = [column("rtds", with_packets(results("rtds", 0)))];
    let section = packets(&page(&columns));
    insta::assert_snapshot!(words(&section));
    // 9.6, 150.5, 3.54 and 5.54 us of 169.18 us.
    let bar = between(&section, "telemetry</th>", "</tr>");
    insta::assert_snapshot!(bar);
}

#[test]
fn packets_of_several_results_have_one_scale_per_flow() {
    let slow = with_packets(results("credit", 0));
    let mut fast = slow.clone();
    fast.flows[0].segments.truncate(1);
    let columns = [column("slow", slow), column("fast", fast)];
    let section = packets(&page(&columns));
    let bar = |name: &str| between(between(&section, name, "</tr>"), "<div", "</div>").to_owned();
    let widths = |bar: String| -> f64 {
        let widths =
            bar.split("width:").skip(1).filter_map(|rest| rest.split_once('%')?.0.parse::<f64>().ok());
        widths.sum()
    };
    assert!((widths(bar("telemetry: slow</th>")) - 100.0).abs() < 0.5);
    assert!(widths(bar("telemetry: fast</th>")) < 10.0);
}

/// A Linux host whose requests pass a card, threads and a VM.
fn linux_host(method: &str) -> Results {
    let text = format!(
        "duration = '50ms'\n[machine]\nprocessors = 2\n[host_stack]\nmethod = '{method}'\n\
         [host_stack.card.rt]\npriority = 50\n\
         [host_stack.server.voice]\npriority = 47\nvnic_priority = 48\nload = 'requests'\n\
         [host_stack.server.noisy]\nload = 'stream'\n"
    );
    let stack = punctual_model::file::parse_host_stack(text.as_bytes(), "host.toml", &Default::default());
    punctual_host_stack_sim::simulate(&stack.expect("a valid host")).expect("a simulation")
}

#[test]
fn each_wait_and_each_cost_of_a_request_has_a_row_and_those_of_a_segment_stand_together() {
    let columns = [column("partitioned", linux_host("partitioned"))];
    assert!(render(&page(&columns)).contains(">Simulated, 50.0 ms, seed "), "no policy, no word of it");
    let section = packets(&page(&columns));
    let table = between(&section, "voice: each wait and each cost", "</table>");
    let flow = &columns[0].results.flows[0];
    assert!(flow.parts.len() > 10 && !section.contains("noisy: each wait"));
    let mut rest = table;
    for part in &flow.parts {
        let head = format!("{}</th>", part.part.name());
        let row = between(rest, &head, "</tr>");
        let figures = [part.time.mean(), part.time.quantile_ppm(990_000), part.time.max()];
        let figures = figures.map(|time| if time.is_zero() { "-".into() } else { fmt_duration(time) });
        let told = words(row).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.ends_with(&figures.join(" ")), "{told}: {figures:?}");
        assert!(row.contains(part.part.segment().name()), "{row}");
        rest = rest.split_once(&head).expect("it was found").1;
    }
    let two = [column("a", linux_host("threaded")), column("b", linux_host("partitioned"))];
    let both = packets(&page(&two));
    let lock =
        between(between(&both, "voice: each wait and each cost", "</table>"), "softirq lock</th>", "</tr>");
    // Partitioned softirqs have a lock of their own: nobody waits for it.
    assert!(words(lock).trim_end().ends_with('-'), "{lock}");
}

#[test]
fn what_plain_linux_does_not_count_is_no_number() {
    let columns = [column("linux", under_linux(results("rtds", 24)))];
    let page = render(&page(&columns));
    let row = |caption: &str, name: &str| words(between(between(&page, caption, "</table>"), name, "</tr>"));
    for (caption, name, dashes) in
        [("vCPUs: all metrics", "control.0</th>", 7), ("Pools: all metrics", "main</th>", 5)]
    {
        let row = row(caption, name);
        assert_eq!(row.split_whitespace().filter(|cell| *cell == "-").count(), dashes, "{row}");
    }
}

#[test]
fn the_same_results_are_the_same_bytes() {
    let columns = [column("a", with_packets(results("rtds", 24))), column("b", results("credit", 240))];
    let timeline = timeline();
    let page = Page { timeline: Some(("a", &timeline)), ..page(&columns) };
    assert_eq!(render(&page), render(&page));
}

#[test]
fn a_budget_that_would_help_is_shown_as_it_is_written_in_a_host_file() {
    let columns = [column("a", results("rtds", 24))];
    let guarantees = guarantees(Verdict::Unknown { why: "no test".into() });
    let text = words(&render(&Page { guarantees: Some(&guarantees), ..page(&columns) }));
    let expected = "video.0 : with a budget of 7040us in every 10ms (now 6ms), task1 would be guaranteed";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn names_from_files_stay_text() {
    const EVIL: &str = "</script><img src=x onerror=alert(1)>'\"&\u{7}\u{2028}";
    let mut results = results("rtds", 24);
    results.host = EVIL.into();
    results.program = EVIL.into();
    results.pools[0].policy = EVIL.into();
    results.domains[0].name = EVIL.into();
    results.vcpus[0].name = EVIL.into();
    for task in &mut results.tasks {
        task.name = EVIL.into();
        task.parent = EVIL.into();
    }
    let mut timeline = timeline();
    timeline.labels[0].0 = EVIL.into();
    timeline.rows[1].name = EVIL.into();
    timeline.rows[1].group = EVIL.into();
    let mut guarantees = guarantees(Verdict::Unknown { why: EVIL.into() });
    guarantees.warnings[0].about = EVIL.into();
    guarantees.remedies[0].vcpu = EVIL.into();
    guarantees.remedies[0].tasks[0] = EVIL.into();
    for task in &mut guarantees.tasks {
        (task.parent, task.name) = (EVIL.into(), EVIL.into());
    }
    let mut results = with_packets(results);
    (results.flows[0].name, results.flows[0].kind) = (EVIL.into(), EVIL.into());
    (results.flows[1].from, results.flows[1].to) = (EVIL.into(), EVIL.into());
    (results.chains[0].name, results.chains[0].steps[0]) = (EVIL.into(), EVIL.into());
    (results.networks[0].name, results.networks[0].driver) = (EVIL.into(), EVIL.into());
    let live = Results { source: Source::Live, ..results.clone() };
    let columns = [column(EVIL, results), column("live", live)];
    let html =
        render(&Page { columns: &columns, guarantees: Some(&guarantees), timeline: Some((EVIL, &timeline)) });
    assert!(!html.contains("<img"), "a name became an element");
    // The script, the header of the timeline, its data.
    assert_eq!(html.matches("<script").count(), 3);
    assert_eq!(html.matches("</script").count(), 3);
}

/// Every number that is not part of a distribution, at its greatest.
fn at_most(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(object) if !object.contains_key("buckets") => {
            let keys = object
                .iter_mut()
                .filter(|(key, _)| !["version", "runs", "processor"].contains(&key.as_str()));
            keys.for_each(|(_, value)| at_most(value));
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(at_most),
        number @ serde_json::Value::Number(_) => *number = u64::MAX.into(),
        _ => {}
    }
}

#[test]
fn enormous_numbers_in_a_file_make_a_page_all_the_same() {
    let text = crate::json::to_json(&with_packets(results("rtds", 24)));
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    at_most(&mut value);
    let results = crate::json::from_json(&value.to_string(), "most.json").expect("results");
    let columns = [column("a", results.clone()), column("b", results)];
    assert!(render(&page(&columns[..1])).contains("missed 100 %"));
    assert!(render(&page(&columns)).contains("missed 100 %"));
    let tables = crate::records::records(&columns);
    assert!(tables.iter().all(|table| table.write_csv(std::io::sink()).is_ok()));
    #[cfg(feature = "parquet")]
    crate::parquet::write(&columns, std::io::sink()).expect("a sink takes everything");
}

#[test]
fn nothing_is_loaded_from_anywhere() {
    let columns = [column("a", results("rtds", 24))];
    let timeline = timeline();
    let html = render(&Page { timeline: Some(("a", &timeline)), ..page(&columns) });
    for reference in ["src=", "url(", "@import", "http://", "https://", "fetch(", "XMLHttpRequest", "import("]
    {
        assert!(!html.contains(reference), "{reference} in the page");
    }
    let policy = between(&html, "Content-Security-Policy\" content=\"", "\"");
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("script-src 'unsafe-inline'"),
        "{policy}"
    );
}

#[test]
fn every_plot_has_a_name_and_numbers_beside_it() {
    let columns = [column("a", with_packets(results("rtds", 24)))];
    let timeline = timeline();
    let html = render(&Page { timeline: Some(("a", &timeline)), ..page(&columns) });
    let plots: Vec<&str> = html.split("<svg class=\"plot").skip(1).collect();
    assert!(plots.len() >= 4, "{} plots", plots.len());
    for plot in plots {
        let tag = plot.split_once('>').expect("a tag").0;
        assert!(tag.contains("role=\"img\"") && tag.contains("aria-label=\""), "{tag}");
    }
    for figure in html.split("<figure>").skip(1) {
        let figure = figure.split_once("</figure>").expect("an end").0;
        assert!(figure.contains("<details>") && figure.contains("<table>"), "a figure without its numbers");
    }
    assert!(!html.contains("NaN") || SCRIPT.contains("NaN"));
    assert!(!between(&html, "<main>", "</main>").contains("NaN"));
}

#[test]
fn answers_of_check_are_read_and_others_refused_with_the_place() {
    let text = r#"{"host": "h", "tasks": [
        {"name": "t", "parent": "d", "deadline_ns": 5, "verdict": "guaranteed",
         "bound_ns": 3, "slack_ns": 2, "later": 1}
    ], "vcpus": [], "warnings": []}"#;
    let read = Guarantees::from_json(text, "check.json").expect("an answer");
    assert_eq!(
        read.task("d", "t").map(|task| &task.verdict),
        Some(&Verdict::Guaranteed { bound_ns: 3, slack_ns: 2 })
    );
    let error = Guarantees::from_json(&text.replace("guaranteed", "sure"), "check.json")
        .expect_err("no answer")
        .to_string();
    assert!(error.starts_with("check.json:") && error.contains("unknown variant `sure`"), "{error}");
}

#[test]
fn a_disturbed_run_says_so_before_the_verdict_and_why_its_jobs_were_late() {
    let text = render(&page(&[column("live", disturbed(results("rtds", 240)))]));
    let verdict = between(&text, "id=\"verdict\"", "</section>");
    let (disturbed_at, late_at) = (verdict.find("Something else had"), verdict.find("missed"));
    assert!(disturbed_at.is_some() && disturbed_at < late_at, "{verdict}");
    let blame = between(&text, "id=\"blame\"", "</section>");
    assert!(blame.contains("a more urgent unit"), "{blame}");
    assert!(blame.contains("video/task1 #12") && blame.contains("control.0"), "{blame}");
    assert!(between(&text, "id=\"processors\"", "</section>").contains("steal"));
    assert!(!render(&page(&[column("sim", results("rtds", 240))])).contains("id=\"blame\""));
}

#[test]
fn tasks_with_different_deadlines_are_figures_of_their_own() {
    let columns = [column("a", results("rtds", 0)), column("b", results("credit", 240))];
    let html = render(&page(&columns));
    let latency = between(&html, "<section id=\"latency\"", "</section>");
    let titles: Vec<&str> = latency.split("<h3>").skip(1).filter_map(|rest| rest.split('<').next()).collect();
    assert_eq!(titles, ["control", "video/task0", "video/task1", "logging/task0", "logging/task1"]);
    for figure in latency.split("<figure>").skip(1) {
        assert_eq!(figure.matches("<path class=\"due\"").count(), 2, "{figure}");
    }
}

#[test]
fn colours_stay_with_a_result_when_another_one_has_no_jobs() {
    let mut columns = ["a", "b", "c"].map(|label| column(label, results("rtds", 0)));
    let styles = |columns: &[Column]| {
        let html = render(&page(columns));
        let latency = between(&html, "<section id=\"latency\"", "</section>").to_owned();
        let figure = latency.split("<figure>").nth(1).expect("a figure").to_owned();
        let legend = between(&figure, "<ul class=\"legend\">", "</ul>").to_owned();
        ["a", "b", "c"].map(|label| {
            let item = legend.split("<li>").find(|item| item.contains(&format!("</svg>{label}</li>")))?;
            Some(between(item, "class=\"line ", "\"").to_owned())
        })
    };
    let [a, b, c] = styles(&columns).map(|style| style.expect("all are there"));
    assert!(a != b && b != c);
    columns[1].results.tasks.iter_mut().for_each(|task| task.jobs = JobStats::default());
    assert_eq!(styles(&columns), [Some(a), None, Some(c)]);
}

#[test]
fn a_cause_has_the_same_colour_in_all_results() {
    let mut columns = ["a", "b"].map(|label| column(label, disturbed(results("rtds", 240))));
    // The second one knows less: of what comes after it, the place would change.
    for task in &mut columns[1].results.tasks {
        let Some(blame) = &mut task.blame else { continue };
        let mut worst = blame.worst.clone();
        worst.iter_mut().for_each(|job| {
            job.causes.retain(|cause| cause.cause != Cause::Executing);
            job.response_ns = job.causes.iter().map(|cause| cause.time_ns).sum();
        });
        *blame = TaskBlame::of_jobs(worst);
    }
    let html = render(&page(&columns));
    let section = between(&html, "id=\"blame\"", "</section>").to_owned();
    let swatch = |legend: &str, of: Cause| {
        let item = legend.split("<li>").find(|item| item.contains(of.words())).expect("a cause");
        between(item, "class=\"swatch ", "\"").to_owned()
    };
    let legends: Vec<&str> = section.split("<ul class=\"legend\">").skip(1).collect();
    assert_eq!(legends.len(), 2);
    for of in [Cause::PreemptedByUnit, Cause::Standstill] {
        assert_eq!(swatch(legends[0], of), swatch(legends[1], of));
    }
}

#[test]
fn the_worst_jobs_lead_into_the_timeline_that_shows_them() {
    let mut timeline = timeline();
    timeline.to_ns = 1_000_000_000;
    timeline.rows[2] = Row { group: "video".into(), name: "task1".into(), ..timeline.rows[2].clone() };
    let columns = [column("live", disturbed(results("rtds", 240)))];
    let blame = |label: &str, to_ns| {
        let timeline = Timeline { to_ns, ..timeline.clone() };
        let html = render(&Page { timeline: Some((label, &timeline)), ..page(&columns) });
        between(&html, "id=\"blame\"", "</section>").to_owned()
    };
    let link = "<a href=\"#timeline\" data-task=\"video/task1\" data-from-ns=\"240000000\"";
    assert!(blame("live", 1_000_000_000).contains(link), "{}", blame("live", 1_000_000_000));
    assert_eq!(blame("live", 1_000_000_000).matches("<a href").count(), 10);
    // What it does not show, and what is of another result, has none.
    assert_eq!(blame("live", 200_000_000).matches("<a href").count(), 7);
    assert_eq!(blame("sim", 1_000_000_000).matches("<a href").count(), 0);
}
