//! A model of what Xen's `xl` keeps and prints, as far as exports use it: the exported script runs on it, and
//! what it prints is imported again. Commands and columns: xl(1) and Xen's `tools/xl`.

use std::collections::BTreeMap;
use std::fmt::Write;

use punctual_model::Host;
use punctual_model::export::ExportFile;

struct Vcpu {
    period_us: u64,
    budget_us: u64,
    extratime: bool,
    hard: String,
}

struct Domain {
    pool: String,
    vcpus: Vec<Vcpu>,
    weight: u32,
    cap: u32,
}

struct Pool {
    scheduler: String,
    processors: Vec<String>,
    slice_ms: u64,
    ratelimit_us: u64,
}

/// A machine after the commands of an exported script.
pub(crate) struct Xen {
    pools: BTreeMap<String, Pool>,
    domains: BTreeMap<String, Domain>,
}

impl Xen {
    /// Runs `apply.sh` where the domains of `host` run in Pool-0.
    pub(crate) fn after(files: &[ExportFile], host: &Host) -> Xen {
        let vcpu = || Vcpu { period_us: 10_000, budget_us: 4_000, extratime: true, hard: "all".into() };
        let domains = host.domains.iter().map(|d| {
            let vcpus = d.vcpus.clone().map(|_| vcpu()).collect();
            (d.name.clone(), Domain { pool: "Pool-0".into(), vcpus, weight: 256, cap: 0 })
        });
        let mut xen = Xen { pools: BTreeMap::new(), domains: domains.collect() };
        let script = &files.iter().find(|f| f.name == "apply.sh").expect("the script").text;
        for line in script.lines().filter(|line| line.starts_with("xl ")) {
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            xen.run(&words, files);
        }
        xen
    }

    fn run(&mut self, words: &[&str], files: &[ExportFile]) {
        match words {
            ["cpupool-cpu-remove", "Pool-0", _] => {}
            ["cpupool-create", name] => {
                let text = &files.iter().find(|f| f.name == *name).expect("the configuration").text;
                let value = |key: &str| {
                    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
                    line.unwrap_or_else(|| panic!("{key} in {name}")).trim_matches(['"', '[', ']'])
                };
                let processors = value("cpus").split(", ").map(|n| n.trim_matches('"').to_string()).collect();
                let scheduler = value("sched").into();
                let pool = Pool { scheduler, processors, slice_ms: 30, ratelimit_us: 1_000 };
                self.pools.insert(value("name").into(), pool);
            }
            ["cpupool-migrate", domain, pool] => {
                assert!(self.pools.contains_key(*pool), "{pool}");
                self.domain(domain).pool = (*pool).into();
            }
            ["sched-credit", "-p", pool, "-s", "-t", slice, "-r", ratelimit] => {
                let pool = self.pools.get_mut(*pool).expect("the pool");
                (pool.slice_ms, pool.ratelimit_us) =
                    (slice.parse().expect("a number"), ratelimit.parse().expect("a number"));
            }
            ["sched-credit", "-d", domain, "-w", weight, "-c", cap] => {
                let domain = self.domain(domain);
                (domain.weight, domain.cap) =
                    (weight.parse().expect("a number"), cap.parse().expect("a number"));
            }
            ["sched-rtds", "-d", domain, rest @ ..] => {
                for group in rest.chunks(8) {
                    let ["-v", which, "-p", period, "-b", budget, "-e", extratime] = group else {
                        panic!("{words:?}");
                    };
                    for (n, vcpu) in self.domain(domain).vcpus.iter_mut().enumerate() {
                        if *which == "all" || *which == n.to_string() {
                            vcpu.period_us = period.parse().expect("a number");
                            vcpu.budget_us = budget.parse().expect("a number");
                            vcpu.extratime = *extratime == "1";
                        }
                    }
                }
            }
            ["vcpu-pin", domain, which, list] => {
                for (n, vcpu) in self.domain(domain).vcpus.iter_mut().enumerate() {
                    if *which == "all" || *which == n.to_string() {
                        vcpu.hard = (*list).into();
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn domain(&mut self, name: &str) -> &mut Domain {
        self.domains.get_mut(name).expect("the domain")
    }

    /// `xl cpupool-list -c; xl sched-rtds -v all; xl sched-credit; xl vcpu-list`.
    pub(crate) fn printed(&self) -> String {
        let mut out = format!("{:<19}CPU list\n", "Name");
        for (name, pool) in &self.pools {
            writeln!(out, "{name:<19}{}", pool.processors.join(",")).expect("into a String");
        }
        for (name, pool) in &self.pools {
            let own = || self.domains.iter().filter(|(_, d)| d.pool == *name).enumerate();
            if pool.scheduler == "rtds" {
                writeln!(out, "Cpupool {name}: sched=RTDS").expect("into a String");
                let head = ("Name", "ID", "VCPU", "Period", "Budget", "Extratime");
                let (a, b, c, d, e, f) = head;
                writeln!(out, "{a:<33} {b:>4} {c:>4} {d:>9} {e:>9} {f:>10}").expect("into a String");
                for (id, (name, domain)) in own() {
                    for (n, Vcpu { period_us, budget_us, extratime, .. }) in domain.vcpus.iter().enumerate() {
                        let extratime = if *extratime { "yes" } else { "no" };
                        writeln!(
                            out,
                            "{name:<33} {id:>4} {n:>4} {period_us:>9} {budget_us:>9} {extratime:>10}"
                        )
                        .expect("into a String");
                    }
                }
            } else {
                let Pool { slice_ms, ratelimit_us, .. } = pool;
                writeln!(
                    out,
                    "Cpupool {name}: tslice={slice_ms}ms ratelimit={ratelimit_us}us migration-delay=0us"
                )
                .expect("into a String");
                writeln!(out, "{:<33} {:>4} {:>6} {:>4}", "Name", "ID", "Weight", "Cap")
                    .expect("into a String");
                for (id, (name, Domain { weight, cap, .. })) in own() {
                    writeln!(out, "{name:<33} {id:>4} {weight:>6} {cap:>4}").expect("into a String");
                }
            }
        }
        let head = ("Name", "ID", "VCPU", "CPU", "State", "Time(s)");
        let (a, b, c, d, e, f) = head;
        writeln!(out, "{a:<32} {b:>5} {c:>5} {d:>5} {e:>5} {f:>9} Affinity (Hard / Soft)")
            .expect("into a String");
        for (id, (name, domain)) in self.domains.iter().enumerate() {
            for (n, vcpu) in domain.vcpus.iter().enumerate() {
                let (hard, dash) = (&vcpu.hard, "-b-");
                writeln!(out, "{name:<32} {id:>5} {n:>5} {:>4} {dash:>5} {:>9.1}  {hard} / all", 0, 1.5)
                    .expect("into a String");
            }
        }
        out
    }
}
