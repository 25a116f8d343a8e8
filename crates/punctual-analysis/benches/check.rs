//! How long `analyse` takes for large hosts, and `synthesize` for the five VMs of RT-Xen.
#![expect(missing_docs, reason = "criterion generates the main function")]

use std::ops::ControlFlow;

use criterion::{Criterion, criterion_group, criterion_main};
use punctual_analysis::analyse;
use punctual_analysis::synthesize::{Options, Periods, synthesize};
use punctual_model::Host;
use punctual_model::file::{Overrides, parse};

/// 1000 vCPUs with ten tasks each under `policy`, ten to a processor.
fn host(policy: &str, overheads: &str) -> Host {
    let mut text = format!("[machine]\nprocessors = 100\n{overheads}\n[pool.all]\npolicy = \"{policy}\"\n");
    for v in 0..1000 {
        let period = [10, 20, 25, 40, 50][v % 5];
        text += &format!(
            "[domain.d{v}]\nbudget = \"{}us\"\nperiod = \"{period}ms\"\nextratime = false\naffinity = [{}]\n\
             generate = {{ recipe = \"uunifast\", tasks = 10, utilization = \"4%\" }}\n",
            period * 90,
            v % 100,
        );
    }
    parse(&text, "bench", &Overrides::default()).expect("a valid host")
}

fn check(c: &mut Criterion) {
    let mut group = c.benchmark_group("check of 1000 vCPUs with 10000 tasks");
    group.sample_size(10);
    for policy in ["deferrable", "rtds"] {
        let free = host(policy, "");
        group.bench_function(policy, |b| b.iter(|| analyse(&free)));
    }
    let costly = host("deferrable", "overheads = { decision = \"100ns\", context_switch = \"1us\" }");
    group.bench_function("deferrable with overheads", |b| b.iter(|| analyse(&costly)));
    group.finish();
}

fn smallest_budgets(c: &mut Criterion) {
    let text = include_str!("../../../examples/five-vms.toml");
    let host = parse(text, "five-vms", &Overrides::default()).expect("a valid host");
    let mut group = c.benchmark_group("synthesize of examples/five-vms.toml");
    group.sample_size(10);
    let free = Options { periods: Periods::Free(Vec::new()), free_priorities: true, ..Options::default() };
    for (name, options) in [("given", Options::default()), ("free periods and priorities", free)] {
        let go = |_| ControlFlow::Continue(());
        group.bench_function(name, |b| b.iter(|| synthesize(&host, &options, &mut { go })));
    }
    group.finish();
}

criterion_group!(benches, check, smallest_budgets);
criterion_main!(benches);
