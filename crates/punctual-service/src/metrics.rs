//! The numbers of the service for a monitoring system, in the text format of OpenMetrics 1.0
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>). Names and labels are an interface.

use std::fmt::Write as _;

use crate::view::{ActorView, HostView, PoolView, TASK, VM};

/// The label `vcpu` of a unit, whose threads have one budget together.
const ALL: &str = "all";

/// A metric with its samples.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// What follows the name of a sample.
    suffix: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// All metrics of a service that answers.
pub fn text(host: &HostView, actors: &[ActorView]) -> String {
    let mut out = String::new();
    for family in of_host(host).into_iter().chain(of_vms(host, actors)) {
        family.write(&mut out);
    }
    out + "# EOF\n"
}

/// Those of a service that does not answer.
pub fn down() -> String {
    let mut out = String::new();
    up(false).write(&mut out);
    out + "# EOF\n"
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

    fn add(&mut self, labels: &[(&'static str, &str)], value: f64) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push((labels, value));
    }

    fn with(mut self, labels: &[(&'static str, &str)], value: f64) -> Family {
        self.add(labels, value);
        self
    }

    /// Nothing where there is no sample.
    fn write(&self, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        let Family { name, kind, help, suffix, samples } = self;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "# TYPE {name} {kind}");
        if name.ends_with("_seconds") {
            let _ = writeln!(out, "# UNIT {name} seconds");
        }
        let _ = writeln!(out, "# HELP {name} {help}");
        for (labels, value) in samples {
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
    vec![
        up(true),
        Family::gauge("punctual_mode", "What the service does with VMs; 1 for the mode that it is in.")
            .with(&[("mode", "observe")], flag(host.mode == "observe"))
            .with(&[("mode", "enforce")], flag(host.mode == "enforce")),
        Family::gauge("punctual_reload_failed", "Whether the last reload was refused.")
            .with(&[], flag(is_refused)),
        cpu,
        utilization,
    ]
}

fn of_vms(host: &HostView, actors: &[ActorView]) -> Vec<Family> {
    let mut info = Family::info("punctual_actor", "A VM or unit: its class, pool and state.");
    let mut run = Family::counter("punctual_vcpu_run_seconds", "Time that a vCPU ran.");
    let mut wait =
        Family::counter("punctual_vcpu_ready_seconds", "Time that a vCPU was ready and had no processor.");
    let mut budget = Family::gauge("punctual_vcpu_budget_seconds", "Budget of a vCPU that is held.");
    let mut period = Family::gauge("punctual_vcpu_period_seconds", "Period of a vCPU that is held.");
    let mut delivered = Family::gauge(
        "punctual_vcpu_delivered_ratio",
        "Share of periods in which a vCPU got its budget or did not want it.",
    );
    let mut exhausted = Family::counter("punctual_vcpu_exhausted", "How often a vCPU used its budget up.");
    let mut helpers = Family::counter(
        "punctual_helper_run_seconds",
        "Time that threads of a VM ran that are no vCPUs, by role.",
    );
    let mut unguaranteed = Family::gauge(
        "punctual_admission_unguaranteed",
        "How many vCPUs of a VM have a budget that is not guaranteed.",
    );
    for actor in actors {
        // A series must be there once, and two VMs may have the same name.
        let is_only = actors.iter().filter(|other| other.name == actor.name).count() == 1;
        let name = if is_only { actor.name.clone() } else { format!("{}#{}", actor.name, actor.process) };
        let domain = ("domain", name.as_str());
        let class = actor.class.as_deref().unwrap_or_default();
        let pool = actor.pool.as_deref().unwrap_or_default();
        info.add(&[domain, ("class", class), ("pool", pool), ("state", &actor.state)], 1.0);
        if let Some(all) = actor.roles.iter().find(|role| role.role == TASK) {
            run.add(&[domain, ("vcpu", ALL)], seconds(all.run_ns));
            wait.add(&[domain, ("vcpu", ALL)], seconds(all.wait_ns));
        }
        for thread in &actor.threads {
            if let Some(vcpu) = thread.vcpu {
                let vcpu = vcpu.to_string();
                run.add(&[domain, ("vcpu", &vcpu)], seconds(thread.run_ns));
                wait.add(&[domain, ("vcpu", &vcpu)], seconds(thread.wait_ns));
            }
        }
        let known = host.classes.iter().find(|known| Some(&known.name) == actor.class.as_ref());
        for held in &actor.budgets {
            let vcpu = if actor.kind == VM { held.number.to_string() } else { ALL.into() };
            let labels = [domain, ("vcpu", vcpu.as_str())];
            let times = known.and_then(|class| class.budget_ns.zip(class.period_ns));
            if let Some((budget_ns, period_ns)) = times {
                budget.add(&labels, seconds(budget_ns));
                period.add(&labels, seconds(period_ns));
            }
            if held.periods > 0 {
                delivered.add(&labels, held.delivered as f64 / held.periods as f64);
            }
            exhausted.add(&labels, held.exhausted as f64);
        }
        for role in actor.roles.iter().filter(|role| role.role != "vcpu" && role.role != TASK) {
            helpers.add(&[domain, ("role", &role.role)], seconds(role.run_ns));
        }
        let lost = actor.warnings.iter().filter(|warning| warning.kind == "admission").count();
        unguaranteed.add(&[domain], lost as f64);
    }
    vec![info, run, wait, budget, period, delivered, exhausted, helpers, unguaranteed]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_end_their_quotes_or_line() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\nb\\\\");
        let help = "# TYPE punctual_up gauge\n# HELP punctual_up Whether the service answers.\n";
        assert_eq!(down(), format!("{help}punctual_up 0\n# EOF\n"));
    }
}
