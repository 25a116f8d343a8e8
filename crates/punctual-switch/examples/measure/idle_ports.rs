//! Round trips of two urgent VMs in a plane that polls, with few and with many idle VMs beside them, in turn.

use std::path::Path;
use std::time::Duration;

use punctual_switch::testing::frame;

use super::{Outcome, Planes, address, switch, trips, vm};

pub(crate) fn all(folder: &Path) -> Outcome<()> {
    println!("round trips of two urgent VMs in one plane that polls: p50, p99");
    for round in 0..6 {
        let ports = [4, 250][round % 2];
        let _switch = switch(folder, ("rtca", Some(1)), ports, Planes::One, 1_000)?;
        let mut vms = (0..ports).map(|port| vm(folder, port)).collect::<Outcome<Vec<_>>>()?;
        let [a, b, ..] = &mut vms[..] else { return Err("two ports at least".into()) };
        let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
        let times = trips((a, &ping), (b, &pong), Duration::from_millis(500))?;
        let us = |ppm| times.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
        println!("  {ports:>3} ports: {:.2}, {:.2} us", us(500_000), us(990_000));
    }
    Ok(())
}
