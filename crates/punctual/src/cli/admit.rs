//! `punctual admit`: may VMs of a class come?

use std::path::PathBuf;

use punctual_model::text::printable;
use punctual_service::admission::{Admission, Unguaranteed};
use punctual_service::client::Client;

use super::error::Error;
use super::exit;
use super::output::{Ui, wrapped};

/// Ask the service whether budgets stay guaranteed if VMs of a class come to this host; nothing changes.
///
/// The answer is that of the analysis of `punctual check` for the VMs that run and those that are asked for,
/// without the costs of scheduling. Exit status 1: a budget is not guaranteed then that is now, or one of the
/// VMs that are asked for. Needs a running `punctual serve`, and root or the group `punctual`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual admit relay                                     one more VM with one vCPU\n  \
    punctual admit plc --count 2 --vcpus 4                   two of four vCPUs each\n  \
    punctual admit relay --json | jq .is_guaranteed")]
pub(super) struct Args {
    /// The class.
    #[arg(value_name = "CLASS")]
    class: String,
    /// How many VMs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number())]
    count: u32,
    /// How many vCPUs each of them has.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number())]
    vcpus: u32,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn number() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=256)
}

/// Runs `punctual admit`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut client = Client::connect(&args.run).map_err(Error::usage)?;
    let admission = client.admit(&args.class, args.count, args.vcpus).map_err(Error::usage)?;
    if args.json {
        ui.print_json(&admission)?;
    } else {
        let yes = "yes: all of them get their budgets, and nobody loses a guarantee\n";
        ui.print(answer(&admission, yes, "no: these budgets would not be guaranteed\n"))?;
    }
    Ok(if admission.is_guaranteed { exit::OK } else { exit::MISSED })
}

/// The answer for people: `yes` or `no` in words, then who has no guarantee.
pub(super) fn answer(Admission { is_guaranteed, unguaranteed }: &Admission, yes: &str, no: &str) -> String {
    let mut out = if *is_guaranteed { yes } else { no }.to_owned();
    let (new, known): (Vec<&Unguaranteed>, Vec<&Unguaranteed>) =
        unguaranteed.iter().partition(|one| one.is_new);
    new.into_iter().for_each(|one| out += &line(one));
    if !known.is_empty() {
        out += "not guaranteed already:\n";
        known.into_iter().for_each(|one| out += &line(one));
    }
    out
}

fn line(one: &Unguaranteed) -> String {
    let who = match one.process {
        0 => format!("a new VM of class {}", one.name),
        process if one.vcpu.is_none() => format!("unit {} (process {process})", one.name),
        process => format!("VM {} (process {process})", one.name),
    };
    let which = one.vcpu.map_or_else(String::new, |vcpu| format!(", vCPU {vcpu}"));
    wrapped("  ", "    ", &printable(&format!("{who}{which}: {}", one.reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_is_named_apart_from_who_has_no_guarantee_anyway() {
        let one = |name: &str, process, is_new| Unguaranteed {
            name: name.into(),
            process,
            vcpu: Some(0),
            is_new,
            reason: "too much".into(),
        };
        let unit = Unguaranteed { vcpu: None, ..one("tap.service", 8, false) };
        let unguaranteed = vec![one("relay", 0, true), one("plc\u{1b}", 7, false), unit];
        let shown = answer(&Admission { is_guaranteed: false, unguaranteed }, "yes\n", "no\n");
        assert_eq!(
            shown,
            "no\n  a new VM of class relay, vCPU 0: too much\n\
             not guaranteed already:\n  VM plc\\u{1b} (process 7), vCPU 0: too much\n  \
             unit tap.service (process 8): too much\n"
        );
        let all = Admission { is_guaranteed: true, unguaranteed: Vec::new() };
        assert_eq!(answer(&all, "yes\n", "no\n"), "yes\n");
    }
}
