//! The page of `punctual status --web`: what a browser gets, and what others do not.

use std::net::TcpStream;

use super::*;

/// The process that serves the page of a service.
struct Web {
    _child: Killed,
    address: String,
}

impl Web {
    fn start(service: &Service) -> Web {
        let mut command = Command::new(PROGRAM);
        command.args(["status", "--run", "run", "--web", "127.0.0.1:0"]).current_dir(service.folder.path());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("the page is at http://").and_then(|at| at.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        Web { _child: Killed(child), address }
    }

    /// The head and the body of the answer.
    fn get(&self, path: &str, host: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }

    fn data(&self, query: &str) -> Value {
        let (head, body) = self.get(&format!("/data.json?{query}"), "localhost");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        serde_json::from_str(&body).expect("JSON")
    }
}

#[test]
fn the_page_has_the_facts_of_the_interface_and_survives_a_restart_of_the_service() {
    let pool = "[pool.rt]\nprocessors = [0]\npolicy = 'deferrable'\n";
    let mut service = Service::start(&format!("{pool}{CLASSES}priority = 1\n"));
    let hostile = "<script>alert(1)</script>";
    // The service keeps 256 letters of a name.
    let (long, kept) = ("x".repeat(10_000), "x".repeat(256));
    let busy = format!("{AS_VCPU} while :; do :; done;");
    let _vms = [look_alike("punctual-relay-w", &busy), look_alike(hostile, ""), look_alike(&long, "")];
    for name in [hostile, &kept] {
        service.vm(name, |_| true);
    }
    service.vm("punctual-relay-w", |vm| vm["warnings"] != json!([]));
    let web = Web::start(&service);
    let (head, page) = web.get("/", "localhost");
    assert!(head.contains("Content-Security-Policy: default-src 'none';"), "{head}");
    assert!(!page.contains("punctual-relay-w"), "names come as JSON alone");
    let (head, _) = web.get("/data.json", "rebound.example");
    assert!(head.starts_with("HTTP/1.1 421 "), "{head}");

    let mut data = Value::Null;
    wait("two moments", || {
        data = web.data("since=0");
        data["history"]["moments"].as_array().is_some_and(|moments| moments.len() >= 2)
    });
    let status = service.json();
    for key in ["version", "mode", "started_us", "pools", "classes", "processors", "reload_error"] {
        assert_eq!(data["host"][key], status["host"][key], "{key}");
    }
    let vm = actor(&data, "punctual-relay-w");
    let known = actor(&status, "punctual-relay-w");
    for key in ["process", "class", "pool", "state", "kind"] {
        assert_eq!(vm[key], known[key], "{key}");
    }
    assert_eq!((&vm["budget_ns"], &vm["period_ns"]), (&json!(100_000), &json!(10_000_000)));
    assert_eq!(vm["warnings"][0]["kind"], "budget", "it spins");
    for name in [hostile, &kept] {
        assert_eq!(actor(&data, name)["threads"], json!(0), "its shell is no vCPU");
    }
    let moments = data["history"]["moments"].as_array().expect("moments");
    for moment in moments {
        let [one] = &moment["processors"].as_array().expect("a list")[..] else { panic!("{moment}") };
        assert_eq!(one["processor"], 0, "the pool's");
        let us = |value: &Value| value.as_u64().expect("a time");
        let ran: u64 = one["actors"].as_array().expect("a list").iter().map(|one| us(&one["run_us"])).sum();
        let rest = ["idle_us", "stolen_us", "other_us", "more_us"].map(|key| us(&one[key]));
        assert_eq!(ran + rest.iter().sum::<u64>(), us(&moment["length_us"]), "{moment}");
    }
    let last = moments.last().expect("a moment")["number"].as_u64().expect("a number");
    let started_us = &data["host"]["started_us"];
    let later = web.data(&format!("since={last}&started_us={started_us}"));
    let numbers = later["history"]["moments"].as_array().expect("moments").iter();
    assert!(numbers.into_iter().all(|moment| moment["number"].as_u64() > Some(last)), "{later}");

    service.signal(Signal::KILL);
    wait("the page knows it", || web.data("")["is_connected"] == false);
    let data = web.data("");
    assert_eq!((&data["host"], &data["actors"]), (&Value::Null, &json!([])), "not an idle host");
    assert!(data["reason"].as_str().is_some_and(|reason| reason.contains("cannot connect")), "{data}");
    service.kill_and_start();
    wait("it is connected again", || web.data("")["is_connected"] == true);
    let again = web.data(&format!("since=999&started_us={started_us}"));
    assert_ne!(&again["host"]["started_us"], started_us);
}

#[test]
fn a_page_for_others_than_this_machine_is_refused() {
    let folder = folder("");
    for address in ["0.0.0.0:0", "relay-1"] {
        let mut command = Command::new(PROGRAM);
        command.args(["status", "--run", "run", "--web", address]).current_dir(folder.path());
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains("loopback") || error.contains("expected ADDRESS:PORT"), "{error}");
    }
}
