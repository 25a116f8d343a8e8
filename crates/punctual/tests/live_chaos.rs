//! Twenty seconds of an operator's day (`examples/chaos`) with a fixed seed. The command also judges how long
//! a unit is without an enforcer; here that is printed only, since it takes a machine that nobody shares.

mod chaos;
mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chaos::{Options, UNATTENDED_MAX, play};
use common::live::needs;

#[test]
fn after_twenty_seconds_of_an_operators_day_the_machine_is_as_before() {
    let Some(_turn) = needs() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_punctual")).to_owned();
    let options = Options { length: Duration::from_secs(20), seed: 34, vms: false, program };
    let day = play(&options, &AtomicBool::new(false), |_| ()).expect("victims and runs start");
    assert_eq!(day.residue, Vec::<String>::new());
    println!("{} rounds, {} runs, {:?}, {:?}", day.rounds, day.runs, day.actions, day.ends);
    println!(
        "longest without an enforcer: {:?} {} (at most {UNATTENDED_MAX:?})",
        day.worst.attended, day.worst.detail
    );
    assert!(day.runs > 0 && !day.actions.is_empty(), "nothing was tested");
}
