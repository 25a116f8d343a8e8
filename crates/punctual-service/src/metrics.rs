//! The numbers of the service for a monitoring system. Names and labels are an interface.

use std::fmt::Write as _;

use punctual_hold::protocol::HeldVcpu;

use crate::view::{ActorView, HostView, PoolView, TASK, Thread, VM};
use crate::waits::{BOUNDS_NS, PartView, WaitCause};

/// The label `vcpu` of a unit, whose threads have one budget together, and of all vCPUs of a VM together.
const ALL: &str = "all";
/// Series of a VM at most.
pub const SERIES_MAX: usize = 60;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text format 0.0.4
    /// (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>), which the textfile
    /// collector of node_exporter reads.
    Text,
    /// OpenMetrics 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
    OpenMetrics,
}

impl Format {
    /// The type of such a text in HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Format::Text => "",
            Format::OpenMetrics => "# EOF\n",
        }
    }
}

/// A metric with its samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// What follows the name of a sample.
    suffix: &'static str,
    samples: Vec<Sample>,
}

struct Sample {
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: f64,
}

/// All metrics of a service that answers.
pub fn text(host: &HostView, actors: &[ActorView], format: Format) -> String {
    let mut out = String::new();
    for family in of_host(host).into_iter().chain(of_vms(host, actors)) {
        family.write(format, &mut out);
    }
    out + format.end()
}

/// Those of a service that does not answer.
pub fn down(format: Format) -> String {
    let mut out = String::new();
    up(false).write(format, &mut out);
    out + format.end()
}

impl Family {
    fn gauge(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "gauge", help, suffix: "", samples: Vec::new() }
    }

    fn counter(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "counter", help, suffix: "_total", samples: Vec::new() }
    }

    fn info(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "info", help, suffix: "_info", samples: Vec::new() }
    }

    fn histogram(name: &'static str, help: &'static str) -> Family {
        Family { name, kind: "histogram", help, suffix: "", samples: Vec::new() }
    }

    fn add(&mut self, labels: &[(&'static str, &str)], value: f64) {
        self.add_as(self.suffix, labels, value);
    }

    fn add_as(&mut self, suffix: &'static str, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { suffix, labels, value });
    }

    /// A histogram's counts, each of those that are above the bound before and at most its own; the last one
    /// has no bound.
    fn add_counts(&mut self, labels: &[(&'static str, &str)], counts: &[u64], sum_ns: u64) {
        let mut below = 0;
        let bounds = BOUNDS_NS.iter().map(|bound| seconds(*bound).to_string());
        for (count, bound) in counts.iter().zip(bounds.chain(["+Inf".to_owned()])) {
            below += count;
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            self.add_as("_bucket", &labels, below as f64);
        }
        self.add_as("_count", labels, below as f64);
        self.add_as("_sum", labels, seconds(sum_ns));
    }

    fn with(mut self, labels: &[(&'static str, &str)], value: f64) -> Family {
        self.add(labels, value);
        self
    }

    /// Nothing where there is no sample.
    fn write(&self, format: Format, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let Family { name, kind, help, suffix: of_all, samples } = self;
        // The older format has no families: each sample of it has the name that its type names.
        let (of_all, kind) = match (format, *kind) {
            (Format::OpenMetrics, kind) => ("", kind),
            (Format::Text, "info") => (*of_all, "gauge"),
            (Format::Text, kind) => (*of_all, kind),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# TYPE {name}{of_all} {kind}");
        if format == Format::OpenMetrics && name.ends_with("_seconds") {
            let _ = writeln!(out, "# UNIT {name} seconds");
        }
        let _ = writeln!(out, "# HELP {name}{of_all} {help}");
        for Sample { suffix, labels, value } in samples {
            let labels: Vec<String> =
                labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(out, "{name}{suffix}{labels} {value}");
        }
    }
}

/// A value of a label; names of VMs may hold anything.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => out += "\\\\",
            '"' => out += "\\\"",
            '\n' => out += "\\n",
            other => out.push(other),
        }
    }
    out
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn up(is: bool) -> Family {
    Family::gauge("punctual_up", "Whether the service answers.").with(&[], f64::from(u8::from(is)))
}

fn of_host(host: &HostView) -> Vec<Family> {
    let flag = |is: bool| f64::from(u8::from(is));
    let is_refused = host.reload_error.is_some();
    let mut cpu = Family::counter("punctual_service_cpu_seconds", "Processor time of the service.")
        .with(&[("process", "serve")], seconds(host.cpu_ns));
    if let Some(ns) = host.enforcer_cpu_ns {
        cpu.add(&[("process", "enforce")], seconds(ns));
    }
    let mut utilization =
        Family::gauge("punctual_pool_utilization_ratio", "Budgets that run now, as a share of the pool.");
    for PoolView { name, asked, processors, .. } in &host.pools {
        utilization.add(&[("pool", name)], asked / processors.len().max(1) as f64);
    }
    let source = Family::info("punctual_wait_source", "Where the service knows from what VMs wait for.");
    let lost =
        Family::counter("punctual_wait_records_lost", "How often the kernel lost records of switches.");
    vec![
        up(true),
        Family::gauge("punctual_mode", "What the service does with VMs; 1 for the mode that it is in.")
            .with(&[("mode", "observe")], flag(host.mode == "observe"))
            .with(&[("mode", "enforce")], flag(host.mode == "enforce")),
        Family::gauge("punctual_reload_failed", "Whether the last reload was refused.")
            .with(&[], flag(is_refused)),
        cpu,
        utilization,
        source.with(&[("source", &host.waits.source)], 1.0),
        lost.with(&[], host.waits.lost as f64),
    ]
}

/// The metrics of VMs and units.
struct OfVms {
    info: Family,
    run: Family,
    ready: Family,
    wait: Family,
    latency: Family,
    budget: Family,
    period: Family,
    delivered: Family,
    exhausted: Family,
    helpers: Family,
    yields: Family,
    spins: Family,
    unguaranteed: Family,
}

/// Which metrics a VM has for each vCPU, rather than for all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Detail {
    times: bool,
    budgets: bool,
    causes: bool,
    latency: bool,
}

impl Detail {
    /// As much as [`SERIES_MAX`] permits, the most important first. So it depends on the number of vCPUs
    /// alone that a VM has, and series stay.
    fn of(vcpus: usize) -> Detail {
        const TIMES: usize = 2;
        const BUDGETS: usize = 4;
        const CAUSES: usize = WaitCause::ALL.len();
        // With the last bucket, count and sum.
        const LATENCY: usize = BOUNDS_NS.len() + 3;
        // Information, admission, five roles of helpers, two results of yields, and spins.
        const FIXED: usize = 2 + 5 + 2 + 1;
        let mut series = FIXED + TIMES + BUDGETS + CAUSES + LATENCY;
        let mut fits = |each: usize| {
            let more = each * vcpus.saturating_sub(1);
            let fits = series + more <= SERIES_MAX;
            series += if fits { more } else { 0 };
            fits
        };
        Detail { times: fits(TIMES), budgets: fits(BUDGETS), causes: fits(CAUSES), latency: fits(LATENCY) }
    }
}

impl OfVms {
    fn new() -> OfVms {
        OfVms {
            info: Family::info("punctual_actor", "A VM or unit: its class, pool and state."),
            run: Family::counter("punctual_vcpu_run_seconds", "Time that a vCPU ran."),
            ready: Family::counter(
                "punctual_vcpu_ready_seconds",
                "Time that a vCPU was ready and had no processor.",
            ),
            wait: Family::counter(
                "punctual_vcpu_wait_seconds",
                "Time that a vCPU did not run although it had work, or was kept from it, by cause.",
            ),
            latency: Family::histogram(
                "punctual_vcpu_wakeup_latency_seconds",
                "Time from a wake-up of a vCPU until it ran.",
            ),
            budget: Family::gauge("punctual_vcpu_budget_seconds", "Budget of a vCPU that is held."),
            period: Family::gauge("punctual_vcpu_period_seconds", "Period of a vCPU that is held."),
            delivered: Family::gauge(
                "punctual_vcpu_delivered_ratio",
                "Share of periods in which a vCPU got its budget or did not want it.",
            ),
            exhausted: Family::counter("punctual_vcpu_exhausted", "How often a vCPU used its budget up."),
            helpers: Family::counter(
                "punctual_helper_run_seconds",
                "Time that threads of a VM ran that are no vCPUs, by role.",
            ),
            yields: Family::counter(
                "punctual_vm_directed_yields",
                "How often the kernel of a VM asked KVM that another vCPU runs, by whether that one did.",
            ),
            spins: Family::counter(
                "punctual_vm_spin_exits",
                "How often vCPUs of a VM left the guest because they spun there.",
            ),
            unguaranteed: Family::gauge(
                "punctual_admission_unguaranteed",
                "How many vCPUs of a VM have a budget that is not guaranteed.",
            ),
        }
    }

    fn all(self) -> Vec<Family> {
        let OfVms { info, run, ready, wait, latency, budget, period, .. } = self;
        let OfVms { delivered, exhausted, helpers, yields, spins, unguaranteed, .. } = self;
        let budgets = [budget, period, delivered, exhausted];
        [info, run, ready, wait, latency]
            .into_iter()
            .chain(budgets)
            .chain([helpers, yields, spins, unguaranteed])
            .collect()
    }

    fn add(&mut self, host: &HostView, actor: &ActorView, name: &str) {
        let domain = ("domain", name);
        let class = actor.class.as_deref().unwrap_or_default();
        let pool = actor.pool.as_deref().unwrap_or_default();
        self.info.add(&[domain, ("class", class), ("pool", pool), ("state", &actor.state)], 1.0);
        let vcpus: Vec<&Thread> = actor.threads.iter().filter(|thread| thread.vcpu.is_some()).collect();
        let detail = Detail::of(vcpus.len());
        if let Some(all) = actor.roles.iter().find(|role| role.role == TASK) {
            self.add_times(name, ALL, all.run_ns, all.wait_ns);
        }
        if detail.times {
            for (vcpu, thread) in vcpus.iter().filter_map(|one| Some((one.vcpu?, one))) {
                self.add_times(name, &vcpu.to_string(), thread.run_ns, thread.wait_ns);
            }
        } else {
            let sum = |of: fn(&Thread) -> u64| vcpus.iter().map(|one| of(one)).sum();
            self.add_times(name, ALL, sum(|one| one.run_ns), sum(|one| one.wait_ns));
        }
        self.add_waits(name, actor, detail);
        self.add_budgets(name, host, actor, detail);
        for role in actor.roles.iter().filter(|role| role.role != "vcpu" && role.role != TASK) {
            self.helpers.add(&[domain, ("role", &role.role)], seconds(role.run_ns));
        }
        self.add_hints(name, actor);
        let lost = actor.warnings.iter().filter(|warning| warning.kind == "admission").count();
        self.unguaranteed.add(&[domain], lost as f64);
    }

    fn add_hints(&mut self, name: &str, actor: &ActorView) {
        let mut spins = actor.waits.iter().filter_map(|part| part.spins).peekable();
        if spins.peek().is_some() {
            self.spins.add(&[("domain", name)], spins.sum::<u64>() as f64);
        }
        let total = actor.hints.as_ref().map(|hints| hints.total).unwrap_or_default();
        if let (Some(attempted), Some(successful)) = (total.yields_attempted, total.yields_successful) {
            let failed = attempted.saturating_sub(successful);
            for (result, count) in [("successful", successful), ("failed", failed)] {
                self.yields.add(&[("domain", name), ("result", result)], count as f64);
            }
        }
    }

    fn add_times(&mut self, name: &str, vcpu: &str, run_ns: u64, ready_ns: u64) {
        let labels = [("domain", name), ("vcpu", vcpu)];
        self.run.add(&labels, seconds(run_ns));
        self.ready.add(&labels, seconds(ready_ns));
    }

    fn add_waits(&mut self, name: &str, actor: &ActorView, detail: Detail) {
        let vcpus: Vec<&PartView> = actor.waits.iter().filter(|part| part.vcpu.is_some()).collect();
        if vcpus.is_empty() {
            return;
        }
        let parts = |each: bool| -> Vec<(String, Vec<&PartView>)> {
            if !each {
                return vec![(ALL.into(), vcpus.clone())];
            }
            vcpus.iter().map(|&part| (part.vcpu.unwrap_or_default().to_string(), vec![part])).collect()
        };
        for (vcpu, parts) in parts(detail.causes) {
            for cause in WaitCause::ALL {
                let of_cause = parts.iter().flat_map(|part| &part.causes).filter(|one| one.cause == cause);
                let time_ns = of_cause.map(|one| one.time_ns).sum();
                let labels = [("domain", name), ("vcpu", &vcpu), ("cause", cause.name())];
                self.wait.add(&labels, seconds(time_ns));
            }
        }
        for (vcpu, parts) in parts(detail.latency) {
            let mut counts = vec![0; BOUNDS_NS.len() + 1];
            for (all, count) in parts.iter().flat_map(|part| part.latency_counts.iter().enumerate()) {
                counts[all] += count;
            }
            let sum_ns = parts.iter().map(|part| part.latency_sum_ns).sum();
            self.latency.add_counts(&[("domain", name), ("vcpu", &vcpu)], &counts, sum_ns);
        }
    }

    fn add_budgets(&mut self, name: &str, host: &HostView, actor: &ActorView, detail: Detail) {
        let known = host.classes.iter().find(|known| Some(&known.name) == actor.class.as_ref());
        let times = known.and_then(|class| class.budget_ns.zip(class.period_ns));
        let each = |held: &HeldVcpu| {
            let vcpu = if actor.kind == VM { held.number.to_string() } else { ALL.into() };
            (vcpu, vec![*held])
        };
        let groups: Vec<(String, Vec<HeldVcpu>)> = if detail.budgets || actor.kind != VM {
            actor.budgets.iter().map(each).collect()
        } else {
            vec![(ALL.into(), actor.budgets.clone())]
        };
        for (vcpu, held) in groups.into_iter().filter(|(_, held)| !held.is_empty()) {
            let labels = [("domain", name), ("vcpu", vcpu.as_str())];
            let sum = |of: fn(&HeldVcpu) -> u64| held.iter().map(of).sum::<u64>();
            if let Some((budget_ns, period_ns)) = times {
                self.budget.add(&labels, seconds(budget_ns) * held.len() as f64);
                self.period.add(&labels, seconds(period_ns));
            }
            let periods = sum(|one| one.periods);
            if periods > 0 {
                self.delivered.add(&labels, sum(|one| one.delivered) as f64 / periods as f64);
            }
            self.exhausted.add(&labels, sum(|one| one.exhausted) as f64);
        }
    }
}

fn of_vms(host: &HostView, actors: &[ActorView]) -> Vec<Family> {
    let mut of_vms = OfVms::new();
    for actor in actors {
        // A series must be there once, and two VMs may have the same name.
        let is_only = actors.iter().filter(|other| other.name == actor.name).count() == 1;
        let name = if is_only { actor.name.clone() } else { format!("{}#{}", actor.name, actor.process) };
        of_vms.add(host, actor, &name);
    }
    of_vms.all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::hints::{CountsView, HintsView};
    use crate::waits::CauseView;

    #[test]
    fn labels_cannot_end_their_quotes_or_line() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
        let help = "# TYPE punctual_up gauge\n# HELP punctual_up Whether the service answers.\n";
        assert_eq!(down(Format::OpenMetrics), format!("{help}punctual_up 0\n# EOF\n"));
        assert_eq!(down(Format::Text), format!("{help}punctual_up 0\n"));
    }

    /// As node_exporter reads them: the type has the name of the samples, and there is no type `info`.
    #[test]
    fn the_older_format_names_each_sample_as_its_type_does() {
        let text = text(&host(), &[vm(1)], Format::Text);
        for line in [
            "# TYPE punctual_actor_info gauge",
            "# TYPE punctual_vcpu_run_seconds_total counter",
            "# HELP punctual_vcpu_run_seconds_total Time that a vCPU ran.",
            "# TYPE punctual_vcpu_wakeup_latency_seconds histogram",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    /// A VM with so many vCPUs, all of which are held and have waited.
    fn vm(vcpus: u32) -> ActorView {
        let thread = |number: u32| {
            json!({
                "tid": number, "name": "CPU", "role": "vcpu", "vcpu": number, "processors": [],
                "rt_priority": 0, "run_ns": 1, "wait_ns": 2,
            })
        };
        let part = |number: u32| PartView {
            role: "vcpu".into(),
            vcpu: Some(number),
            causes: vec![CauseView { cause: WaitCause::Throttled, by: None, time_ns: 500_000_000 }],
            latency_counts: vec![1, 0, 0, 0, 2, 0, 0, 1],
            latency_sum_ns: 3_000_000,
            spins: Some(9),
            ..PartView::default()
        };
        let held = |number: u32| HeldVcpu { number, periods: 4, delivered: 3, ..held() };
        let role = |role: &str| json!({ "role": role, "threads": 1, "run_ns": 1, "wait_ns": 1 });
        let roles = ["vcpu", "main-loop", "io", "vhost", "rcu", "other"].map(role);
        let view = json!({
            "kind": "vm", "name": "a", "process": 1, "processes": 1, "is_libvirt": false, "owner": 0,
            "state": "held", "class": "c", "seen_us": 0, "roles": roles, "warnings": [],
            "threads": (0..vcpus).map(thread).collect::<Vec<_>>(),
        });
        let view: ActorView = serde_json::from_value(view).expect("a VM");
        let (waits, budgets) = ((0..vcpus).map(part).collect(), (0..vcpus).map(held).collect());
        let total =
            CountsView { yields_attempted: Some(7), yields_successful: Some(5), ..CountsView::default() };
        let hints = Some(HintsView { total, ..HintsView::default() });
        ActorView { waits, budgets, hints, ..view }
    }

    fn held() -> HeldVcpu {
        let held = json!({
            "number": 0, "order": "runs", "left_ns": null, "exhausted": 0, "periods": 0, "delivered": 0,
            "longest_without_ns": 0, "wait_p99_ns": 0,
        });
        serde_json::from_value(held).expect("a vCPU")
    }

    fn host() -> HostView {
        let class = json!({
            "name": "c", "budget_ns": 1, "period_ns": 2, "best_effort": false, "shares_budget": false,
            "actors": 1,
        });
        let pool = json!({ "name": "p", "processors": [1], "policy": "rtds", "asked": 0.5 });
        let host = json!({
            "version": "1", "mode": "enforce", "configuration": "", "started_us": 0, "processors": 1,
            "actors": 1, "actors_seen": 1, "actors_released": 0, "classes": [class], "pools": [pool],
            "hook_messages": 0, "hook_garbage": 0, "clients": 0, "clients_dropped": 0, "cpu_ns": 0,
            "waits": { "source": "switches", "lost": 7 }, "warnings": [],
        });
        serde_json::from_value(host).expect("a host")
    }

    fn series(vcpus: u32) -> Vec<String> {
        let text = text(&host(), &[vm(vcpus)], Format::OpenMetrics);
        text.lines().filter(|line| line.contains("{domain=\"a\"")).map(str::to_owned).collect()
    }

    #[test]
    fn a_vm_has_at_most_60_series_and_no_time_is_lost() {
        for vcpus in 1..=128 {
            let series = series(vcpus);
            assert!(series.len() <= SERIES_MAX, "{vcpus} vCPUs: {} series", series.len());
            let of = |start: &str| -> f64 {
                let values = series.iter().filter(|line| line.starts_with(start));
                values
                    .map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number"))
                    .sum()
            };
            assert_eq!(of("punctual_vcpu_wait_seconds_total{"), 0.5 * f64::from(vcpus));
            assert_eq!(of("punctual_vcpu_wakeup_latency_seconds_count{"), 4.0 * f64::from(vcpus));
        }
        let per_vcpu = |vcpus: u32, start: &str| {
            series(vcpus).iter().filter(|line| line.starts_with(start) && line.contains("vcpu=\"0\"")).count()
        };
        let causes = "punctual_vcpu_wait_seconds_total{";
        assert_eq!([1, 2, 3].map(|vcpus| per_vcpu(vcpus, causes)), [14, 14, 0]);
        assert_eq!([4, 5].map(|vcpus| per_vcpu(vcpus, "punctual_vcpu_exhausted_total{")), [1, 0]);
        assert_eq!([11, 12].map(|vcpus| per_vcpu(vcpus, "punctual_vcpu_run_seconds_total{")), [1, 0]);
    }

    #[test]
    fn yields_are_told_by_result_and_only_where_kvm_counts_them() {
        let yields = |vm: ActorView| -> Vec<String> {
            let text = text(&host(), &[vm], Format::OpenMetrics);
            text.lines().filter(|line| line.starts_with("punctual_vm_directed")).map(str::to_owned).collect()
        };
        let expected = ["successful\"} 5", "failed\"} 2"]
            .map(|end| format!("punctual_vm_directed_yields_total{{domain=\"a\",result=\"{end}"));
        assert_eq!(yields(vm(4)), expected);
        assert!(yields(ActorView { hints: Some(HintsView::default()), ..vm(4) }).is_empty());
    }

    #[test]
    fn buckets_of_a_histogram_are_cumulative() {
        let buckets: Vec<String> = series(1)
            .into_iter()
            .filter_map(|line| Some(line.strip_prefix("punctual_vcpu_wakeup_latency_seconds")?.to_owned()))
            .collect();
        assert_eq!(buckets[0], "_bucket{domain=\"a\",vcpu=\"0\",le=\"0.00001\"} 1");
        assert_eq!(buckets[7], "_bucket{domain=\"a\",vcpu=\"0\",le=\"+Inf\"} 4");
        assert_eq!(buckets[8], "_count{domain=\"a\",vcpu=\"0\"} 4");
        assert_eq!(buckets[9], "_sum{domain=\"a\",vcpu=\"0\"} 0.003");
    }

    /// Names are an interface: the manual has each of them, and no other.
    #[test]
    fn the_manual_lists_all_names() {
        let manual = include_str!("../../../docs/service.md");
        let (_, section) = manual.split_once("\n## Metrics\n").expect("a section");
        let section = section.split("\n## ").next().unwrap_or_default();
        let listed: BTreeSet<&str> = section
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| code.starts_with("punctual_") && !code.contains('{'))
            .collect();
        let text = text(&host(), &[vm(1)], Format::OpenMetrics);
        let names = text.lines().filter(|line| !line.starts_with('#'));
        let names: BTreeSet<&str> = names
            .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
            .map(|name| {
                ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
            })
            .collect();
        assert_eq!(names, listed);
        let causes = WaitCause::ALL.map(WaitCause::name);
        let missing: Vec<&str> =
            causes.into_iter().filter(|cause| !manual.contains(&format!("`{cause}`"))).collect();
        assert!(missing.is_empty(), "docs/service.md lacks {missing:?}");
    }
}
