//! `punctual place`: which VM of a fleet goes to which host.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use punctual_model::file::{parse_fleet, to_toml};
use punctual_model::fleet::Fleet;
use punctual_place::{Answer, HostPlan, Method, Plan, Proof, RefusedVm, Standing, VmPlan, Why, place};
use punctual_report::table;

use super::error::Error;
use super::exit;
use super::input::HostFile;
use super::output::{OutFile, Overwrite, Ui, make_directory, wrapped};

/// More hosts than these are shown by kind.
const HOSTS_SHOWN: usize = 24;
/// So many refused VMs are shown, with so many reasons each.
const REFUSED_SHOWN: usize = 8;
const REASONS_SHOWN: usize = 4;
/// So many names are listed.
const NAMES_SHOWN: usize = 3;

/// Place the VMs of a fleet on hosts, with all guarantees kept.
///
/// A host gets a set of VMs only if `punctual check` guarantees all their budgets and deadlines there. In
/// this order, the plan has as few refused VMs, as few hosts and as small costs of moving as possible: small
/// fleets are solved exactly, others by heuristics, with a lower bound on the number of hosts. Exit code 0:
/// every VM has a host; 1: at least one fits nowhere; 2: the command line or the file is wrong.
/// docs/place.md describes the file, the plan and its limits.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual place examples/fleet.toml                       which host for which VM?\n  \
    punctual place examples/fleet.toml --out hosts           a host file for each host\n  \
    punctual place examples/fleet.toml --what-if plc-2       where else could this one go?\n  \
    punctual place fleet.toml --json | jq '.refused[]'       what fits nowhere, and why")]
pub(super) struct Args {
    /// The fleet file; `-` reads standard input.
    #[arg(value_name = "FLEET.toml")]
    file: PathBuf,
    /// Write a host file for each host with VMs into this directory, created if missing.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Leave all other VMs where they are today, and tell where this one could go.
    #[arg(long, value_name = "VM", conflicts_with_all = ["out", "exact", "heuristic"])]
    what_if: Option<String>,
    /// Solve exactly, however long it takes. Otherwise only small fleets are.
    #[arg(long)]
    exact: bool,
    /// Solve by heuristics alone, however small the fleet is.
    #[arg(long, conflicts_with = "exact")]
    heuristic: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual place`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let file = HostFile::read(&args.file)?;
    let fleet = parse_fleet(file.bytes(), &file.name)?;
    if let Some(vm) = &args.what_if {
        return what_if(&fleet, vm, args, ui);
    }
    let method = match (args.exact, args.heuristic) {
        (true, _) => Method::Exact,
        (_, true) => Method::Heuristic,
        _ => Method::Auto,
    };
    let plan = place(&fleet, method);
    if let Some(directory) = &args.out {
        write_hosts(&plan, directory, args)?;
    }
    if args.json {
        ui.print_json(&plan)?;
    } else {
        ui.print(plan_text(&plan, ui.stdout_has_colour()))?;
    }
    Ok(if plan.refused.is_empty() { exit::OK } else { exit::MISSED })
}

fn write_hosts(plan: &Plan, directory: &Path, args: &Args) -> Result<(), Error> {
    let path = |name: &str| directory.join(format!("{name}.toml"));
    plan.files().iter().try_for_each(|host| args.overwrite.permit(&path(&host.name)))?;
    make_directory(directory)?;
    for host in plan.files() {
        OutFile::write(&path(&host.name), |out| out.write_all(to_toml(host).as_bytes()))?;
    }
    Ok(())
}

fn plan_text(plan: &Plan, colour: bool) -> String {
    let mut out = summary(plan);
    if !plan.hosts.is_empty() {
        out += "\n";
        out += &hosts(&plan.hosts, colour);
    }
    if !plan.refused.is_empty() {
        out += "\nNo host takes\n";
        let groups: Vec<&[RefusedVm]> = plan.refused.chunk_by(|a, b| a.why == b.why).collect();
        for vms in groups.iter().take(REFUSED_SHOWN) {
            let who = names(vms.iter().map(|vm| vm.name.as_str()));
            out += &wrapped("  ", "    ", &format!("{who}. {}", reasons(&vms[0].why)));
        }
        let more: usize = groups.iter().skip(REFUSED_SHOWN).map(|vms| vms.len()).sum();
        if more > 0 {
            out += &format!("  and {more} more; --json lists them\n");
        }
    }
    out
}

fn summary(plan: &Plan) -> String {
    let placed = plan.vms - plan.refused.len();
    let mut text = format!("{}\n", plan.fleet);
    text += &format!("{placed} of {} VMs are on {} of {} hosts", plan.vms, plan.hosts_used, plan.hosts_total);
    text += &match plan.proof {
        Proof::Optimal => ", the fewest possible.\n".to_owned(),
        Proof::Bound if plan.hosts_used == plan.hosts_min => {
            ", the fewest possible for these VMs.\n".to_owned()
        }
        Proof::Bound => {
            format!("; at least {} are needed (gap {:.1} %).\n", plan.hosts_min, plan.gap_percent())
        }
    };
    text += &match plan.moves {
        0 => "No VM moves.\n".to_owned(),
        1 => format!("1 VM moves, at a cost of {}.\n", plan.move_cost),
        moves => format!("{moves} VMs move, at a cost of {}.\n", plan.move_cost),
    };
    text
}

fn used(part: f64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.0} %", 100.0 * part / whole as f64) }
}

/// A row for each host, or for each kind of many.
fn hosts(hosts: &[HostPlan], colour: bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut rows = Vec::new();
    let is_long = hosts.len() > HOSTS_SHOWN;
    let same = |a: &HostPlan, b: &HostPlan| is_long && a.kind == b.kind;
    for chunk in hosts.chunk_by(same) {
        let (first, last) = (&chunk[0], chunk.iter().map(|host| host.vms.len()).sum::<usize>());
        let sum = |of: fn(&HostPlan) -> u64| chunk.iter().map(of).sum::<u64>();
        let processors = sum(|host| host.processors as u64);
        names.push(if is_long { &first.kind } else { &first.name });
        let all: Vec<&VmPlan> = chunk.iter().flat_map(|host| &host.vms).collect();
        let listed: Vec<&str> = all.iter().take(NAMES_SHOWN).map(|vm| vm.name.as_str()).collect();
        let more = if all.len() > NAMES_SHOWN { ", ..." } else { "" };
        let shown = if is_long { format!("{} hosts", chunk.len()) } else { listed.join(", ") + more };
        rows.push(vec![
            last.to_string(),
            used(sum(|host| host.share_ppm) as f64 / 1e6, processors),
            used(sum(|host| host.memory_used_mib) as f64, sum(|host| host.memory_mib)),
            shown,
        ]);
    }
    table::matrix("Hosts", &names, &["VMs", "processors", "memory", "which"], &rows, colour)
}

/// The first names, and how many more there are.
fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let all: Vec<&str> = all.collect();
    let shown = all.iter().take(NAMES_SHOWN).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn reasons(why: &[Why]) -> String {
    let one = |why: &Why| format!("{}: {}", names(why.hosts.iter().map(String::as_str)), why.reason);
    let mut text = why.iter().take(REASONS_SHOWN).map(one).collect::<Vec<_>>().join("; ");
    if why.len() > REASONS_SHOWN {
        text += &format!("; and {} more reasons", why.len() - REASONS_SHOWN);
    }
    text
}

fn what_if(fleet: &Fleet, vm: &str, args: &Args, ui: &Ui) -> Result<u8, Error> {
    let Some(answer) = Standing::new(fleet).ask(vm) else {
        let names = || fleet.vms.iter().map(|vm| vm.name.as_str());
        let near = punctual_model::file::nearest(vm, names());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return Err(Error::Usage(format!("--what-if: the fleet has no VM `{vm}`{near}")));
    };
    if args.json {
        ui.print_json(&answer)?;
    } else {
        ui.print(answer_text(&answer))?;
    }
    Ok(if answer.host.is_some() { exit::OK } else { exit::MISSED })
}

fn answer_text(answer: &Answer) -> String {
    let Answer { vm, today, host, vms, why, not_guaranteed_today } = answer;
    let from = today.as_ref().map_or_else(String::new, |today| format!(" from {today}"));
    let mut out = match host {
        Some(host) => {
            let verb = if today.is_some() { "can move" } else { "can go" };
            format!("{vm} {verb}{from} to {host}, and all guarantees hold.\n")
        }
        None => wrapped("", "  ", &format!("No other host takes {vm}{from}: {}", reasons(why))),
    };
    for of in vms {
        let mut parts = Vec::new();
        if !of.processors.is_empty() {
            let list: Vec<String> = of.processors.iter().map(usize::to_string).collect();
            let word = if list.len() == 1 { "processor" } else { "processors" };
            parts.push(format!("{word} {}", list.join(", ")));
        }
        parts.extend(of.node.map(|node| format!("node {node}")));
        if !parts.is_empty() {
            out += &format!("  {}: {}\n", of.name, parts.join(", "));
        }
    }
    if !not_guaranteed_today.is_empty() {
        let who = names(not_guaranteed_today.iter().map(String::as_str));
        let text = format!("Not guaranteed where they are today, and left out: {who}");
        out += &wrapped("", "  ", &text);
    }
    out
}
