//! What `xl` prints: cpupools, their schedulers' parameters, vCPUs and where they may run.
//!
//! The columns are those of `tools/xl/xl_sched.c`, `xl_vcpu.c` and `xl_cpupool.c`. Outputs may stand in any
//! order, in one file or several, with the commands between them; rows are read from the right, because a
//! name may have spaces.

mod assemble;
mod printed;

use punctual_sched::{Duration, credit, rtds, sedf};
use toml_edit::Value;

use assemble::assemble;
use printed::{Printed, RtdsParams};

use super::draft::HostDraft;
use super::input::{Input, Reported, shorten};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;
use crate::file::writer::time;

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
    ("Name CPUs Sched Active DomainDraft count", Table::Pools),
    ("Name ID Weight Cap", Table::Credit),
    ("Name ID VCPU Period Budget Extratime", Table::RtdsVcpus),
    ("Name ID Period Budget Extratime", Table::RtdsDefaults),
    ("Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)", Table::Vcpus),
];

pub(super) fn read(input: &mut Input) -> HostDraft {
    let mut printed = Printed::default();
    let mut draft = HostDraft::default();
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
                // Only the first table after a pool's line is of that pool.
                pool = pool.filter(|_| table.is_none());
                table = Some(*found);
            } else if let Some(table) = table {
                row(input, table, line, place, pool.as_deref(), &mut printed, &mut draft);
            } else {
                input.note(place, format!("not understood: {}", shorten(&words)));
            }
        }
    }
    if printed.domains.is_empty() && input.errors.count() == 0 {
        let place = input.place(0, 0..0);
        let expected = "expected what `xl vcpu-list`, `xl sched-rtds -v all`, `xl sched-credit` or \
                        `xl cpupool-list -c` print";
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
            Some(("sched", "RTDS")) => policy = Some(rtds::NAME),
            Some(("tslice", value)) => {
                policy = Some(credit::NAME);
                options.extend(option_time(input, place, credit::SLICE.name, value));
            }
            Some(("ratelimit", value)) => {
                options.extend(option_time(input, place, credit::RATELIMIT.name, value))
            }
            Some(("migration-delay", "0us")) => {}
            _ => input.note(place, format!("{name}: not carried over: {}", shorten(parameter))),
        }
    }
    if policy.is_none() && !options.is_empty() {
        policy = Some(credit::NAME);
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
    draft: &mut HostDraft,
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
            let domain = printed.domain_in(name, place, pool);
            domain.weight = Some(weight);
            domain.cap_percent = Some(cap).filter(|cap| *cap > 0);
            Some(())
        }),
        Table::RtdsVcpus => columns(line).map(|(name, [_, vcpu, period, budget, extratime])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let given = rtds(input, place, period, budget, extratime)?;
            printed.domain_in(name, place, pool).vcpus.entry(vcpu).or_default().rtds = Some(given);
            Some(())
        }),
        Table::RtdsDefaults => columns(line).map(|(name, [_, period, budget, extratime])| {
            let given = rtds(input, place, period, budget, extratime)?;
            printed.domain_in(name, place, pool).rtds = Some(given);
            Some(())
        }),
        Table::Vcpus => columns(line).map(|(name, [_, vcpu, _, _, _, hard, _, _])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let hard = hard_affinity(input, place, hard).ok()?;
            draft.include_processors(hard.as_deref().unwrap_or_default());
            printed.domain(name, place).vcpus.entry(vcpu).or_default().hard = hard;
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
    draft: &mut HostDraft,
) -> Option<()> {
    let list = input.cpu_list(place, "the list of processors", list)?;
    draft.include_processors(&list);
    printed.pool(name, place).processors = Some(list);
    Some(())
}

fn vcpu_number(input: &mut Input, place: Place, text: &str) -> Option<usize> {
    input.integer(place, "the vCPU", text, 0, PROCESSORS_MAX as i64 - 1).map(|vcpu| vcpu as usize)
}

/// `None`: all processors.
fn hard_affinity(input: &mut Input, place: Place, text: &str) -> Result<Option<Vec<usize>>, Reported> {
    match text {
        "all" => Ok(None),
        list => input.cpu_list(place, "the hard affinity", list).map(Some).ok_or(Reported),
    }
}

/// Weight and cap.
fn credit(input: &mut Input, place: Place, weight: &str, cap: &str) -> Option<(u32, u32)> {
    let weight = input.integer(place, "the weight", weight, 1, 65_535)? as u32;
    let cap = input.integer(place, "the cap", cap, 0, 102_400)? as u32;
    Some((weight, cap))
}

fn scheduler_policy(input: &mut Input, place: Place, pool: &str, scheduler: &str) -> Option<&'static str> {
    // Xen's names are those of the policies.
    let known = [credit::NAME, rtds::NAME, sedf::NAME].into_iter().find(|name| *name == scheduler);
    if known.is_none() {
        input.note(place, format!("{pool}: scheduler {} is taken as credit", shorten(scheduler)));
    }
    Some(known.unwrap_or(credit::NAME))
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
