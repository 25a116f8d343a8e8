//! The first minutes of who operates VMs: without root, on narrow terminals, with mistakes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use punctual_linux::os::sched::{affinity, attributes};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual");
/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The program, started at the root of the repository.
fn run(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(PROGRAM).current_dir(root).args(args).output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the program as a user without rights, who finds a state directory of root, with this standard input.
fn as_nobody(args: &[&str], stdin: &str) -> Output {
    let state = TempDir::new().expect("a directory");
    fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    // Where other users may not execute the program it is copied.
    let copy = state.path().join("punctual");
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.args(args).current_dir("/").env("PUNCTUAL_STATE", state.path()).env_remove("XDG_RUNTIME_DIR");
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let mut child = start(Path::new(PROGRAM)).or_else(|_| {
        // Copied by a process of its own: a file that is open for writing cannot be executed (ETXTBSY), and a
        // child that another test starts meanwhile inherits what this process has open.
        let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status().expect("cp is there");
        assert!(copied.success());
        start(&copy)
    });
    let child = child.as_mut().expect("the program starts");
    // A program that ends early reads nothing.
    let _ = child.stdin.take().expect("piped").write_all(stdin.as_bytes());
    let mut output =
        Output { status: child.wait().expect("it ends"), stdout: Vec::new(), stderr: Vec::new() };
    std::io::copy(child.stdout.as_mut().expect("piped"), &mut output.stdout).expect("read");
    std::io::copy(child.stderr.as_mut().expect("piped"), &mut output.stderr).expect("read");
    output
}

/// A host file whose only domain is attached to a thread.
fn attached(thread: u32) -> String {
    format!(
        "[machine]\nprocessors = 1\n[pool.guests]\nprocessors = [0]\npolicy = 'deferrable'\n\
         [domain.relay]\nbudget = '1ms'\nperiod = '10ms'\npriority = 1\nattach = {{ threads = [{thread}] }}\n"
    )
}

#[test]
fn a_dry_run_shows_threads_and_changes_none_without_root() {
    let (me, process) = (rustix::thread::gettid().as_raw_nonzero().get(), std::process::id());
    let state = || (attributes(me).expect("it lives"), affinity(me).expect("it lives"));
    let before = state();
    // The pool has the only processor that each machine has.
    let args = ["attach", "-", "--dry-run", "--starve"];
    let output = as_nobody(&args, &attached(me as u32));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.starts_with(&format!("relay: process {process} (")), "{said}");
    let row = said.lines().find(|line| line.contains("relay.0")).expect("a row of the vCPU");
    assert!(row.contains(&format!(" {me} ")) && row.ends_with(" -> SCHED_FIFO 70"), "{said}");
    // The thread of the test harness.
    assert!(said.contains(" helper") && said.ends_with("nothing was changed\n"), "{said}");
    assert_eq!(state(), before);

    let json = as_nobody(&[&args[..], &["--json"]].concat(), &attached(me as u32));
    let targets: Value = serde_json::from_slice(&json.stdout).expect("JSON alone");
    let vcpu = &targets[0]["vcpus"][0];
    assert_eq!((&vcpu["vcpu"], &vcpu["thread"]), (&Value::from("relay.0"), &Value::from(me)));
    assert_eq!(vcpu["then"]["processors"], Value::from(vec![0]));

    // A file for libvirt's VMs, with a process instead.
    let other = attached(me as u32).replace(&format!("threads = [{me}]"), "libvirt = 'relay01'");
    let set = format!("domain.relay.attach.threads=[{me}]");
    let replaced = as_nobody(&[&args[..], &["--set", &set]].concat(), &other);
    assert_eq!(replaced.status.code(), Some(0), "{}", stderr(&replaced));

    let gone = as_nobody(&args, &attached(4_194_303));
    assert_eq!(gone.status.code(), Some(2));
    assert_eq!(stderr(&gone), "error: domain `relay`: thread 4194303 is gone\n");
}

#[test]
fn what_cannot_enforce_a_host_is_refused_with_the_reason_and_auto_takes_another() {
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let dry_run = |host: &str, more: &[&str]| {
        as_nobody(&[&["attach", "-", "--dry-run", "--starve"], more].concat(), host)
    };
    let best_effort = attached(me) + "[domain.idle]\nbest_effort = true\nattach = { threads = [1] }\n";
    let refused = dry_run(&best_effort, &["--enforce", "sched-ext"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(
        stderr(&refused),
        "error: `sched-ext` cannot enforce this run: domain `idle` is best effort: in the fair class it \
         would come before all units\n"
    );
    let asked = attached(me).replace("processors = 1\n", "processors = 1\nenforce = 'sched-ext'\n");
    let freezer = dry_run(&asked, &["--enforce", "freezer"]);
    assert!(String::from_utf8_lossy(&freezer.stdout).contains("-> SCHED_FIFO 70"), "{}", stderr(&freezer));
    let reason = punctual_doctor::doctor::sched_ext(punctual_doctor::doctor::Root::new("/"));
    let file = dry_run(&asked, &[]);
    match (punctual_enforce::backend::HAS_SCHED_EXT, reason) {
        (true, Ok(())) => assert!(String::from_utf8_lossy(&file.stdout).contains("-> SCHED_EXT")),
        (true, Err(reason)) => assert!(stderr(&file).contains(&reason.to_string()), "{}", stderr(&file)),
        (false, _) => assert!(stderr(&file).contains("cargo feature `sched-ext`"), "{}", stderr(&file)),
    }
    let auto = dry_run(&best_effort, &["--enforce", "auto", "--allow-sched-ext"]);
    assert!(!stderr(&auto).contains("sched-ext"), "{}", stderr(&auto));
}

#[test]
fn a_dry_run_warns_of_more_vcpus_than_processors() {
    let threads: Vec<String> = (0..2)
        .map(|_| {
            let (send, receive) = std::sync::mpsc::channel();
            // It lives until the process of the test ends.
            std::thread::spawn(move || {
                send.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("received");
                std::thread::park_timeout(std::time::Duration::from_secs(60));
            });
            receive.recv().expect("it starts").to_string()
        })
        .collect();
    let host = attached(1).replace("threads = [1]", &format!("threads = [{}]", threads.join(", ")));
    let host = host.replace("[domain.relay]\n", "[domain.relay]\nvcpus = 2\n");
    let output = as_nobody(&["attach", "-", "--dry-run", "--starve"], &host);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).starts_with("warning: relay: 2 vCPUs on 1 processor: "), "{}", stderr(&output));
}

#[test]
fn what_needs_root_says_so_first_with_the_line_to_type() {
    for command in ["attach", "run"] {
        let output = as_nobody(&[command, "-", "--report", "/no/page.html"], &attached(1));
        assert_eq!(output.status.code(), Some(2));
        let expected =
            format!("error: {command} needs root: sudo punctual {command} - --report /no/page.html\n");
        assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
        assert!(stderr(&output).contains("CAP_SYS_NICE"), "{}", stderr(&output));
    }
    if !rustix::process::geteuid().is_root() {
        // The state directory is this user's.
        return;
    }
    let restore = stderr(&as_nobody(&["restore"], ""));
    assert!(restore.starts_with("error: restore needs root: sudo punctual restore\n"), "{restore}");
    let top = stderr(&as_nobody(&["top", "--once"], ""));
    assert!(top.contains("top needs root: sudo punctual top --once\n"), "{top}");
}

/// What the program shows on a terminal of so many columns.
fn on_terminal(columns: usize, args: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Progress bars are drawn over each other.
    let command = format!("stty cols {columns} rows 40 && exec {PROGRAM} {args} 2>/dev/null");
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .expect("script(1)");
    let said = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(output.status.success(), "{said}");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn tables_and_examples_fit_the_terminal() {
    for columns in [60, 80, 132] {
        for args in [
            "sim examples/five-vms.toml --color never",
            "sim examples/network.toml --detail --color never",
            "sim examples/five-vms.toml --policy all --color never",
        ] {
            let lines = on_terminal(columns, args);
            let wide = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(wide > columns / 2 && wide <= columns, "{args}: {wide}\n{}", lines.join("\n"));
        }
    }
    let help = on_terminal(60, "--color never --help");
    assert!(help.iter().all(|line| line.chars().count() <= 60), "{}", help.join("\n"));
    let comment = "      under every policy, side by side";
    assert!(help.iter().any(|line| line == comment), "{}", help.join("\n"));
}

#[test]
fn manual_pages_are_of_what_people_use() {
    let directory = TempDir::new().expect("a directory");
    let out = directory.path().to_str().expect("text");
    assert!(run(&["man", "--out", out]).status.success());
    let page = |name: &str| fs::read_to_string(directory.path().join(name));
    assert!(page("punctual-guardian.1").is_err() && page("punctual-launch.1").is_err());
    for show in ["punctual-xen-show.1", "punctual-xen-replay.1"] {
        assert!(page(show).expect("its page").contains(".TH "), "{show}");
    }
    assert!(!page("punctual-xen.1").expect("its page").contains("help(1)"));
    let top = page("punctual.1").expect("its page");
    assert!(!top.contains("EXTRA") && top.contains("\n.SH EXAMPLES\n"), "{top}");
    assert!(top.contains("\n.SH EXIT STATUS\n"), "{top}");
}

#[test]
fn mistakes_on_the_command_line_come_with_the_cure() {
    let two = "docs/tutorial/two-vms.toml";
    for (args, expected) in [
        (&["sim", two, "--fail-on-miss", "ours"][..], "did you mean `--fail-on-miss=ours`?"),
        (&["sim", two, "--report", "/nonexistent/x.html"], "there is no directory /nonexistent"),
        (&["sim", two, "--seed", "-1"], "a seed is a whole number from 0"),
        (&["sim", two, two], "is given twice"),
        (&["sim", two, "--set", "video.budget=4ms"], "did you mean `domain.video`?"),
        (
            &["report", two, "-o", "/dev/null"],
            "punctual sim docs/tutorial/two-vms.toml --report docs/tutorial/two-vms.html",
        ),
        (&["attach", two], "expected for example `attach = { libvirt = \"video\" }`"),
        (&["calibrate", two], "--write docs/tutorial/two-vms.toml"),
        (&["sweep", two, "--vary", "domain.video.budget=1ms..99ms:49ms"], "--skip-invalid leaves them out"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}: it fails before it begins");
    }
}

#[test]
fn reproduce_prints_what_ran() {
    let output = run(&["reproduce", "rt-xen", "--quick", "--no-native", "--only", "table4"]);
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", stderr(&Output { stdout: Vec::new(), ..output }));
    assert!(!said.contains("(not run)"), "{said}");
    let last = said.lines().last().expect("the counts");
    assert!(last.ends_with("not run (claims of experiments that were left out)"), "{said}");
}
