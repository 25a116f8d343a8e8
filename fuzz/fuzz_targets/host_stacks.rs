//! Any Linux host with a network stack, under any method and over any path: the simulated machine's
//! invariants hold. The parts of each request add up to its response time, requests are answered in order,
//! nothing is lost, streams keep their windows; and a response keeps its bound where there is one.
//!
//! Inputs are structured: each describes a host file, which `RUST_LIBFUZZER_DEBUG_PATH=host.txt TARGET INPUT`
//! writes.

#![no_main]

use std::fmt::Write;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_host_stack::bounds::response_bound;
use punctual_host_stack::{Injection, Method, Path, SoftirqRest};
use punctual_model::AnyHost;
use punctual_model::file::{Overrides, parse_host_stack};

const SERVERS_MAX: usize = 5;
const CARDS: [&str; 3] = ["rt", "lan", "wan"];

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
        host(u, &mut text)?;
        costs(u, &mut text)?;
        for card in CARDS {
            self::card(u, card, &mut text)?;
        }
        for number in 0..u.int_in_range(1..=SERVERS_MAX)? {
            server(u, number, &mut text)?;
        }
        Ok(Input(text))
    }
}

fn host(u: &mut Unstructured, text: &mut String) -> arbitrary::Result<()> {
    // Writing to a string cannot fail, here and below.
    let _ = write!(
        text,
        "seed = {}\n[machine]\nprocessors = {}\n[host_stack]\nmethod = '{}'\nrtnet_prio = {}\n\
         softirq_rest = '{}'\ninjection = '{}'\nexclusive = [0]\njiffy = '{}'\n",
        u.arbitrary::<u16>()?,
        u.int_in_range(2..=5)?,
        u.choose(&Method::ALL)?.name(),
        u.int_in_range(0..=99)?,
        u.choose(&SoftirqRest::ALL)?.name(),
        u.choose(&Injection::ALL)?.name(),
        u.choose(&["1us", "1ms", "4ms"])?,
    );
    if u.arbitrary()? {
        let (size_kib, miss_ns) = (ns(u, 9_000)? + 1, ns(u, 200)?);
        let _ = write!(
            text,
            "[host_stack.cache]\nsize_kib = {size_kib}\nmiss = '{miss_ns}ns'\n\
             [host_stack.cache.lines]\nguest_protocol = {}\nhost_protocol = {}\n",
            ns(u, 100_000)?,
            ns(u, 100_000)?
        );
    }
    Ok(())
}

fn ns(u: &mut Unstructured, max: u32) -> arbitrary::Result<u32> {
    let max = *u.choose(&[2, 100, max])?;
    u.int_in_range(0..=max)
}

fn costs(u: &mut Unstructured, text: &mut String) -> arbitrary::Result<()> {
    text.push_str("[host_stack.costs]\n");
    let any = [
        "card",
        "switch",
        "irq_thread",
        "irq_thread_end",
        "bridge",
        "protocol",
        "send",
        "transmit",
        "copy_per_kib",
        "virtio_buffer",
        "vnic_wake",
        "vnic_end",
        "vcpu_wake",
        "vm_entry",
        "vm_exit",
        "guest_interrupt",
        "guest_switch",
        "socket_call",
        "late",
    ];
    for key in any {
        let _ = writeln!(text, "{key} = '{}ns'", ns(u, 20_000)?);
    }
    for key in ["hard_irq", "softirq", "frame", "receive", "vnic_receive", "vnic_send"] {
        let _ = writeln!(text, "{key} = '{}ns'", 100 + ns(u, 20_000)?);
    }
    for key in ["preempt_rt", "jitter", "late_share"] {
        let _ = writeln!(text, "{key} = '{}%'", u.int_in_range(1..=100)?);
    }
    Ok(())
}

fn card(u: &mut Unstructured, name: &str, text: &mut String) -> arbitrary::Result<()> {
    let _ = write!(
        text,
        "[host_stack.card.{name}]\npriority = {}\nprocessors = {}\nbandwidth = '{}'\ncoalesce = '{}ns'\n\
         ring_slots = {}\natr_sample = {}\n",
        u.choose(&[0, 0, 47, 50, 99])?,
        u.choose(&["[0, 1]", "[0]", "[1]"])?,
        u.choose(&["10Mbit/s", "10Gbit/s", "400Gbit/s"])?,
        ns(u, 300_000)?,
        u.choose(&[64, 512, 65_536])?,
        u.choose(&[0, 0, 1, 20])?,
    );
    Ok(())
}

fn server(u: &mut Unstructured, number: usize, text: &mut String) -> arbitrary::Result<()> {
    let _ = write!(
        text,
        "[host_stack.server.s{number}]\ncard = '{}'\npath = '{}'\npriority = {}\nvnic_priority = {}\n\
         count = {}\nstart = '{}us'\n",
        u.choose(&CARDS)?,
        u.choose(&Path::ALL)?.name(),
        u.choose(&[0, 0, 47, 99])?,
        u.choose(&[0, 0, 48, 99])?,
        u.choose(&[1, 1, 2, 7])?,
        ns(u, 6_000)?,
    );
    let _ = match u.arbitrary()? {
        true => writeln!(text, "load = 'stream'\nwindow = {}", u.choose(&[64, 2_048, 65_536])?),
        false => {
            if u.arbitrary()? {
                let _ = writeln!(text, "call = 'sip'\nturnaround = '{}us'", ns(u, 2_000)?);
            }
            if u.arbitrary()? {
                let share = u.int_in_range(1..=100)?;
                let _ = writeln!(text, "other_share = '{share}%'\nother_bytes = 1448\nother_reply_bytes = 1");
            }
            let gap = 10 + ns(u, 2_000)?;
            writeln!(
                text,
                "load = 'requests'\ngap_min = '{gap}us'\ngap_max = '{}us'\nbytes = {}\nreply_bytes = {}\n\
                 service = '{}ns'\nlines = {}",
                gap + ns(u, 2_000)?,
                u.int_in_range(1..=1_448)?,
                u.int_in_range(1..=1_448)?,
                ns(u, 100_000)?,
                ns(u, 100_000)?,
            )
        }
    };
    Ok(())
}

fuzz_target!(|input: Input| {
    let stack = match parse_host_stack(input.0.as_bytes(), "fuzz.toml", &Overrides::default()) {
        Ok(stack) => stack,
        Err(e) => panic!("{e}\n{}", input.0),
    };
    let written = AnyHost::Stack(stack.clone()).to_toml();
    let read = parse_host_stack(written.as_bytes(), "written.toml", &Overrides::default());
    assert!(read.as_ref() == Ok(&stack), "{written}");
    let results =
        punctual_host_stack_sim::simulate(&stack).unwrap_or_else(|e| panic!("{e}\n{}", input.0));
    for server in &stack.servers {
        let Ok(bound) = response_bound(&stack, server) else { continue };
        let flow = results.flows.iter().find(|flow| flow.name == server.name).expect("each has a flow");
        let worst = flow.latency.max();
        assert!(worst <= bound.total(), "{}: {worst} of {bound:?}\n{}", server.name, input.0);
    }
});
