//! `punctual report` and the options called `--report`: one page from one command or from files, and what is
//! refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const FIVE: &str = "examples/five-vms.toml";
const NETWORK: &str = "examples/network.toml";

/// A directory for files, and the program started at the root of the repository.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Desk(TempDir::new().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program; an argument `@name` is a file of this desk.
    fn run(&self, args: &[&str]) -> Output {
        let args = args.iter().map(|arg| match arg.strip_prefix('@') {
            Some(name) => self.path(name).into_os_string(),
            None => arg.into(),
        });
        Command::new(env!("CARGO_BIN_EXE_punctual"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .args(args)
            .output()
            .expect("the program starts")
    }

    fn succeed(&self, args: &[&str]) -> Vec<u8> {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// What standard error says, of a command that ends with 2.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("written")
    }
}

#[test]
fn one_command_and_its_files_make_the_same_page() {
    for host in [FIVE, NETWORK] {
        let desk = Desk::new();
        let name = Path::new(host).file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let (json, file) = (format!("{name}.json"), format!("@{name}.json"));
        desk.succeed(&["sim", host, "--duration", "300ms", "--report", "@one.html"]);
        desk.write(
            &json,
            &desk.succeed(&["sim", host, "--duration", "300ms", "--json", "--trace", "@trace"]),
        );
        desk.write("check.json", &desk.run(&["check", host, "--duration", "300ms", "--json"]).stdout);
        desk.succeed(&["report", &file, "--trace", "@trace", "--check", "@check.json", "-o", "@files.html"]);
        assert!(desk.read("one.html") == desk.read("files.html"), "{host}");
    }
}

#[test]
fn a_page_says_that_scheduling_was_free_as_check_and_sim_do() {
    let desk = Desk::new();
    let host = "docs/tutorial/two-vms.toml";
    let cases: [(&[&str], bool); 2] = [(&[], true), (&["--overheads", "xen-4.0"], false)];
    for (options, is_free) in cases {
        let run = |args: &[&str]| desk.run(&[args, options].concat()).stdout;
        desk.write("sim.json", &run(&["sim", host, "--duration", "100ms", "--json"]));
        let pages = [
            run(&["check", host]),
            run(&["sim", host, "--duration", "100ms"]),
            desk.succeed(&["report", "@sim.json", "-o", "-"]),
        ];
        for page in pages {
            let said = String::from_utf8_lossy(&page).matches("scheduling costs are taken as zero").count();
            assert_eq!(said, usize::from(is_free), "{options:?}");
        }
    }
}

#[test]
fn a_comparison_and_a_report_of_the_same_files_are_the_same_page() {
    let desk = Desk::new();
    let results = |discipline: &str| {
        let set = format!("network.lan.discipline={discipline}");
        desk.succeed(&["sim", NETWORK, "--duration", "100ms", "--set", &set, "--json"])
    };
    desk.write("netback.json", &results("netback"));
    desk.write("rtca.json", &results("rtca"));
    desk.succeed(&["compare", "@netback.json", "@rtca.json", "--report", "@compared.html"]);
    let page = desk.succeed(&["report", "@netback.json", "@rtca.json", "-o", "-"]);
    assert!(page == desk.read("compared.html").into_bytes());
    assert!(desk.read("compared.html").contains("telemetry: rtca"));
}

#[test]
fn results_are_called_by_their_label_everywhere() {
    let desk = Desk::new();
    let results = |seed: &str, label: &str| {
        desk.succeed(&["sim", FIVE, "--duration", "100ms", "--seed", seed, "--label", label, "--json"])
    };
    desk.write("one.json", &results("1", "before the change"));
    desk.write("two.json", &results("2", "after it"));
    let text = |args: &[&str]| String::from_utf8(desk.succeed(args)).expect("text");
    let compared = text(&["compare", "@one.json", "@two.json"]);
    assert!(compared.contains("before the change  simulated") && compared.contains("after it"), "{compared}");
    let page = text(&["report", "@one.json", "@two.json", "-o", "-"]);
    assert!(page.contains("2 results side by side: before the change, after it"));
    let page = text(&["report", "@one.json", "@two.json", "--label", "A,B", "-o", "-"]);
    assert!(page.contains("2 results side by side: A, B"));
    let refused = desk.run(&["compare", "@one.json", "@two.json", "--label", "A"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(error.contains("--label has 1 names for 2 results; expected 2"), "{error}");
    let several =
        ["sim", FIVE, "--duration", "100ms", "--policy", "deferrable,credit", "--label", "X", "--json"];
    assert!(text(&several).contains("\"label\": \"X credit\""));
}

#[test]
fn what_is_no_input_of_a_report_is_refused_with_its_name() {
    let desk = Desk::new();
    desk.write("five.json", &desk.succeed(&["sim", FIVE, "--duration", "100ms", "--json"]));
    desk.write("empty.json", b"[]");
    desk.write("other", b"no trace");
    let report = |args: &[&str]| desk.refused(&[&["report", "@five.json"], args].concat());
    assert!(report(&[]).contains("nothing to write: give -o OUT.html"));
    assert!(
        report(&["-o", "@a.html", "--trace", "@other"])
            .contains("other: byte 0 is not part of a Perfetto trace")
    );
    assert!(report(&["-o", "@a.html", "--check", "@five.json"]).contains("five.json:"));
    assert!(report(&["-o", "@a.html", "--timeline-to", "5"]).contains("--timeline-to"));
    assert!(report(&["-o", "@none/a.html"]).contains("none"));
    assert!(desk.refused(&["report", "@empty.json", "-o", "@a.html"]).contains("empty array"));
    assert!(desk.refused(&["report", "@other", "-o", "@a.html"]).contains("other:1:1: expected JSON"));
    assert!(!desk.path("a.html").exists(), "a page was left although something was wrong");
}

#[test]
fn a_report_of_a_live_run_that_cannot_be_written_is_refused_before_anything_starts() {
    let desk = Desk::new();
    let error = desk.refused(&["run", FIVE, "--as", "process", "--report", "@none/live.html"]);
    assert!(error.contains("none"), "{error}");
}

#[test]
fn files_for_other_programs_appear_under_their_names() {
    let desk = Desk::new();
    desk.write("net.json", &desk.succeed(&["sim", NETWORK, "--duration", "100ms", "--json"]));
    let out = ["--csv", "@csv", "--hgrm", "@hgrm", "--hlog", "@all.hlog"];
    desk.succeed(&[&["report", "@net.json"], &out[..]].concat());
    for name in ["csv/flows.csv", "csv/chains.csv", "csv/runs.csv", "hgrm/net-lan-watch-latency.hgrm"] {
        assert!(desk.path(name).exists(), "{name}");
    }
    assert!(desk.read("all.hlog").contains("Tag=net:lan/watch:segment_driver_wait,"));
}

#[test]
#[cfg(feature = "parquet")]
fn a_parquet_file_begins_and_ends_as_one() {
    let desk = Desk::new();
    desk.write("net.json", &desk.succeed(&["sim", NETWORK, "--duration", "100ms", "--json"]));
    desk.succeed(&["report", "@net.json", "--parquet", "@all.parquet"]);
    let parquet = fs::read(desk.path("all.parquet")).expect("written");
    assert_eq!((&parquet[..4], &parquet[parquet.len() - 4..]), (b"PAR1".as_slice(), b"PAR1".as_slice()));
}

#[test]
#[cfg(not(feature = "parquet"))]
fn a_program_without_parquet_says_how_to_get_it() {
    let error = Desk::new().refused(&["report", "@net.json", "--parquet", "@all.parquet"]);
    assert!(error.contains("cargo install --path crates/punctual --features parquet"), "{error}");
}

/// Jobs in time do not make a result good whose packets are late: in words, in a comparison and by status.
#[test]
fn late_packets_of_flows_with_a_deadline_are_missed_deadlines() {
    let desk = Desk::new();
    let said = |arguments: &[&str]| {
        let file = "examples/process-bus.toml";
        let all = [&["sim", file, "--fail-on-miss", "--color", "never"], arguments].concat();
        let ran = desk.run(&all);
        (ran.status.code(), String::from_utf8(ran.stdout).expect("text"))
    };
    let (status, met) = said(&[]);
    assert_eq!(status, Some(0));
    assert!(met.contains("Every deadline was met") && met.contains("were in time."), "{met}");
    let late = ["--set", "flow.*.deadline=25us"];
    let (status, one) = said(&late);
    assert_eq!(status, Some(1));
    assert!(one.contains("Every job met its deadline: 2,000 jobs due"), "{one}");
    assert!(
        one.contains("packets with a deadline were late or lost: ") && !one.contains("Every deadline"),
        "{one}"
    );
    let (status, two) = said(&[&late[..], &["--policy", "rt=deferrable", "--policy", "rt=rtds"]].concat());
    assert_eq!(status, Some(1));
    assert!(!two.contains("very deadline was met") && !two.contains("every deadline met"), "{two}");
}
