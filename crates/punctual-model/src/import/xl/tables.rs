//! The tables that `xl` prints.

use punctual_sched::{Duration, credit};
use toml_edit::Value;

use super::printed::{Printed, RtdsParams, Scheduler};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;
use crate::file::writer::time;
use crate::import::draft::HostDraft;
use crate::import::input::{Input, Reported, shorten};

/// Which command printed the table that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    PoolProcessors,
    Pools,
    Credit,
    /// Of Credit2 before Xen 4.10, which printed no caps.
    Weights,
    RtdsVcpus,
    RtdsDefaults,
    /// Before Xen 4.10, which printed no extratime.
    OldRtdsVcpus,
    OldRtdsDefaults,
    /// Of Xen 4.5.
    Sedf,
    Vcpus,
    /// `xl list`, with this number of columns after the time, and where among them the pool is.
    Domains {
        more: usize,
        pool: Option<usize>,
    },
    /// Of a command that import does not read.
    Unknown,
}

/// The words of the tables' first lines.
const HEADERS: [(&str, Table); 11] = [
    ("Name CPU list", Table::PoolProcessors),
    ("Name CPUs Sched Active Domain count", Table::Pools),
    ("Name ID Weight Cap", Table::Credit),
    ("Name ID Weight", Table::Weights),
    ("Name ID VCPU Period Budget Extratime", Table::RtdsVcpus),
    ("Name ID Period Budget Extratime", Table::RtdsDefaults),
    ("Name ID VCPU Period Budget", Table::OldRtdsVcpus),
    ("Name ID Period Budget", Table::OldRtdsDefaults),
    ("Name ID Period Slice Latency Extra Weight", Table::Sedf),
    ("Name ID VCPU CPU State Time(s) Affinity (Hard / Soft)", Table::Vcpus),
    // Without columns that options add.
    (LIST, Table::Domains { more: 0, pool: None }),
];

/// How the first line of `xl list` begins.
const LIST: &str = "Name ID Mem VCPUs State Time(s)";

/// The columns that options of `xl list` add, with the words of a row.
const LIST_COLUMNS: [(&str, usize); 6] = [
    ("UUID Reason-Code Security Label", 3),
    ("UUID", 1),
    ("Security Label", 1),
    ("Claimed", 1),
    ("Cpupool", 1),
    ("NODE Affinity", 1),
];

/// What is being read.
#[derive(Default)]
struct State {
    table: Option<Table>,
    /// The pool whose line stands before the table.
    pool: Option<String>,
}

pub(super) fn read(input: &mut Input, file: usize, printed: &mut Printed, draft: &mut HostDraft) {
    let text = input.text(file).to_string();
    let (mut state, mut at) = (State::default(), 0);
    for line in text.split_inclusive('\n') {
        let place = input.place(file, at..at + line.trim_end().len());
        at += line.len();
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() || words.starts_with("# ") || words.starts_with("$ ") {
            continue;
        }
        if is_command(&words) {
            state = State::default();
        } else if let Some(rest) = words.strip_prefix("Cpupool ").filter(|rest| rest.contains(':')) {
            state = State { table: None, pool: pool_line(input, rest, place, printed) };
        } else if let Some(found) = header(&words) {
            // Only the first table after a pool's line is of that pool.
            let pool = state.pool.take().filter(|_| state.table.is_none());
            if found == Table::Unknown {
                input.note(place, format!("a table that import does not read: {}", shorten(&words)));
            }
            if let (Some(pool), Some(scheduler)) = (&pool, scheduler_of(found)) {
                printed.pool(pool, place).scheduler.get_or_insert(scheduler);
            }
            state = State { table: Some(found), pool };
        } else if let Some(table) = state.table {
            row(input, table, line, place, state.pool.as_deref(), printed, draft);
        } else {
            input.note(place, format!("not understood: {}", shorten(&words)));
        }
    }
}

/// Is it a command of xl, with or without a prompt? Then the table before has ended.
fn is_command(words: &str) -> bool {
    let all: Vec<&str> = words.split(' ').collect();
    let Some(at) = all.iter().position(|word| *word == "xl" || word.ends_with("/xl")) else { return false };
    let is_prompt = at == 0 || all[at - 1].ends_with(['#', '$', '%', '>', '+']) || all[at - 1] == "sudo";
    let command = all.get(at + 1).copied().unwrap_or_default();
    let known = ["sched-", "cpupool-", "vcpu-", "list", "info", "create", "dmesg"];
    is_prompt && known.iter().any(|start| command.starts_with(start))
}

/// The table that a first line begins.
fn header(words: &str) -> Option<Table> {
    if let Some((_, table)) = HEADERS.iter().find(|(header, _)| *header == words) {
        return Some(*table);
    }
    if let Some(mut rest) = words.strip_prefix(LIST) {
        let (mut more, mut pool) = (0, None);
        while let Some((name, count)) =
            LIST_COLUMNS.iter().find(|(name, _)| rest.trim_start().starts_with(name))
        {
            if *name == "Cpupool" {
                pool = Some(more);
            }
            more += count;
            rest = &rest.trim_start()[name.len()..];
        }
        return Some(if rest.trim().is_empty() { Table::Domains { more, pool } } else { Table::Unknown });
    }
    // A first line has words where rows have numbers.
    let second = words.split(' ').nth(1).unwrap_or_default();
    let is_word = second.chars().all(|c| c.is_ascii_alphabetic()) && !second.is_empty();
    (words.starts_with("Name ") && is_word).then_some(Table::Unknown)
}

/// The scheduler that prints such a table below a pool's line.
fn scheduler_of(table: Table) -> Option<Scheduler> {
    match table {
        Table::Weights => Some(Scheduler::Credit2),
        Table::Sedf => Some(Scheduler::Sedf),
        Table::RtdsVcpus | Table::RtdsDefaults | Table::OldRtdsVcpus | Table::OldRtdsDefaults => {
            Some(Scheduler::Rtds)
        }
        Table::Credit
        | Table::PoolProcessors
        | Table::Pools
        | Table::Vcpus
        | Table::Domains { .. }
        | Table::Unknown => None,
    }
}

/// `NAME: sched=RTDS`, or `NAME: tslice=30ms ratelimit=1000us migration-delay=0us`.
fn pool_line(input: &mut Input, rest: &str, place: Place, printed: &mut Printed) -> Option<String> {
    let (name, parameters) = rest.rsplit_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
    let mut options = Vec::new();
    let mut scheduler = None;
    for parameter in parameters.split(' ').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sched", "RTDS")) => scheduler = Some(Scheduler::Rtds),
            Some(("sched", "SEDF")) => scheduler = Some(Scheduler::Sedf),
            Some(("tslice", value)) => {
                scheduler = Some(Scheduler::Credit);
                options.extend(option_time(input, place, credit::SLICE.name, value));
            }
            Some(("ratelimit", value)) => {
                options.extend(option_time(input, place, credit::RATELIMIT.name, value))
            }
            Some(("migration-delay", "0us")) => {}
            _ if parameters == "[sched params unavailable]" => {}
            _ => input.note(place, format!("{name}: not carried over: {}", shorten(parameter))),
        }
    }
    if parameters == "[sched params unavailable]" {
        input.note(place, format!("{name}: xl could not read the scheduler's parameters"));
    }
    if scheduler.is_none() && !options.is_empty() {
        scheduler = Some(Scheduler::Credit2);
    }
    let pool = printed.pool(name, place);
    pool.scheduler = scheduler.or(pool.scheduler);
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

/// The last `count` words of a line, and the name before them.
fn last_columns(line: &str, count: usize) -> Option<(&str, Vec<&str>)> {
    let mut rest = line.trim();
    let mut words = Vec::new();
    for _ in 0..count {
        let (before, last) = rest.rsplit_once(char::is_whitespace)?;
        rest = before.trim_end();
        words.push(last);
    }
    words.reverse();
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
    if line.trim_start().starts_with("(null) ") {
        return input.note(place, "a domain without a name, which xl shows as (null), is left out");
    }
    let read = match table {
        Table::PoolProcessors => {
            columns(line).map(|(name, [list])| pool_processors(input, name, list, place, printed, draft))
        }
        Table::Pools => columns(line).map(|(name, [_, scheduler, _, _])| {
            let scheduler = Scheduler::named(input, place, scheduler, name);
            printed.pool(name, place).scheduler = scheduler;
            Some(())
        }),
        Table::Credit => columns(line).map(|(name, [_, weight, cap])| {
            let cap = input.integer(place, "the cap", cap, 0, 102_400)? as u32;
            credit(input, place, (name, pool), weight, cap, printed)
        }),
        Table::Weights => {
            columns(line).map(|(name, [_, weight])| credit(input, place, (name, pool), weight, 0, printed))
        }
        Table::RtdsVcpus => columns(line).map(|(name, [_, vcpu, period, budget, extratime])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let given = rtds(input, place, period, budget, Some(extratime))?;
            printed.domain_in(name, place, pool).vcpus.entry(vcpu).or_default().rtds = Some(given);
            Some(())
        }),
        Table::OldRtdsVcpus => columns(line).map(|(name, [_, vcpu, period, budget])| {
            let vcpu = vcpu_number(input, place, vcpu)?;
            let given = rtds(input, place, period, budget, None)?;
            printed.domain_in(name, place, pool).vcpus.entry(vcpu).or_default().rtds = Some(given);
            Some(())
        }),
        Table::RtdsDefaults => columns(line).map(|(name, [_, period, budget, extratime])| {
            let given = rtds(input, place, period, budget, Some(extratime))?;
            printed.domain_in(name, place, pool).rtds = Some(given);
            Some(())
        }),
        Table::OldRtdsDefaults => columns(line).map(|(name, [_, period, budget])| {
            let given = rtds(input, place, period, budget, None)?;
            printed.domain_in(name, place, pool).rtds = Some(given);
            Some(())
        }),
        Table::Sedf => {
            columns(line).map(|(name, parameters)| sedf_row(input, place, (name, pool), parameters, printed))
        }
        Table::Vcpus => columns(line).map(|(name, [_, vcpu, _, state, _, hard, _, soft])| {
            vcpu_row(input, place, name, (vcpu, state, hard, soft), printed, draft)
        }),
        Table::Domains { more, pool } => last_columns(line, 5 + more).map(|(name, words)| {
            let online = input.integer(place, "the number of vCPUs", words[2], 0, PROCESSORS_MAX as i64)?;
            let domain = printed.domain_in(name, place, pool.map(|at| words[5 + at]));
            domain.online = Some(online as usize);
            Some(())
        }),
        Table::Unknown => Some(Some(())),
    };
    if read.is_none() {
        let header = HEADERS.iter().find(|(_, t)| *t == table).map_or(LIST, |(header, _)| header);
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

/// A row of `xl vcpu-list`: number, state, hard and soft affinity.
fn vcpu_row(
    input: &mut Input,
    place: Place,
    name: &str,
    (vcpu, state, hard, soft): (&str, &str, &str, &str),
    printed: &mut Printed,
    draft: &mut HostDraft,
) -> Option<()> {
    let vcpu = vcpu_number(input, place, vcpu)?;
    let hard = hard_affinity(input, place, hard).ok()?;
    draft.include_processors(hard.as_deref().unwrap_or_default());
    if soft != "all" && soft != "none" {
        input.note(place, format!("{name}: soft affinity is not carried over: {}", shorten(soft)));
    }
    let entry = printed.domain(name, place).vcpus.entry(vcpu).or_default();
    entry.hard = hard;
    // print_vcpuinfo: a vCPU that is not online has no processor and this state.
    entry.is_offline = state == "--p";
    Some(())
}

/// `None`: all processors.
fn hard_affinity(input: &mut Input, place: Place, text: &str) -> Result<Option<Vec<usize>>, Reported> {
    match text {
        "all" => Ok(None),
        "none" => {
            input.note(place, "a hard affinity without processors is taken as all");
            Ok(None)
        }
        list => input.cpu_list(place, "the hard affinity", list).map(Some).ok_or(Reported),
    }
}

fn credit(
    input: &mut Input,
    place: Place,
    (name, pool): (&str, Option<&str>),
    weight: &str,
    cap: u32,
    printed: &mut Printed,
) -> Option<()> {
    let weight = input.integer(place, "the weight", weight, 1, 65_535)? as u32;
    let domain = printed.domain_in(name, place, pool);
    domain.weight = Some(weight);
    domain.cap_percent = Some(cap).filter(|cap| *cap > 0);
    Some(())
}

/// `None` for `extratime`: Xen before 4.10, which gave no unit more than its budget.
fn rtds(
    input: &mut Input,
    place: Place,
    period: &str,
    budget: &str,
    extratime: Option<&str>,
) -> Option<RtdsParams> {
    let period = input.time(place, "the period", period, Duration::from_us(1))?;
    let budget = input.time(place, "the budget", budget, Duration::from_us(1))?;
    let extratime = match extratime {
        Some("yes") => true,
        Some("no") | None => false,
        Some(other) => {
            input.error(place, format!("extratime is {:?}", shorten(other)), "expected yes or no");
            return None;
        }
    };
    Some(RtdsParams { period, budget, extratime })
}

/// ID, period, slice, latency, extratime and weight; times in ms (`tools/libxl/xl_cmdimpl.c` of 4.5).
fn sedf_row(
    input: &mut Input,
    place: Place,
    (name, pool): (&str, Option<&str>),
    [_, period, slice, latency, extratime, weight]: [&str; 6],
    printed: &mut Printed,
) -> Option<()> {
    let period = input.time(place, "the period", period, Duration::from_ms(1))?;
    let budget = input.time(place, "the slice", slice, Duration::from_ms(1))?;
    let extratime = input.integer(place, "extratime", extratime, 0, 1)? == 1;
    let weight = input.integer(place, "the weight", weight, 0, 65_535)? as u32;
    if latency != "0" {
        input.note(place, format!("{name}: latency is not carried over: {}", shorten(latency)));
    }
    let domain = printed.domain_in(name, place, pool);
    domain.rtds = (!period.is_zero()).then_some(RtdsParams { period, budget, extratime });
    domain.weight = (weight > 0).then_some(weight);
    domain.is_sedf = true;
    Some(())
}
