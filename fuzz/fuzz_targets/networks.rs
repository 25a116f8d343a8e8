//! Any traffic over any network under any policy: the simulated machine's invariants hold. Packets are
//! conserved, flows keep their order, the segments of a packet's way add up to its latency, no unit runs
//! without work or budget.
//!
//! Inputs are structured: each describes a host file, which `RUST_LIBFUZZER_DEBUG_PATH=host.txt TARGET INPUT`
//! writes.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_model::file::{Overrides, parse};
use punctual_sched::registry;

const FLOWS_MAX: usize = 12;
const ENDS: [&str; 4] = ["client", "g1", "g2", "g3"];

/// A host file.
struct Input(String);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut text = String::from("duration = '5ms'\n");
        machine(u, &mut text)?;
        network(u, &mut text)?;
        for flow in 0..u.int_in_range(1..=FLOWS_MAX)? {
            self::flow(u, flow, &mut text)?;
        }
        Ok(Input(text))
    }
}

fn us(u: &mut Unstructured, max: u32) -> arbitrary::Result<u32> {
    let max = *u.choose(&[2, 20, max])?;
    u.int_in_range(0..=max)
}

fn machine(u: &mut Unstructured, text: &mut String) -> arbitrary::Result<()> {
    let policy = u.choose(registry::policies())?.name;
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "seed = {}\n[machine]\nprocessors = {}\noverheads.context_switch = '{}us'\n[pool.all]\n\
         policy = '{policy}'\n",
        u.arbitrary::<u16>()?,
        u.int_in_range(1..=4)?,
        us(u, 50)?,
    );
    for name in ["dom0", "g1", "g2", "g3"] {
        let budget = 10 + us(u, 900)?;
        let _ = write!(
            text,
            "[domain.{name}]\npriority = {}\nbudget = '{budget}us'\nperiod = '{}us'\nextratime = {}\n",
            u.int_in_range(0..=3)?,
            budget + us(u, 900)?,
            u.arbitrary::<bool>()?,
        );
    }
    if u.arbitrary()? {
        text.push_str("[domain.g3.task.burn]\nhog = true\nserver = { budget = '1ms', period = '2ms' }\n");
    }
    text.push_str("[domain.g2.task.serve]\non_packet = true\ncost = '30us'\ndeadline = '1ms'\n");
    text.push_str("[domain.g1.task.sense]\nperiod = '1ms'\ncost = '20us'\n");
    text.push_str("[domain.g2.task.act]\non_packet = true\ncost = '20us'\ndeadline = '1ms'\n");
    Ok(())
}

fn network(u: &mut Unstructured, text: &mut String) -> arbitrary::Result<()> {
    let _ = write!(
        text,
        "[network.lan]\ndriver = 'dom0'\ndiscipline = '{}'\nscan = '{}'\nevents = '{}'\nnic.ring_slots = {}\n\
         outside.client.turnaround = '{}us'\n",
        u.choose(&["netback", "rtca", "preemptive"])?,
        u.choose(&["first", "word", "resume"])?,
        u.choose(&["first", "one-by-one"])?,
        u.choose(&[1, 2, 64])?,
        us(u, 100)?,
    );
    text.push_str("[network.lan.costs]\n");
    let costs =
        ["event", "interrupt", "tx", "softnet", "rx", "round", "copy_per_kib", "nic_receive", "nic_send"];
    for key in costs {
        let _ = writeln!(text, "{key} = '{}us'", us(u, 30)?);
    }
    if u.arbitrary()? {
        text.push_str("jitter = '50%'\n");
    }
    for name in ["g1", "g2", "g3"] {
        let _ = writeln!(text, "[network.lan.interface.{name}]\nring_slots = {}", u.choose(&[1, 3, 256])?);
        if u.ratio(1, 4)? {
            let _ = writeln!(text, "credit_bytes = {}\ncredit_window = '100us'", 100 + us(u, 5000)?);
        }
    }
    text.push_str(
        "[flow.serving]\nkind = 'request'\nfrom = 'client'\nto = 'g2'\nserver = 'g2.serve'\n\
         period = '200us'\n",
    );
    text.push_str("[chain.loop]\nsteps = ['g1.sense', 'g2.act']\ndeadline = '1ms'\n");
    Ok(())
}

fn flow(u: &mut Unstructured, number: usize, text: &mut String) -> arbitrary::Result<()> {
    let (from, to) = (*u.choose(&ENDS)?, *u.choose(&ENDS)?);
    if from == to {
        return Ok(());
    }
    let (time, n) = (1 + us(u, 3000)?, u.int_in_range(1..=40u32)?);
    let keys = match u.int_in_range(0..=5)? {
        0 => format!("kind = 'ping'\ntimeout = '{time}us'\npause = '{n}us'"),
        1 => format!("kind = 'request'\nperiod = '{}us'\ntimeout = '{n}us'", time.max(10)),
        2 => format!("kind = 'periodic'\nperiod = '{}us'\nburst = {n}\nslack_mean = '{n}us'", time.max(20)),
        3 => format!("kind = 'stream'\nwindow = {n}\nack_every = 1\ntimeout = '{time}us'"),
        4 => format!(
            "kind = 'stream'\nwindow = {n}\nack_every = 1\nrto_min = '{time}us'\n\
             congestion_control = '{}'",
            u.choose(&["reno", "cubic"])?
        ),
        _ => {
            let interval_us = if from == "client" { time.max(2) } else { us(u, 10)? };
            format!("kind = 'storm'\ninterval = '{interval_us}us'")
        }
    };
    let bytes = 64 + us(u, 60_000)?;
    let _ = write!(text, "[flow.f{number}]\nfrom = '{from}'\nto = '{to}'\nbytes = {bytes}\n{keys}\n");
    Ok(())
}

fuzz_target!(|input: Input| {
    // A policy may refuse parameters.
    let Ok(host) = parse(&input.0, "fuzz.toml", &Overrides::default()) else { return };
    if let Err(error) = punctual_sim::simulate(&host) {
        panic!("{error}");
    }
});
