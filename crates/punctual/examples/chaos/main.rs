//! Plays an operator's day on this machine and judges what it leaves.
//!
//! usage: `make chaos`, or `cargo build -p punctual && cargo run -p punctual --example chaos --` with
//! `[--minutes N] [--seconds N] [--seed S] [--as process|vm] [--json]`
//!
//! exit: 0 nothing was left behind, 1 something was (the seed, the round and its steps are printed), 2 the
//! day could not be played.
//!
//! It needs root, real-time priorities on processor 1, and for `--as vm` qemu-system-x86_64. Ctrl-C ends the
//! day after the round.

#[path = "../../tests/chaos/mod.rs"]
mod chaos;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos::{Day, Options, UNATTENDED_MAX, play};
use clap::{Parser, ValueEnum};

/// Plays an operator's day on this machine and judges what it leaves.
#[derive(Parser)]
struct Arguments {
    /// How long the day is.
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// Further seconds of it.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// What is done follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What runs attach to.
    #[arg(long = "as", default_value = "process")]
    kind: Kind,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Process,
    /// Processes and a QEMU.
    Vm,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match day(&arguments) {
        Ok(day) => {
            let is_clean = day.residue.is_empty() && day.worst.attended <= UNATTENDED_MAX;
            if arguments.json {
                println!("{}", json(&arguments, &day))
            } else {
                print(&arguments, &day)
            }
            if is_clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("seed {}: {error}", arguments.seed);
            ExitCode::from(2)
        }
    }
}

fn day(arguments: &Arguments) -> Result<Day, Box<dyn std::error::Error>> {
    let stop = Arc::new(AtomicBool::default());
    let stopped = stop.clone();
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))?;
    let program = program()?;
    let length = Duration::from_secs(arguments.minutes * 60 + arguments.seconds);
    let vms = matches!(arguments.kind, Kind::Vm);
    let is_terminal = std::io::stderr().is_terminal();
    let progress = |day: &Day| {
        if is_terminal {
            let (seconds, worst) = (day.elapsed.as_secs(), day.worst.attended);
            eprint!(
                "\r{seconds} s, {} rounds, {} runs, longest without an enforcer {worst:.0?} ",
                day.rounds, day.runs
            );
            let _ = std::io::stderr().flush();
        }
    };
    let day = play(&Options { length, seed: arguments.seed, vms, program }, &stop, progress)?;
    if is_terminal {
        eprintln!();
    }
    Ok(day)
}

/// The program beside the examples.
fn program() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let own = std::env::current_exe()?;
    let program = own.ancestors().nth(2).map(|directory| directory.join("punctual"));
    let built = program.filter(|program| program.exists());
    built.ok_or_else(|| {
        "there is no `punctual` beside the examples; build it with: cargo build -p punctual".into()
    })
}

fn names<K: std::fmt::Debug>(counts: &std::collections::BTreeMap<K, u64>) -> Vec<String> {
    counts.iter().map(|(name, count)| format!("{name:?} {count}")).collect()
}

fn print(arguments: &Arguments, day: &Day) {
    let worst = &day.worst;
    println!(
        "seed {}, {} s, {} rounds, {} runs",
        arguments.seed,
        day.elapsed.as_secs(),
        day.rounds,
        day.runs
    );
    println!("actions: {}", names(&day.actions).join(", "));
    println!("ends: {}", names(&day.ends).join(", "));
    println!(
        "longest with a real-time priority and without an enforcer: {:.0?} {}",
        worst.attended, worst.detail
    );
    println!("  while the run was stopped, or killed with its guardian: {:.0?}", worst.unattended);
    println!("  {} samples, {:.0?} apart at most", worst.samples, worst.gap);
    println!("runs that ended because the machine stood still: {}", day.stalls);
    println!("left behind: {}", if day.residue.is_empty() { "nothing" } else { "" });
    day.residue.iter().for_each(|line| println!("  {line}"));
}

fn json(arguments: &Arguments, day: &Day) -> serde_json::Value {
    let counts = |names: Vec<String>| -> serde_json::Map<String, serde_json::Value> {
        let pair = |text: String| {
            let (name, count) = text.split_once(' ')?;
            Some((name.to_owned(), count.parse::<u64>().ok()?.into()))
        };
        names.into_iter().filter_map(pair).collect()
    };
    let worst = &day.worst;
    serde_json::json!({
        "seed": arguments.seed,
        "elapsed_ms": day.elapsed.as_millis() as u64,
        "rounds": day.rounds,
        "runs": day.runs,
        "actions": counts(names(&day.actions)),
        "ends": counts(names(&day.ends)),
        "without_enforcer_max_ms": worst.attended.as_millis() as u64,
        "without_enforcer": worst.detail,
        "unattended_max_ms": worst.unattended.as_millis() as u64,
        "samples": worst.samples,
        "sample_gap_max_ms": worst.gap.as_millis() as u64,
        "stalls": day.stalls,
        "residue": day.residue,
    })
}
