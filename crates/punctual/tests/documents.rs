//! Every command shown in the README and the documents is run and must print what is shown there, and so must
//! the cases in `tests/cmd`. `TRYCMD=overwrite cargo test -p punctual --test documents` writes what is
//! printed now.

use std::path::{Path, PathBuf};

#[test]
fn commands_print_what_the_documents_show() {
    // The commands name files as seen from the root of the repository.
    std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).expect("the root is there");
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .case("README.md")
        .case("docs/analysis.md")
        .case("docs/place.md")
        .case("docs/tutorial.md")
        .case("docs/tutorial-substation.md")
        .case("crates/punctual/tests/cmd/*.trycmd")
        .case("crates/punctual/tests/cmd/help/*.trycmd");
}

/// The command lines of all visible commands.
fn command_lines(parent: &clap::Command, line: &str) -> Vec<String> {
    let visible = parent.get_subcommands().filter(|command| !command.is_hide_set());
    let lines = visible.map(|command| {
        let line = format!("{line} {}", command.get_name());
        let below = command_lines(command, &line);
        std::iter::once(line).chain(below)
    });
    lines.flatten().collect()
}

#[test]
fn every_command_has_examples_and_a_snapshot_of_its_help() {
    let snapshots = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/help"));
    let mut lines = command_lines(&punctual::cli::command(), "punctual");
    lines.push("punctual".to_owned());
    for line in &lines {
        let path = snapshots.join(line.replace(' ', "-")).with_extension("trycmd");
        let snapshot = std::fs::read_to_string(&path);
        let snapshot = snapshot.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(snapshot.contains(&format!("$ {line} -h\n")), "{} lacks {line} -h", path.display());
        assert!(snapshot.contains("\nExamples:\n"), "the help of {line} has no examples");
    }
    let files = std::fs::read_dir(snapshots).expect("the snapshots").count();
    assert_eq!(files, lines.len(), "a snapshot belongs to no command");
}

#[test]
fn tutorials_show_their_host_files_whole() {
    for (host, page) in [
        (include_str!("../../../docs/tutorial/two-vms.toml"), include_str!("../../../docs/tutorial.md")),
        (
            include_str!("../../../docs/tutorial/substation.toml"),
            include_str!("../../../docs/tutorial-substation.md"),
        ),
    ] {
        assert!(page.contains(&format!("```toml\n{host}```\n")));
    }
}

/// Each crate with the crates of the project that it may depend on, as `docs/architecture.md` says.
const DIRECTION: [(&str, &[&str]); 31] = [
    ("punctual-jobs", &[]),
    ("punctual-sched", &[]),
    ("punctual-net", &["punctual-sched"]),
    ("punctual-host-stack", &["punctual-sched"]),
    ("punctual-model", &["punctual-jobs", "punctual-sched", "punctual-net", "punctual-host-stack"]),
    (
        "punctual-host-stack-sim",
        &["punctual-jobs", "punctual-sched", "punctual-host-stack", "punctual-model"],
    ),
    ("punctual-analysis", &["punctual-sched", "punctual-net", "punctual-model"]),
    ("punctual-sim", &["punctual-jobs", "punctual-sched", "punctual-net", "punctual-model"]),
    (
        "punctual-check",
        &["punctual-jobs", "punctual-sched", "punctual-model", "punctual-analysis", "punctual-sim"],
    ),
    (
        "punctual-sweep",
        &[
            "punctual-sched",
            "punctual-host-stack-sim",
            "punctual-model",
            "punctual-analysis",
            "punctual-check",
            "punctual-sim",
            "punctual-report",
        ],
    ),
    ("punctual-place", &["punctual-sched", "punctual-model", "punctual-analysis"]),
    ("punctual-guest", &["punctual-jobs"]),
    ("punctual-linux", &["punctual-sched"]),
    ("punctual-doctor", &["punctual-host-stack", "punctual-model", "punctual-linux"]),
    (
        "punctual-vm",
        &["punctual-jobs", "punctual-sched", "punctual-model", "punctual-guest", "punctual-linux"],
    ),
    (
        "punctual-enforce",
        &["punctual-sched", "punctual-model", "punctual-linux", "punctual-doctor", "punctual-scx"],
    ),
    (
        "punctual-run",
        &[
            "punctual-sched",
            "punctual-net",
            "punctual-model",
            "punctual-sim",
            "punctual-guest",
            "punctual-linux",
            "punctual-doctor",
            "punctual-vm",
            "punctual-enforce",
            "punctual-switch",
            "punctual-sockets",
        ],
    ),
    (
        "punctual-xen-run",
        &[
            "punctual-sched",
            "punctual-model",
            "punctual-guest",
            "punctual-linux",
            "punctual-vm",
            "punctual-xen",
        ],
    ),
    ("punctual-scx", &[]),
    ("punctual-waits-bpf", &[]),
    ("punctual-hold", &["punctual-sched", "punctual-model", "punctual-linux", "punctual-enforce"]),
    (
        "punctual-service",
        &[
            "punctual-sched",
            "punctual-model",
            "punctual-analysis",
            "punctual-linux",
            "punctual-enforce",
            "punctual-hold",
            "punctual-waits-bpf",
        ],
    ),
    (
        "punctual-certify",
        &[
            "punctual-sched",
            "punctual-model",
            "punctual-guest",
            "punctual-linux",
            "punctual-doctor",
            "punctual-vm",
            "punctual-service",
            "punctual-report",
        ],
    ),
    ("punctual-switch", &["punctual-sched", "punctual-net", "punctual-model"]),
    ("punctual-sockets", &["punctual-sched", "punctual-model"]),
    ("punctual-xen", &["punctual-sched"]),
    ("punctual-report", &["punctual-sched", "punctual-host-stack", "punctual-model", "punctual-sim"]),
    (
        "punctual-python",
        &[
            "punctual-sched",
            "punctual-host-stack-sim",
            "punctual-model",
            "punctual-analysis",
            "punctual-check",
            "punctual-place",
            "punctual-sim",
            "punctual-sweep",
            "punctual-report",
            "punctual-reproduce",
        ],
    ),
    ("punctual-testkit", &["punctual-jobs", "punctual-sched", "punctual-model"]),
    (
        "punctual-reproduce",
        &[
            "punctual-sched",
            "punctual-net",
            "punctual-host-stack-sim",
            "punctual-model",
            "punctual-analysis",
            "punctual-sim",
            "punctual-linux",
            "punctual-doctor",
            "punctual-vm",
            "punctual-enforce",
            "punctual-run",
            "punctual-xen-run",
            "punctual-switch",
            "punctual-sockets",
            "punctual-report",
        ],
    ),
    (
        "punctual",
        &[
            "punctual-sched",
            "punctual-host-stack",
            "punctual-host-stack-sim",
            "punctual-net",
            "punctual-model",
            "punctual-analysis",
            "punctual-certify",
            "punctual-check",
            "punctual-sweep",
            "punctual-place",
            "punctual-sim",
            "punctual-linux",
            "punctual-doctor",
            "punctual-vm",
            "punctual-enforce",
            "punctual-run",
            "punctual-hold",
            "punctual-service",
            "punctual-xen-run",
            "punctual-guest",
            "punctual-switch",
            "punctual-sockets",
            "punctual-xen",
            "punctual-report",
            "punctual-reproduce",
        ],
    ),
];

#[test]
fn dependencies_point_one_way() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let directories = std::fs::read_dir(crates).expect("the crates").count();
    assert_eq!(
        directories,
        DIRECTION.len(),
        "a crate is missing in the direction and in docs/architecture.md"
    );
    for (name, allowed) in DIRECTION {
        let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).expect("a manifest");
        let (_, dependencies) = manifest.split_once("\n[dependencies]\n").expect("a table of dependencies");
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines().filter(|line| line.starts_with("punctual")) {
            let on = line.split(['.', ' ', '=']).next().unwrap_or_default();
            assert!(allowed.contains(&on), "{name} must not depend on {on}");
        }
    }
}

/// Without automatic tests, a file that `tests/it.rs` does not name is never compiled.
#[test]
fn every_file_of_tests_is_compiled() {
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    for (name, _) in DIRECTION {
        let read = |path: &str| std::fs::read_to_string(crates.join(name).join(path));
        let manifest = read("Cargo.toml").expect("a manifest");
        if !manifest.contains("\nautotests = false\n") {
            continue;
        }
        let root = read("tests/it.rs").expect("a program of tests");
        for entry in std::fs::read_dir(crates.join(name).join("tests")).expect("tests") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            let named = manifest.contains(&format!("[[test]]\nname = \"{stem}\"\n"));
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            assert!(
                !is_rust || named || root.contains(&format!("mod {stem};\n")),
                "crates/{name}/tests/it.rs lacks `mod {stem};`"
            );
        }
    }
}

/// Paths that a document names: targets of links, and paths of the repository in code style.
fn named_paths(directory: &Path, text: &str) -> Vec<PathBuf> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let links = links.map(|link| directory.join(link.split('#').next().unwrap_or_default()));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let code = text.split('`').skip(1).step_by(2);
    let is_path = |code: &&str| {
        let known = [
            "crates/",
            "docs/",
            "examples/",
            "labs/",
            "measurements/",
            "packaging/",
            "papers/",
            "schema/",
            "scripts/",
        ];
        known.iter().any(|start| code.starts_with(start))
            && !code.contains([' ', '*', '\n'])
            && !code.contains("NAME")
    };
    links.chain(code.filter(is_path).map(|path| root.join(path))).collect()
}

#[test]
fn every_path_that_a_document_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let others = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "measurements/README.md"];
    let docs = std::fs::read_dir(root.join("docs"))
        .expect("the documents")
        .map(|entry| entry.expect("an entry").path());
    let documents = docs
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .chain(others.map(|path| root.join(path)));
    for document in documents {
        // Fences have three marks and would upset the pairs of code marks.
        let text = std::fs::read_to_string(&document).expect("text").replace("```", "");
        let directory = document.parent().expect("a directory");
        for path in named_paths(directory, &text) {
            assert!(path.exists(), "{} names {}", document.display(), path.display());
        }
    }
}
