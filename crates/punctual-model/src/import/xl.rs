//! What `xl` prints: cpupools, their schedulers' parameters, vCPUs and where they may run.
//!
//! The columns are those of `tools/xl/xl_sched.c`, `xl_vcpu.c` and `xl_cpupool.c`. Outputs may stand in any
//! order, in one file or several, with the commands between them; rows are read from the right, because a
//! name may have spaces.

use std::collections::BTreeMap;

use punctual_sched::Duration;
use toml_edit::Value;

use super::draft::{Domain, Draft, Helpers, Owner, UnitDraft};
use super::input::{Input, shorten};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;
use crate::file::writer::time;

/// The pool that always exists.
const FIRST_POOL: &str = "Pool-0";

/// Which command printed the table that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    PoolProcessors,
    Pools,
    Credit,
    RtdsVcpus,
    RtdsDefaults,
    Vcpus,
}

/// The words of the tables' first lines.
const HEADERS: [(&str, Table); 6] = [
    ("Name CPU list", Table::PoolProcessors),
    ("Name CPUs Sched Active Domain count", Table::Pools),
    ("Name ID Weight Cap", Table::Credit),
    ("Name ID VCPU Period Budget Extratime", Table::RtdsVcpus),
    ("Name ID Period Budget Extratime", Table::RtdsDefaults),
    ("Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)", Table::Vcpus),
];

/// What is known of a pool.
#[derive(Default)]
struct Pool {
    place: Place,
    processors: Option<Vec<usize>>,
    policy: Option<&'static str>,
    options: Vec<(&'static str, Value)>,
}

/// What is known of a domain.
#[derive(Default)]
struct Machine {
    place: Place,
    pool: Option<String>,
    vcpus: BTreeMap<usize, Vcpu>,
    /// For all of its vCPUs.
    rtds: Option<RtdsParams>,
    weight: Option<u32>,
    cap_percent: Option<u32>,
}

/// What `xl sched-rtds` prints of a vCPU or domain.
#[derive(Clone, Copy)]
struct RtdsParams {
    period: Duration,
    budget: Duration,
    extratime: bool,
}

#[derive(Default)]
struct Vcpu {
    rtds: Option<RtdsParams>,
    /// `None`: everywhere.
    hard: Option<Vec<usize>>,
}

/// Everything that was printed, in the order in which names first appear.
#[derive(Default)]
struct Printed {
    pools: Vec<(String, Pool)>,
    machines: Vec<(String, Machine)>,
    /// Where each name is in the lists.
    pool_index: BTreeMap<String, usize>,
    machine_index: BTreeMap<String, usize>,
}

impl Printed {
    fn pool(&mut self, name: &str, place: Place) -> &mut Pool {
        let at = *self.pool_index.entry(name.into()).or_insert_with(|| {
            self.pools.push((name.into(), Pool { place, ..Pool::default() }));
            self.pools.len() - 1
        });
        &mut self.pools[at].1
    }

    fn machine(&mut self, name: &str, place: Place) -> &mut Machine {
        let at = *self.machine_index.entry(name.into()).or_insert_with(|| {
            self.machines.push((name.into(), Machine { place, ..Machine::default() }));
            self.machines.len() - 1
        });
        &mut self.machines[at].1
    }

    /// The domain called `name`, which the table of `pool` lists.
    fn machine_in(&mut self, name: &str, place: Place, pool: Option<&str>) -> &mut Machine {
        let machine = self.machine(name, place);
        machine.pool = pool.map(String::from).or(machine.pool.take());
        machine
    }
}

pub(super) fn read(input: &mut Input) -> Draft {
    let mut printed = Printed::default();
    let mut draft = Draft::default();
    for file in 0..input.files() {
        let text = input.text(file).to_string();
        let (mut table, mut pool, mut at) = (None, None, 0);
        for line in text.split_inclusive('\n') {
            let place = input.place(file, at..at + line.trim_end().len());
            at += line.len();
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if words.is_empty()
                || ["xl sched-", "xl cpupool-", "xl vcpu-", "# ", "$ "]
                    .iter()
                    .any(|start| words.starts_with(start))
            {
                continue;
            }
            if let Some(rest) = words.strip_prefix("Cpupool ") {
                pool = pool_line(input, rest, place, &mut printed);
                table = None;
            } else if let Some((_, found)) = HEADERS.iter().find(|(header, _)| *header == words) {
                // A table without its pool's line is one domain's.
                pool = pool.filter(|_| table.is_none());
                table = Some(*found);
            } else if let Some(table) = table {
                row(input, table, line, place, pool.as_deref(), &mut printed, &mut draft);
            } else {
                input.note(place, format!("not understood: {}", shorten(&words)));
            }
        }
    }
    if printed.machines.is_empty() && input.errors.count() == 0 {
        let place = input.place(0, 0..0);
        let expected = "expected what `xl vcpu-list`, `xl sched-rtds -v all`, `xl sched-credit` or `xl cpupool-list -c` print";
        input.error(place, "no domain is listed", expected);
    }
    assemble(input, printed, draft)
}

/// `NAME: sched=RTDS`, or `NAME: tslice=30ms ratelimit=1000us migration-delay=0us`.
fn pool_line(input: &mut Input, rest: &str, place: Place, printed: &mut Printed) -> Option<String> {
    let Some((name, parameters)) = rest.rsplit_once(": ") else {
        input.error(
            place,
            "a line of a cpupool without parameters",
            "expected for example Cpupool rt: sched=RTDS",
        );
        return None;
    };
    let mut options = Vec::new();
    let mut policy = None;
    for parameter in parameters.split(' ') {
        match parameter.split_once('=') {
            Some(("sched", "RTDS")) => policy = Some("rtds"),
            Some(("tslice", value)) => {
                policy = Some("credit");
                options.extend(option_time(input, place, "slice", value));
            }
            Some(("ratelimit", value)) => options.extend(option_time(input, place, "ratelimit", value)),
            Some(("migration-delay", "0us")) => {}
            _ => input.note(place, format!("{name}: not carried over: {}", shorten(parameter))),
        }
    }
    if policy.is_none() && !options.is_empty() {
        policy = Some("credit");
        input.note(place, format!("{name}: credit2 is taken as credit"));
    }
    let pool = printed.pool(name, place);
    pool.policy = policy.or(pool.policy);
    if !options.is_empty() {
        pool.options = options;
    }
    Some(name.into())
}

/// `30ms` or `1000us` as an option of a policy.
fn option_time(
    input: &mut Input,
    place: Place,
    key: &'static str,
    value: &str,
) -> Option<(&'static str, Value)> {
    let (number, unit) = match (value.strip_suffix("ms"), value.strip_suffix("us")) {
        (Some(number), _) => (number, Duration::from_ms(1)),
        (_, Some(number)) => (number, Duration::from_us(1)),
        _ => ("", Duration::from_ns(1)),
    };
    let duration = input.time(place, &format!("`{key}`"), number, unit)?;
    Some((key, time(duration)))
}

/// The last `N` words of a line, and the name before them.
fn columns<const N: usize>(line: &str) -> Option<(&str, [&str; N])> {
    let mut rest = line.trim();
    let mut words = [""; N];
    for word in words.iter_mut().rev() {
        let (before, last) = rest.rsplit_once(char::is_whitespace)?;
        (rest, *word) = (before.trim_end(), last);
    }
    (!rest.is_empty()).then_some((rest, words))
}

/// Reads a row of `table`; `pool` is the one whose line stands before the table.
fn row(
    input: &mut Input,
    table: Table,
    line: &str,
    place: Place,
    pool: Option<&str>,
    printed: &mut Printed,
    draft: &mut Draft,
) {
    let read = match table {
        Table::PoolProcessors => {
            columns(line).map(|(name, [list])| pool_processors(input, name, list, place, printed, draft))
        }
        Table::Pools => columns(line).map(|(name, [_, scheduler, _, _])| {
            let policy = scheduler_policy(input, place, name, scheduler);
            let pool = printed.pool(name, place);
            pool.policy = pool.policy.or(policy);
            Some(())
        }),
        Table::Credit => columns(line).map(|(name, [_, weight, cap])| {
            let (weight, cap) = credit(input, place, weight, cap)?;
            let machine = printed.machine_in(name, place, pool);
            machine.weight = Some(weight);
            machine.cap_percent = Some(cap).filter(|cap| *cap > 0);
            Some(())
        }),
        Table::RtdsVcpus => columns(line).map(|(name, [_, vcpu, period, budget, extratime])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let given = rtds(input, place, period, budget, extratime)?;
            printed.machine_in(name, place, pool).vcpus.entry(vcpu).or_default().rtds = Some(given);
            Some(())
        }),
        Table::RtdsDefaults => columns(line).map(|(name, [_, period, budget, extratime])| {
            let given = rtds(input, place, period, budget, extratime)?;
            printed.machine_in(name, place, pool).rtds = Some(given);
            Some(())
        }),
        Table::Vcpus => columns(line).map(|(name, [_, vcpu, _, _, _, hard, _, _])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let hard = hard_affinity(input, place, hard)?;
            draft.include_processors(hard.as_deref().unwrap_or_default());
            printed.machine(name, place).vcpus.entry(vcpu).or_default().hard = hard;
            Some(())
        }),
    };
    if read.is_none() {
        let header = HEADERS.iter().find(|(_, t)| *t == table).map_or("", |(header, _)| header);
        input.error(place, "a row with too few columns", format!("expected {header}"));
    }
}

fn pool_processors(
    input: &mut Input,
    name: &str,
    list: &str,
    place: Place,
    printed: &mut Printed,
    draft: &mut Draft,
) -> Option<()> {
    let list = input.cpu_list(place, "the list of processors", list)?;
    draft.include_processors(&list);
    printed.pool(name, place).processors = Some(list);
    Some(())
}

fn vcpu_number(input: &mut Input, place: Place, text: &str) -> Option<usize> {
    input.integer(place, "the vCPU", text, 0, PROCESSORS_MAX as i64 - 1).map(|vcpu| vcpu as usize)
}

/// `None` inside: everywhere.
fn hard_affinity(input: &mut Input, place: Place, text: &str) -> Option<Option<Vec<usize>>> {
    match text {
        "all" => Some(None),
        list => input.cpu_list(place, "the hard affinity", list).map(Some),
    }
}

/// Weight and cap.
fn credit(input: &mut Input, place: Place, weight: &str, cap: &str) -> Option<(u32, u32)> {
    let weight = input.integer(place, "the weight", weight, 1, 65_535)? as u32;
    let cap = input.integer(place, "the cap", cap, 0, 102_400)? as u32;
    Some((weight, cap))
}

fn scheduler_policy(input: &mut Input, place: Place, pool: &str, scheduler: &str) -> Option<&'static str> {
    match scheduler {
        "credit" => Some("credit"),
        "rtds" => Some("rtds"),
        "sedf" => Some("sedf"),
        other => {
            input.note(place, format!("{pool}: scheduler {} is taken as credit", shorten(other)));
            Some("credit")
        }
    }
}

fn rtds(input: &mut Input, place: Place, period: &str, budget: &str, extratime: &str) -> Option<RtdsParams> {
    let period = input.time(place, "the period", period, Duration::from_us(1))?;
    let budget = input.time(place, "the budget", budget, Duration::from_us(1))?;
    let extratime = match extratime {
        "yes" => true,
        "no" => false,
        other => {
            input.error(place, format!("extratime is {:?}", shorten(other)), "expected yes or no");
            return None;
        }
    };
    Some(RtdsParams { period, budget, extratime })
}

/// The draft of everything that was printed.
fn assemble(input: &mut Input, mut printed: Printed, mut draft: Draft) -> Draft {
    let only = match printed.pools.as_slice() {
        [(name, _)] => name.clone(),
        _ => FIRST_POOL.to_string(),
    };
    let mut pool_of = Vec::new();
    for (_, machine) in &mut printed.machines {
        pool_of.push((machine.pool.take().unwrap_or_else(|| only.clone()), machine.place));
    }
    for (name, place) in &pool_of {
        printed.pool(name, *place);
    }
    for (name, pool) in &printed.pools {
        let rtds =
            |(_, m): &(String, Machine)| m.rtds.is_some() || m.vcpus.values().any(|v| v.rtds.is_some());
        let found = pool.policy.unwrap_or_else(|| match printed.machines.iter().any(rtds) {
            true => "rtds",
            false => "credit",
        });
        let ix = draft.add_pool(name, found, pool.place);
        draft.pools[ix].options = pool.options.clone();
        if found == "credit" {
            // Xen's accounting; without it there are no caps.
            draft.pools[ix].options.push(("refill", "period".into()));
        }
        draft.pools[ix].processors = pool.processors.clone().unwrap_or_default();
        if pool.processors.is_none() && printed.pools.len() > 1 {
            let expected = "expected what `xl cpupool-list -c` prints";
            input.error(pool.place, format!("nothing says which processors pool {name} has"), expected);
        }
    }
    for ((name, machine), (pool, place)) in printed.machines.iter().zip(pool_of) {
        let ix = printed.pool_index[&pool];
        let count = machine.vcpus.keys().last().map_or(1, |last| last + 1);
        if draft.reserve(input, place, count).is_none() {
            break;
        }
        let vcpus = units(input, name, machine, &draft.pools[ix].processors);
        let (owner, guest, place) = (Owner::Pool(ix), "fixed-priority", machine.place);
        draft.domains.push(Domain {
            name: name.clone(),
            owner,
            guest,
            vcpus,
            tasks: Vec::new(),
            helpers: Helpers::default(),
            place,
        });
    }
    draft
}

fn units(input: &mut Input, name: &str, machine: &Machine, pool: &[usize]) -> Vec<UnitDraft> {
    let count = machine.vcpus.keys().last().map_or(1, |last| last + 1);
    if machine.vcpus.is_empty() {
        input.note(machine.place, format!("{name}: no table lists its vCPUs: one is taken"));
    }
    let cap_percent = machine.cap_percent.map(|cap| cap.div_ceil(count as u32));
    if machine.cap_percent.is_some_and(|cap| cap % count as u32 != 0) {
        input.note(machine.place, format!("{name}: the cap is shared by {count} vCPUs and rounded up"));
    }
    let nothing = Vcpu::default();
    let unit = |n: usize| {
        let vcpu = machine.vcpus.get(&n).unwrap_or(&nothing);
        let rtds = vcpu.rtds.or(machine.rtds);
        let inside = |list: &Vec<usize>| -> Vec<usize> {
            list.iter().copied().filter(|n| pool.is_empty() || pool.contains(n)).collect()
        };
        UnitDraft {
            period: rtds.map(|rtds| rtds.period),
            budget: rtds.map(|rtds| rtds.budget),
            extratime: rtds.map(|rtds| rtds.extratime),
            weight: machine.weight,
            cap_percent,
            // Xen lets a vCPU have processors of other pools in its affinity; they do not count.
            affinity: vcpu.hard.as_ref().map(inside).filter(|own| own.as_slice() != pool),
            ..UnitDraft::default()
        }
    };
    (0..count).map(unit).collect()
}
