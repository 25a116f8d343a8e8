//! `punctual status`: what the service sees.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_doctor::doctor::Cpus;
use punctual_hold::protocol::{HeldRole, HeldVcpu, Order};
use punctual_model::text::{printable, printable_lines};
use punctual_report::format::{fmt_count, fmt_ns};
use punctual_service::client::Client;
use punctual_service::exporter::{self, Exporter};
use punctual_service::metrics::Format;
use punctual_service::view::{
    self, ActorView, ClassView, HostView, InterruptsView, PoolView, SlotView, Thread, Warning,
};
use punctual_service::web::Web;
use serde::Serialize;

use super::error::Error;
use super::output::{Ui, wrapped};
use super::why::known_from;
use super::{exit, hints, interrupt};

/// Show the VMs and units that the service sees: class, threads, processors, run and wait times, budgets,
/// warnings.
///
/// "run" is the share of a processor that a VM's vCPUs, or its helper threads, ran in the last second, all
/// together; "wait" is the share of the time for which they were ready and had no processor. "delivered" is
/// the share of periods in which the vCPUs of a VM that is held got their budgets, or did not want them. The
/// same for the threads of a unit. With the name or process of a VM or unit, each of its threads is shown.
/// Needs a running `punctual serve`, and root or the group `punctual`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual status\n  \
    punctual status relay-1                                  its threads by role and processor\n  \
    punctual status --metrics > /var/lib/prometheus/node-exporter/punctual.prom\n  \
    punctual status --metrics --listen 127.0.0.1:9931        for a Prometheus to scrape\n  \
    punctual status --web                                    a page at http://127.0.0.1:9932/\n  \
    punctual status --json | jq '.actors[] | select(.class == null) | .name'")]
pub(super) struct Args {
    /// Show this VM or unit, by its name or process.
    #[arg(value_name = "VM")]
    vm: Option<String>,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print metrics in the text format of Prometheus.
    #[arg(long, conflicts_with_all = ["vm", "json"])]
    metrics: bool,
    /// Serve the metrics over HTTP at /metrics of this loopback address until Ctrl-C.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "metrics")]
    listen: Option<String>,
    /// Serve a read-only page for browsers of this machine until Ctrl-C; 127.0.0.1:9932 if no loopback
    /// address is given.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = WEB,
        conflicts_with_all = ["vm", "json", "metrics"])]
    web: Option<String>,
}

/// Where the page is if nothing else is said.
const WEB: &str = "127.0.0.1:9932";
/// The state of a VM under enforcement.
const HELD: &str = "held";

/// Serves metrics until Ctrl-C.
fn listen(args: &Args, address: &str, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    interrupt::be_graceful();
    let exporter = Exporter::open(address, &args.run).map_err(Error::usage)?;
    ui.print(format!("metrics are at http://{}/metrics\n", exporter.address()))?;
    exporter.run(&interrupt::stopped);
    Ok(exit::OK)
}

/// Serves the page until Ctrl-C.
fn web(args: &Args, address: &str, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    interrupt::be_graceful();
    let web = Web::open(address, &args.run).map_err(Error::usage)?;
    ui.print(format!("the page is at http://{}/\n", web.address()))?;
    web.run(&interrupt::stopped);
    Ok(exit::OK)
}

/// The host and its VMs.
#[derive(Serialize)]
struct Status {
    host: HostView,
    actors: Vec<ActorView>,
}

/// Runs `punctual status`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    if let Some(address) = &args.listen {
        return listen(args, address, ui);
    }
    if let Some(address) = &args.web {
        return web(args, address, ui);
    }
    let connected = Client::connect(&args.run);
    if args.metrics {
        ui.print(exporter::metrics_of(connected, Format::Text))?;
        return Ok(exit::OK);
    }
    let mut client = connected.map_err(Error::usage)?;
    if let Some(vm) = &args.vm {
        let actor = client.describe(vm).map_err(Error::usage)?;
        if args.json {
            ui.print_json(&actor)?;
        } else {
            ui.print(printable_lines(&one(&actor)))?;
        }
        return Ok(exit::OK);
    }
    let host = client.status().map_err(Error::usage)?;
    let actors = client.list().map_err(Error::usage)?;
    let status = Status { host, actors };
    if args.json {
        ui.print_json(&status)?;
    } else {
        ui.print(printable_lines(&all(&status)))?;
    }
    Ok(exit::OK)
}

/// The whole host.
fn all(Status { host, actors }: &Status) -> String {
    let (vms, units): (Vec<&ActorView>, Vec<&ActorView>) =
        actors.iter().partition(|actor| actor.kind == view::VM);
    let mut observed = count(vms.len(), "VM");
    if !units.is_empty() {
        observed += &format!(" and {}", count(units.len(), "unit"));
    }
    let does = match host.mode.as_str() {
        "enforce" => {
            let held = actors.iter().filter(|actor| actor.state == HELD).count();
            format!("observes {observed} and holds {} of them", fmt_count(held as u64))
        }
        _ => format!("observes {observed} and changes nothing"),
    };
    let (version, processors) = (printable(&host.version), count(host.processors, "processor"));
    let mut out = format!("punctual {version} on {processors} {does}\n");
    if let Some(error) = &host.reload_error {
        out += &wrapped("", "  ", &format!("the configuration is refused, the one before stays: {error}"));
    }
    if !matches!(host.waits.source.as_str(), "none" | "") {
        out += &wrapped("what VMs wait for is ", "  ", &known_from(&host.waits));
    }
    out += &configured(host);
    if !vms.is_empty() {
        out += &if host.mode == "enforce" {
            let heads = ["VM", "class", "state", "delivered", "vCPUs", "on", "run", "wait", "helpers", "on"];
            table(heads, &vms.iter().map(|vm| held_cells(vm)).collect::<Vec<_>>())
        } else {
            let heads = ["VM", "class", "process", "vCPUs", "on", "run", "wait", "helpers", "on", "run"];
            table(heads, &vms.iter().map(|vm| actor_cells(vm)).collect::<Vec<_>>())
        };
    }
    if !units.is_empty() {
        let heads = ["unit", "class", "state", "delivered", "processes", "threads", "on", "run", "wait"];
        out += &table(heads, &units.iter().map(|unit| unit_cells(unit)).collect::<Vec<_>>());
    }
    let of_actors = actors.iter().flat_map(|actor| {
        let label = label(actor);
        let (of_reason, of_text) = (label.clone(), label);
        let not_held = actor.not_held.iter().map(move |reason| format!("{of_reason} is not held: {reason}"));
        let texts = actor.warnings.iter().map(move |warning| format!("{of_text}: {}", warning.text));
        not_held.chain(texts)
    });
    out + &warnings(host.warnings.iter().map(|warning| warning.text.clone()).chain(of_actors))
}

/// Pools, slots, interrupts and classes of the configuration.
fn configured(host: &HostView) -> String {
    let mut out = String::new();
    if !host.pools.is_empty() {
        let heads = ["pool", "processors", "policy", "budgets ask for"];
        out += &table(heads, &host.pools.iter().map(pool_cells).collect::<Vec<_>>());
        for PoolView { name, processors, reason, .. } in &host.pools {
            if let Some(reason) = reason {
                let on = list(processors.iter().copied());
                out += &wrapped("", "  ", &printable(&format!("pool {name} is on {on}: {reason}")));
            }
        }
    }
    if !host.slots.is_empty() {
        let heads = ["slot", "processors", "of", "joined by"];
        out += &table(heads, &host.slots.iter().map(slot_cells).collect::<Vec<_>>());
    }
    if !host.interrupts.is_empty() {
        let heads = ["interrupts of", "class", "numbers", "on", "allowed", "because"];
        out += &table(heads, &host.interrupts.iter().map(interrupt_cells).collect::<Vec<_>>());
    }
    if !host.classes.is_empty() {
        let heads = ["class", "pool", "members", "budget", "period", "priority"];
        out += &table(heads, &host.classes.iter().map(class_cells).collect::<Vec<_>>());
    }
    out
}

/// What an actor is, and its name.
fn label(actor: &ActorView) -> String {
    let kind = if actor.kind == view::VM { "VM" } else { actor.kind.as_str() };
    format!("{kind} {}", actor.name)
}

fn warnings(all: impl Iterator<Item = String>) -> String {
    let lines: String = all.map(|text| wrapped("  ", "    ", &printable(&text))).collect();
    if lines.is_empty() { lines } else { format!("\nwarnings\n{lines}") }
}

fn pool_cells(pool: &PoolView) -> [String; 4] {
    let asked = format!("{:.2} of {}", pool.asked, pool.processors.len());
    [pool.name.clone(), list(pool.processors.iter().copied()), pool.policy.clone(), asked]
}

fn slot_cells(slot: &SlotView) -> [String; 4] {
    let or_none = |text: String| if text.is_empty() { "-".into() } else { text };
    let of = or_none(slot.of.clone().unwrap_or_default());
    [slot.name.clone(), list(slot.processors.iter().copied()), of, or_none(slot.joined.join(", "))]
}

fn interrupt_cells(of: &InterruptsView) -> [String; 6] {
    let numbers = |numbers: &[usize]| list(numbers.iter().copied());
    let refused: String =
        of.refused.iter().map(|one| format!("; {} stays: {}", one.number, one.reason)).collect();
    [
        of.device.clone(),
        of.class.clone(),
        numbers(&of.numbers),
        numbers(&of.processors),
        numbers(of.allowed.as_deref().unwrap_or_default()),
        of.reason.clone().unwrap_or_else(|| "-".into()) + &refused,
    ]
}

fn class_cells(class: &ClassView) -> [String; 6] {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), fmt_ns);
    let budget = match (class.best_effort, class.budget_ns) {
        (true, _) => "best effort".into(),
        (false, Some(ns)) if class.shares_budget => format!("{} a VM", fmt_ns(ns)),
        (false, ns) => time(ns),
    };
    [
        class.name.clone(),
        class.pool.clone().unwrap_or_else(|| "-".into()),
        class.actors.to_string(),
        budget,
        time(class.period_ns),
        class.priority.map_or_else(|| "-".into(), |priority| priority.to_string()),
    ]
}

fn actor_cells(actor: &ActorView) -> [String; 10] {
    let (vcpus, helpers): (Vec<&Thread>, Vec<&Thread>) =
        actor.threads.iter().partition(|thread| thread.vcpu.is_some());
    [
        actor.name.clone(),
        actor.class.clone().unwrap_or_else(|| "-".into()),
        actor.process.to_string(),
        vcpus.len().to_string(),
        on(&vcpus),
        sum(&vcpus, |thread| thread.run_share),
        sum(&vcpus, |thread| thread.wait_share),
        helpers.len().to_string(),
        on(&helpers),
        sum(&helpers, |thread| thread.run_share),
    ]
}

fn unit_cells(actor: &ActorView) -> [String; 9] {
    let threads: Vec<&Thread> = actor.threads.iter().collect();
    [
        actor.name.clone(),
        actor.class.clone().unwrap_or_else(|| "-".into()),
        actor.state.clone(),
        delivered(actor),
        actor.processes.to_string(),
        threads.len().to_string(),
        on(&threads),
        sum(&threads, |thread| thread.run_share),
        sum(&threads, |thread| thread.wait_share),
    ]
}

/// The processors on which threads were last.
fn on(threads: &[&Thread]) -> String {
    list(threads.iter().filter_map(|thread| thread.processor))
}

/// A share of all threads together.
fn sum(threads: &[&Thread], of: fn(&Thread) -> Option<f64>) -> String {
    let shares: Option<Vec<f64>> = threads.iter().map(|thread| of(thread)).collect();
    percent(shares.filter(|shares| !shares.is_empty()).map(|shares| shares.iter().sum()))
}

/// The same where VMs are held.
fn held_cells(actor: &ActorView) -> [String; 10] {
    let [name, class, _, vcpus, on, run, wait, helpers, helpers_on, _] = actor_cells(actor);
    [name, class, actor.state.clone(), delivered(actor), vcpus, on, run, wait, helpers, helpers_on]
}

/// The share of periods in which the vCPUs got their budgets or did not want them.
fn delivered(actor: &ActorView) -> String {
    let sum = |of: fn(&HeldVcpu) -> u64| actor.budgets.iter().map(of).sum::<u64>();
    let (delivered, periods) = (sum(|vcpu| vcpu.delivered), sum(|vcpu| vcpu.periods));
    if periods == 0 { "-".into() } else { format!("{:.2} %", 100.0 * delivered as f64 / periods as f64) }
}

/// The budgets of a VM that is held.
fn budgets(actor: &ActorView) -> String {
    if actor.budgets.is_empty() {
        return String::new();
    }
    let (is_vm, first) = if actor.kind == view::VM { (true, "vCPU") } else { (false, "threads") };
    let heads = [first, "may", "left", "used up", "periods", "delivered", "longest without", "wait p99"];
    let cells = |vcpu: &HeldVcpu| {
        let order = match vcpu.order {
            Order::Runs => "run",
            Order::Parked => "not run",
            Order::BestEffort => "run when nobody else wants to",
            Order::GivenUp => "run, given up",
        };
        [
            if is_vm { vcpu.number.to_string() } else { "all".into() },
            order.into(),
            vcpu.left_ns.map_or_else(|| "-".into(), fmt_ns),
            fmt_count(vcpu.exhausted),
            fmt_count(vcpu.periods),
            fmt_count(vcpu.delivered),
            fmt_ns(vcpu.longest_without_ns),
            fmt_ns(vcpu.wait_p99_ns),
        ]
    };
    table(heads, &actor.budgets.iter().map(cells).collect::<Vec<_>>())
}

/// Where the other threads of a VM that is held are, and why.
fn helpers(actor: &ActorView) -> String {
    if actor.helpers.is_empty() {
        return String::new();
    }
    let cells = |helper: &HeldRole| {
        let how = match (helper.rt_priority, helper.nice) {
            (0, 0) => helper.policy.clone(),
            (0, nice) => format!("{}, nice {nice}", helper.policy),
            (priority, _) => format!("{} {priority}", helper.policy),
        };
        [helper.role.clone(), list(helper.processors.iter().copied()), how, helper.reason.clone()]
    };
    let heads = ["helpers", "allowed", "scheduled", "because"];
    table(heads, &actor.helpers.iter().map(cells).collect::<Vec<_>>())
}

/// A VM with its threads.
fn one(actor: &ActorView) -> String {
    let class = match (&actor.class, &actor.pool) {
        (Some(class), Some(pool)) => format!("class {class} in pool {pool}"),
        (Some(class), None) => format!("class {class}"),
        (None, _) => "no class".into(),
    };
    let libvirt = if actor.is_libvirt { " of libvirt" } else { "" };
    let what = match &actor.monitor {
        Some(monitor) => format!("process {} ({}{libvirt})", actor.process, printable(monitor)),
        None => format!("{} from process {} on", count(actor.processes, "process"), actor.process),
    };
    let (name, state) = (label(actor), printable(&actor.state));
    let mut out = format!("{}: {class}, {state}, {what} of user {}\n", printable(&name), actor.owner);
    let adjustment = view::adjustment(&actor.adjustment);
    let adjusted = (!adjustment.is_empty()).then_some(adjustment);
    let unit = actor.unit.clone().filter(|unit| *unit != actor.name);
    let known =
        [("uuid", &actor.uuid), ("unit", &unit), ("cgroup", &actor.cgroup), ("adjusted to", &adjusted)];
    for (what, value) in known.into_iter().filter_map(|(what, value)| Some((what, value.as_ref()?))) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{what} {}", printable(value));
    }
    let heads = ["role", "thread", "name", "priority", "on", "allowed", "ran", "waited", "run", "wait"];
    out += &table(heads, &actor.threads.iter().map(thread_cells).collect::<Vec<_>>());
    out += &budgets(actor);
    out += &helpers(actor);
    let hints =
        actor.hints.as_ref().map(|hints| hints::shown(hints, &[], "1 h")).filter(|text| !text.is_empty());
    out += &hints.map_or_else(String::new, |text| format!("\n{text}"));
    let not_held = actor.not_held.iter().map(|reason| format!("it is not held: {reason}"));
    out + &warnings(not_held.chain(actor.warnings.iter().map(|Warning { text, .. }| text.clone())))
}

fn thread_cells(thread: &Thread) -> [String; 10] {
    let role = match thread.vcpu {
        Some(number) => format!("{} {number}", thread.role),
        None => thread.role.clone(),
    };
    [
        role,
        thread.tid.to_string(),
        thread.name.clone(),
        if thread.rt_priority > 0 { thread.rt_priority.to_string() } else { "-".into() },
        thread.processor.map_or_else(|| "-".into(), |processor| processor.to_string()),
        list(thread.processors.iter().copied()),
        fmt_ns(thread.run_ns),
        fmt_ns(thread.wait_ns),
        percent(thread.run_share),
        percent(thread.wait_share),
    ]
}

/// "1 VM", "2 VMs", "3 processes".
fn count(number: usize, what: &str) -> String {
    let ending = match (number, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{ending}", fmt_count(number as u64))
}

/// Processors as people write them.
fn list(processors: impl Iterator<Item = usize>) -> String {
    let all: BTreeSet<usize> = processors.collect();
    if all.is_empty() { "-".into() } else { all.into_iter().collect::<Cpus>().to_string() }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0))
}

/// A table under an empty line; the columns are aligned to the left.
fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let heads = heads.map(String::from);
    // Names are those of guests and files.
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| row.clone().map(|cell| printable(&cell).into_owned())).collect();
    let all = || std::iter::once(&heads).chain(&rows);
    let widths: [usize; N] =
        std::array::from_fn(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    "\n".to_owned() + &all().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use punctual_hold::protocol::RefusedInterrupt;
    use punctual_model::service::Adjustment;
    use punctual_service::view::RoleTotal;
    use punctual_service::waits::SourceView;

    use punctual_service::metrics;

    use super::*;

    fn thread(tid: u32, role: &str, vcpu: Option<u32>, processor: usize, share: f64) -> Thread {
        Thread {
            tid,
            name: "CPU 0/KVM".into(),
            role: role.into(),
            vcpu,
            processor: Some(processor),
            processors: vec![2, 3],
            rt_priority: 0,
            run_ns: 1_000_000,
            wait_ns: 0,
            run_share: Some(share),
            wait_share: Some(0.01),
        }
    }

    fn rt() -> PoolView {
        PoolView {
            name: "rt".into(),
            processors: vec![2, 3],
            reason: Some("isolated\u{7}".into()),
            idle: vec![6, 7],
            policy: "a policy".into(),
            asked: 0.8,
        }
    }

    fn eno6() -> InterruptsView {
        let reason = "the kernel keeps it".into();
        InterruptsView {
            device: "eno6".into(),
            class: "nic".into(),
            numbers: vec![40, 41, 42],
            processors: vec![0, 1],
            allowed: Some(vec![0]),
            reason: Some("they are in slot net".into()),
            refused: vec![RefusedInterrupt { number: 42, reason }],
        }
    }

    fn plc() -> SlotView {
        let joined = vec!["pool bulk".into(), "class hmi".into()];
        SlotView { name: "plc".into(), of: Some("class relay".into()), processors: vec![2, 3], joined }
    }

    fn relay() -> ClassView {
        ClassView {
            exec: Vec::new(),
            name: "relay".into(),
            pool: Some("rt".into()),
            budget_ns: Some(400_000),
            period_ns: Some(1_000_000),
            priority: Some(1),
            best_effort: false,
            shares_budget: false,
            actors: 1,
        }
    }

    fn switches() -> SourceView {
        let reason = Some("no tracepoints: tracefs is not mounted".into());
        SourceView { source: "switches".into(), reason, lost: 0 }
    }

    fn status() -> Status {
        let actor = ActorView {
            kind: view::VM.into(),
            name: "relay\u{1b}[2J".into(),
            process: 4711,
            processes: 1,
            monitor: Some("qemu".into()),
            uuid: None,
            is_libvirt: true,
            owner: 64055,
            unit: Some("machine-qemu.scope".into()),
            cgroup: None,
            state: "matched".into(),
            class: Some("relay".into()),
            pool: Some("rt".into()),
            seen_us: 0,
            threads: vec![
                thread(4711, "main-loop", None, 0, 0.01),
                thread(4713, "vcpu", Some(0), 2, 0.25),
                thread(4714, "vcpu", Some(1), 3, 0.5),
            ],
            roles: Vec::new(),
            adjustment: Adjustment { budget_ns: Some(450_000), ..Adjustment::default() },
            is_paused: false,
            not_held: None,
            waits: Vec::new(),
            lately: Vec::new(),
            hints: None,
            budgets: Vec::new(),
            helpers: Vec::new(),
            warnings: vec![Warning { kind: "budget".into(), text: "vCPU 1 runs 50 %".into() }],
        };
        let host = HostView {
            version: "0.1.0".into(),
            mode: "observe".into(),
            configuration: "/etc/punctual".into(),
            started_us: 0,
            processors: 4,
            actors: 1,
            actors_seen: 1,
            actors_released: 0,
            classes: vec![relay()],
            pools: vec![rt()],
            slots: vec![plc()],
            interrupts: vec![eno6()],
            reload_error: Some("host.toml:3: no".into()),
            hook_messages: 0,
            hook_garbage: 0,
            clients: 1,
            clients_dropped: 0,
            cpu_ns: 0,
            enforcer_cpu_ns: None,
            backend: None,
            waits: switches(),
            warnings: Vec::new(),
        };
        Status { host, actors: vec![actor] }
    }

    #[test]
    fn the_screen_shows_who_is_where_and_names_cannot_change_the_terminal() {
        let expected = "\
punctual 0.1.0 on 4 processors observes 1 VM and changes nothing
the configuration is refused, the one before stays: host.toml:3: no
what VMs wait for is known from the kernel's records of switches; no tracepoints: tracefs is not
  mounted

pool  processors  policy    budgets ask for
rt    2-3         a policy  0.80 of 2
pool rt is on 2-3: isolated\\u{7}

slot  processors  of           joined by
plc   2-3         class relay  pool bulk, class hmi

interrupts of  class  numbers  on   allowed  because
eno6           nic    40-42    0-1  0        they are in slot net; 42 stays: the kernel keeps it

class  pool  members  budget  period   priority
relay  rt    1        400 us  1.00 ms  1

VM              class  process  vCPUs  on   run     wait   helpers  on  run
relay\\u{1b}[2J  relay  4711     2      2-3  75.0 %  2.0 %  1        0   1.0 %

warnings
  VM relay\\u{1b}[2J: vCPU 1 runs 50 %
";
        let shown = all(&status());
        assert!(!shown.contains('\u{1b}'), "{shown}");
        assert_eq!(shown, expected, "{shown}");
    }

    #[test]
    fn a_vm_that_is_held_is_shown_with_what_it_got() {
        let mut status = status();
        status.host.mode = "enforce".into();
        let mut other = status.actors[0].clone();
        (other.name, other.not_held) = ("web".into(), Some("another run has it".into()));
        status.actors.push(other);
        status.actors[0].state = HELD.into();
        let vcpu = |number, delivered| HeldVcpu {
            number,
            order: Order::Parked,
            left_ns: Some(0),
            exhausted: 7,
            periods: 1000,
            delivered,
            longest_without_ns: 2_000_000,
            wait_p99_ns: 30_000,
        };
        status.actors[0].budgets = vec![vcpu(0, 1000), vcpu(1, 990)];
        let shown = all(&status);
        assert!(shown.starts_with("punctual 0.1.0 on 4 processors observes 2 VMs and holds 1 of them\n"));
        assert!(shown.contains("  relay  held     99.50 %    2      2-3"), "{shown}");
        assert!(shown.contains("  VM web is not held: another run has it\n"), "{shown}");
        let shown = one(&status.actors[0]);
        assert!(shown.contains("\n1     not run  0     7        1,000    990"), "{shown}");
    }

    /// A unit of two processes.
    fn unit() -> ActorView {
        let threads = vec![thread(50, view::TASK, None, 3, 0.25), thread(51, view::TASK, None, 2, 0.5)];
        let total = RoleTotal { role: view::TASK.into(), threads: 2, run_ns: 2_000_000, wait_ns: 500 };
        ActorView {
            kind: "unit".into(),
            name: "tap.service".into(),
            process: 50,
            processes: 2,
            monitor: None,
            is_libvirt: false,
            owner: 0,
            unit: Some("tap.service".into()),
            cgroup: Some("/system.slice/tap.service".into()),
            threads,
            roles: vec![total],
            ..status().actors.remove(0)
        }
    }

    #[test]
    fn units_have_a_table_and_a_budget_of_all_their_threads() {
        let mut status = status();
        status.actors.push(unit());
        let shown = all(&status);
        assert!(shown.starts_with("punctual 0.1.0 on 4 processors observes 1 VM and 1 unit and changes"));
        let expected = "\
unit         class  state    delivered  processes  threads  on   run     wait
tap.service  relay  matched  -          2          2        2-3  75.0 %  2.0 %

warnings
";
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("  unit tap.service: vCPU 1 runs 50 %\n"), "{shown}");
        let shown = one(&status.actors[1]);
        let begin = "unit tap.service: class relay in pool rt, matched, 2 processes from process 50 on of \
                     user 0\ncgroup /system.slice/tap.service\n";
        assert!(shown.starts_with(begin), "{shown}");
        let text = metrics::text(&status.host, &status.actors, Format::OpenMetrics);
        let expected = "punctual_vcpu_run_seconds_total{domain=\"tap.service\",vcpu=\"all\"} 0.002\n";
        assert!(text.contains(expected) && !text.contains("role=\"task\""), "{text}");
    }

    #[test]
    fn metrics_have_each_series_once_with_its_type_before_it() {
        let mut status = status();
        let twin = ActorView { process: 4712, ..status.actors[0].clone() };
        status.actors.push(twin);
        status.host.enforcer_cpu_ns = Some(1_500_000_000);
        let text = metrics::text(&status.host, &status.actors, Format::OpenMetrics);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: BTreeSet<&str> =
            samples.iter().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
        assert_eq!(series.len(), samples.len(), "{text}");
        for expected in [
            "punctual_up 1",
            "punctual_mode{mode=\"observe\"} 1",
            "punctual_reload_failed 1",
            "punctual_service_cpu_seconds_total{process=\"enforce\"} 1.5",
            "punctual_pool_utilization_ratio{pool=\"rt\"} 0.4",
            "punctual_vcpu_run_seconds_total{domain=\"relay\u{1b}[2J#4711\",vcpu=\"0\"} 0.001",
        ] {
            assert!(samples.contains(&expected), "{expected} is missing in\n{text}");
        }
        let mut typed = BTreeSet::new();
        for line in text.lines() {
            if let Some(of_type) = line.strip_prefix("# TYPE ") {
                let name = of_type.split(' ').next().expect("a name");
                assert!(typed.insert(name), "{name} comes twice");
            } else if !line.starts_with('#') {
                assert!(typed.iter().any(|name| line.starts_with(name)), "{line} has no type before it");
            }
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn a_vm_is_shown_with_its_threads() {
        let shown = one(&status().actors[0]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "VM relay\\u{1b}[2J: class relay in pool rt, matched, process 4711 (qemu of libvirt) of user \
             64055"
        );
        assert_eq!(lines[1..3], ["unit machine-qemu.scope", "adjusted to budget 450us"]);
        assert!(lines[6].starts_with("vcpu 0     4713    CPU 0/KVM  -         2   2-3"), "{shown}");
    }
}
