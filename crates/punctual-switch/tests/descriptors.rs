//! A switch that has no file descriptor left to accept a front-end.

use std::process::Command;
use std::time::{Duration, Instant};

use punctual_switch::testing::Options;
use punctual_switch::{Event, Notice};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use rustix::time::{ClockId, clock_gettime};

use super::common::{LONG, Lab, Setting, expect, frame};

/// Set in the process of a test that runs alone.
const ALONE: &str = "PUNCTUAL_TEST_ALONE";

/// Runs a test in a process of its own, because RLIMIT_NOFILE applies to a process.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    let output = command.args(["--exact", name, "--nocapture"]).env(ALONE, "yes").output().expect("it runs");
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && text[0].contains("1 passed"), "{}", text.concat());
}

fn limit(descriptors: Option<u64>) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: descriptors, ..limit }).expect("set");
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_front_end_waits_for_a_descriptor_while_no_thread_spins_and_others_continue() {
    alone(
        "descriptors::a_front_end_waits_for_a_descriptor_while_no_thread_spins_and_others_continue",
        || {
            let lab = Lab::new(Setting::plain("rtca", 3));
            let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, Options::default()));
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
            let socket = socket.expect("a socket");
            let usual = rustix::process::getrlimit(Resource::Nofile).current;
            limit(Some(3));
            let address = SocketAddrUnix::new(lab.socket(2)).expect("a path");
            rustix::net::connect(&socket, &address).expect("the switch listens");
            let unaccepted = lab.wait(2, |event| *event != Event::Connected);
            assert!(
                matches!(&unaccepted, Event::Unaccepted(reason) if reason.contains("Too many open files"))
            );
            let (start, before) = (Instant::now(), processor_time());
            std::thread::sleep(Duration::from_millis(500));
            let took = processor_time() - before;
            assert!(took < start.elapsed() / 5, "{took:?} in half a second in which nothing happens");
            assert!(a.send(&frame(0, 1, 1)).expect("sent"));
            expect(&mut b, &frame(0, 1, 1));
            limit(usual);
            let event = lab.notice(LONG).expect("the front-end is accepted");
            assert_eq!(event, Notice { port: 2, event: Event::Connected }, "and it is reported once");
        },
    );
}
