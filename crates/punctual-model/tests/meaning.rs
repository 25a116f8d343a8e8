//! What libvirt's XML means, by a model of its own: what Linux gives each vCPU. Random domains become hosts
//! with that meaning; their exports have it again, and importing those gives the same host. The model reads
//! XML itself and shares no code with import or export, so that two errors do not cancel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::prelude::*;
use punctual_model::Host;
use punctual_model::export::{Keep, Target, export};
use punctual_model::import::{Format, Imported, Settings, import};
use roxmltree::{Document, Node};

const PROCESSORS: usize = 8;

/// A vCPU as Linux sees its thread.
#[derive(Clone, Debug, PartialEq)]
struct Thread {
    processors: BTreeSet<usize>,
    /// `None`: the fair class, or below it.
    realtime: Option<u32>,
    is_idle: bool,
    /// Its part of its domain's weight.
    weight: f64,
    /// Upper limit, as a share of a processor.
    limit: f64,
}

/// The threads of domains, by the names of their vCPUs.
type Threads = BTreeMap<String, Thread>;

/// Reads a domain as `formatdomain.html` describes it.
fn threads(xml: &str) -> Threads {
    let document = Document::parse(xml).unwrap_or_else(|e| panic!("{e}: {xml}"));
    let root = document.root_element();
    let child = |node: Node<'_, '_>, tag: &str| {
        node.children()
            .find(|n| n.has_tag_name(tag))
            .and_then(|n| n.text().map(|text| text.trim().to_string()))
    };
    let number = |text: String| text.parse::<f64>().unwrap_or_else(|_| panic!("{text}"));
    let list = |text: &str| {
        let mut set = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            set.extend(first.parse::<usize>().expect("a number")..=last.parse::<usize>().expect("a number"));
        }
        set
    };
    let name = child(root, "name").expect("a name");
    let vcpu = root.children().find(|n| n.has_tag_name("vcpu")).expect("vCPUs");
    let count = vcpu.text().expect("a number").parse::<usize>().expect("a number");
    let anywhere = vcpu.attribute("cpuset").map_or((0..PROCESSORS).collect(), list);
    let tune = root.children().find(|n| n.has_tag_name("cputune"));
    let shares = tune.and_then(|tune| child(tune, "shares")).map(number);
    let quota = tune.and_then(|tune| child(tune, "quota")).map(number);
    let period = tune.and_then(|tune| child(tune, "period")).map_or(100_000.0, number);
    let limit = quota.filter(|quota| *quota > 0.0).map_or(1.0, |quota| (quota / period).min(1.0));
    let one = Thread { processors: anywhere, realtime: None, is_idle: false, weight: 0.0, limit };
    let mut all = vec![one; count];
    for node in tune.iter().flat_map(|tune| tune.children()) {
        if node.has_tag_name("vcpupin") {
            let n = node.attribute("vcpu").expect("vcpu").parse::<usize>().expect("a number");
            all[n].processors = list(node.attribute("cpuset").expect("cpuset"));
        } else if node.has_tag_name("vcpusched") {
            for n in list(node.attribute("vcpus").expect("vcpus")) {
                all[n].realtime =
                    node.attribute("priority").map(|priority| priority.parse().expect("a number"));
                all[n].is_idle = node.attribute("scheduler") == Some("idle");
                // Quotas throttle the fair class only.
                all[n].limit = if all[n].realtime.is_some() { 1.0 } else { all[n].limit };
            }
        }
    }
    let is_fair = |thread: &Thread| thread.realtime.is_none() && !thread.is_idle;
    let fair = all.iter().filter(|thread| is_fair(thread)).count() as f64;
    for thread in all.iter_mut().filter(|thread| is_fair(thread)) {
        thread.weight = shares.unwrap_or(100.0) / fair;
    }
    (0..).zip(all).map(|(n, thread): (usize, _)| (format!("{name}.{n}"), thread)).collect()
}

/// Half of the machine; first and last processor and class of each vCPU; shares; quota in percent, period.
type RandomDomain = (usize, Vec<(usize, usize, u32)>, Option<u32>, Option<(u32, u32)>);

/// Random domains: pinned within one half of the machine, with a class for each vCPU.
fn domains() -> impl Strategy<Value = Vec<String>> {
    let thread = (0usize..4, 0usize..4, 0u32..6);
    let quota = prop::option::of((1u32..=99, prop::sample::select(vec![10_000u32, 20_000, 100_000])));
    let domain = (0usize..2, prop::collection::vec(thread, 1..4), prop::option::of(2u32..5_000), quota);
    prop::collection::vec(domain, 1..5).prop_map(|all| {
        let text = |(n, domain): (usize, RandomDomain)| {
            let (half, threads, shares, quota) = domain;
            let mut tune = String::new();
            if let Some(shares) = shares {
                let _ = write!(tune, "<shares>{shares}</shares>");
            }
            if let Some((percent, period)) = quota {
                let _ = write!(tune, "<period>{period}</period><quota>{}</quota>", period / 100 * percent);
            }
            for (i, (first, more, class)) in threads.iter().enumerate() {
                let (first, last) = (half * 4 + *first.min(more), half * 4 + *first.max(more));
                let _ = write!(tune, "<vcpupin vcpu='{i}' cpuset='{first}-{last}'/>");
                match class {
                    0 => {}
                    1 => {
                        let _ = write!(tune, "<vcpusched vcpus='{i}' scheduler='idle'/>");
                    }
                    2 | 3 => {
                        let _ = write!(tune, "<vcpusched vcpus='{i}' scheduler='fifo' priority='{class}'/>");
                    }
                    _ => {}
                }
            }
            let count = threads.len();
            format!(
                "<domain type='kvm'><name>d{n}</name><vcpu>{count}</vcpu><cputune>{tune}</cputune></domain>"
            )
        };
        all.into_iter().enumerate().map(text).collect()
    })
}

fn imported(files: &[String]) -> Imported {
    let files: Vec<(&str, &[u8])> = files.iter().map(|text| ("domain.xml", text.as_bytes())).collect();
    let settings = Settings { processors: Some(PROCESSORS), ..Settings::default() };
    import(Format::Libvirt, &files, &settings).unwrap_or_else(|e| panic!("{e}"))
}

/// Does the host give each vCPU what Linux gives its thread?
fn has_meaning(host: &Host, linux: &Threads) {
    for pool in 0..host.pools.len() {
        let members: Vec<_> = host
            .domains
            .iter()
            .filter(|d| host.pool_of(d.parent).0 == pool)
            .flat_map(|d| &host.vcpus[d.vcpus.clone()])
            .collect();
        let processors = &host.pools[pool].processors;
        let has_realtime = members.iter().any(|vcpu| linux[&vcpu.name].realtime.is_some());
        for vcpu in &members {
            let (params, thread) = (&vcpu.params, &linux[&vcpu.name]);
            let own: BTreeSet<usize> = match &params.affinity {
                Some(set) => set.iter().map(|cpu| processors[cpu.index()]).collect(),
                None => processors.iter().copied().collect(),
            };
            assert_eq!(own, thread.processors, "{}", vcpu.name);
            let is_below = thread.is_idle || (has_realtime && thread.realtime.is_none());
            assert_eq!(params.best_effort, is_below, "{}", vcpu.name);
            if !has_realtime && !is_below {
                let cap = params.cap_percent.map_or(1.0, |cap| f64::from(cap) / 100.0);
                assert!((cap - thread.limit).abs() < 1e-9, "{}: {cap} {}", vcpu.name, thread.limit);
            }
        }
        for (a, b) in members.iter().flat_map(|a| members.iter().map(move |b| (a, b))) {
            let (was, is) = ((&linux[&a.name], &linux[&b.name]), (&a.params, &b.params));
            if let (Some(first), Some(second)) = (was.0.realtime, was.1.realtime) {
                // 1 is the most urgent priority of a host file.
                assert_eq!(first.cmp(&second), is.1.priority.cmp(&is.0.priority), "{} {}", a.name, b.name);
            }
            if !has_realtime && was.0.weight > 0.0 && was.1.weight > 0.0 {
                let weight = |given: Option<u32>| f64::from(given.unwrap_or(256));
                let (linux, ours) = (was.0.weight / was.1.weight, weight(is.0.weight) / weight(is.1.weight));
                // Weights are whole numbers of at most 65535.
                assert!((ours / linux - 1.0).abs() < 0.01, "{} : {} is {ours}, not {linux}", a.name, b.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn libvirts_domains_keep_their_meaning(files in domains()) {
        let linux: Threads = files.iter().flat_map(|text| threads(text)).collect();
        let first = imported(&files);
        has_meaning(&first.host, &linux);
        let made = export(&first.host, Target::Libvirt, Keep::Budget);
        let again: Vec<String> = made.files.iter().map(|file| file.text.clone()).collect();
        let back: Threads = again.iter().flat_map(|text| threads(text)).collect();
        // What the export says is lost: weights are rounded, and SCHED_IDLE is gone beside the fair class.
        let is_exact = made.losses.iter().all(|loss| loss.field != "weight" && loss.field != "best_effort");
        if is_exact {
            has_meaning(&first.host, &with_idle_of(&linux, back));
            let second = imported(&again);
            for (was, is) in first.host.vcpus.iter().zip(&second.host.vcpus) {
                prop_assert_eq!(&was.params.affinity, &is.params.affinity);
                prop_assert_eq!(was.params.best_effort, is.params.best_effort);
                prop_assert_eq!(was.params.priority, is.params.priority);
            }
        }
    }
}

/// The threads of an export, where best effort beside real-time threads is the fair class: nothing in libvirt
/// tells an idle thread there from another one.
fn with_idle_of(before: &Threads, mut after: Threads) -> Threads {
    for (name, thread) in &mut after {
        thread.is_idle = before[name].is_idle;
        if thread.is_idle {
            thread.weight = 0.0;
        }
    }
    after
}
