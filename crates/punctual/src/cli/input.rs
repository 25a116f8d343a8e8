//! Which hosts to run: a file and the options that change it.

use std::io::Read;
use std::path::{Path, PathBuf};

use punctual_host_stack::HostStack;
use punctual_model::file::{self, Errors, OtherOverheads, Overrides};
use punctual_model::{AnyHost, Host};
use punctual_report::Column;
use punctual_sched::{Duration, registry};

use super::error::Error;

/// Greatest size of a host file in bytes; the parser's own limit is lower.
const HOST_BYTES_MAX: u64 = 64 << 20;

/// Greatest size of a file with results in bytes: those of 10,000 vCPUs have about 100 MB.
const RESULTS_BYTES_MAX: u64 = 1 << 30;

/// Simulations whose results are held at once before they are merged.
pub(super) const CHUNK: usize = 256;

/// Greatest value of `--runs`.
pub(super) const RUNS_MAX: i64 = 1_000_000;

/// Greatest value of `--threads`.
pub(super) const THREADS_MAX: i64 = 1024;

/// Options that change a host file before it is validated.
#[derive(clap::Args, Debug)]
pub(super) struct Changes {
    /// Change a key of the host file; `*` matches every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Length of the run, for example 10s or 500ms, instead of the file's `duration`.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,
}

impl Changes {
    /// The changes as overrides of the model's parser.
    pub(super) fn overrides(&self, policy: Option<String>) -> Overrides {
        Overrides {
            overheads: None,
            policy,
            set: self.set.clone(),
            seed: self.seed,
            duration: self.duration.clone(),
        }
    }
}

/// What scheduling costs, instead of what the host file says.
#[derive(clap::Args, Debug)]
pub(super) struct Costs {
    /// What scheduling costs: [machine.overheads] of this file, into which `punctual calibrate --write` has
    /// put them, or published costs by their name, xen-4.0 or xen-4.0-p99.
    #[arg(long, value_name = "FILE|NAME", value_parser = OtherOverheads::read)]
    pub overheads: Option<OtherOverheads>,
}

impl Costs {
    /// The file that the costs are read from.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match &self.overheads {
            Some(OtherOverheads::File { name, .. }) => Some(name.into()),
            _ => None,
        }
    }

    /// The changes together with these costs.
    pub(super) fn overrides(&self, changes: &Changes, policy: Option<String>) -> Overrides {
        Overrides { overheads: self.overheads.clone(), ..changes.overrides(policy) }
    }
}

/// The policies to compare.
#[derive(clap::Args, Debug)]
pub(super) struct Policies {
    /// Schedule every pool by this policy instead of the file's. Several policies (repeated or separated
    /// by commas) are compared side by side; `all` is every policy.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = PolicyName { or_all: true })]
    pub policy: Vec<String>,
}

/// Names of policies for help and completion. `pool=policy` and unknown names pass: the model checks them.
#[derive(Clone)]
pub(super) struct PolicyName {
    /// Is `all` accepted as every policy?
    pub or_all: bool,
}

impl clap::builder::TypedValueParser for PolicyName {
    type Value = String;

    fn parse_ref(
        &self,
        cmd: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        clap::builder::NonEmptyStringValueParser::new().parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = clap::builder::PossibleValue> + '_>> {
        let names =
            registry::policies().iter().map(|p| clap::builder::PossibleValue::new(p.name).help(p.summary));
        let all = clap::builder::PossibleValue::new(ALL).help("Every policy");
        Some(Box::new(names.chain(self.or_all.then_some(all))))
    }
}

/// `--policy all`.
const ALL: &str = "all";

impl Policies {
    /// The choices one by one, each name once; `None` is the file's own policy.
    pub(super) fn choices(&self) -> Vec<Option<String>> {
        let mut choices: Vec<Option<String>> = Vec::new();
        let named = self.policy.iter().flat_map(|name| match name.as_str() {
            ALL => registry::policies().iter().map(|p| p.name.to_string()).collect(),
            _ => vec![name.clone()],
        });
        for name in named.map(Some) {
            if !choices.contains(&name) {
                choices.push(name);
            }
        }
        if choices.is_empty() { vec![None] } else { choices }
    }

    /// May a policy be left out that this host cannot use?
    pub(super) fn all(&self) -> bool {
        self.policy.iter().any(|name| name == ALL)
    }
}

/// The label of results.
#[derive(clap::Args, Debug)]
pub(super) struct Label {
    /// Label for the results in comparisons; it is stored with them. Of several results, each label is
    /// followed by the file or policy.
    #[arg(long = "label", value_name = "NAME")]
    pub name: Option<String>,
}

impl Label {
    /// The name of one result, which is otherwise called `own`.
    pub(super) fn of(&self, own: &str, has_others: bool) -> String {
        match &self.name {
            Some(label) if has_others => format!("{label} {own}"),
            Some(label) => label.clone(),
            None => own.to_owned(),
        }
    }

    /// Stores the label in results, if one was given.
    pub(super) fn keep(&self, column: &mut Column) {
        column.results.label = self.name.is_some().then(|| column.label.clone());
    }
}

/// A host file's bytes, read once.
pub(super) struct HostFile {
    /// Its name in errors.
    pub name: String,
    bytes: Vec<u8>,
}

impl HostFile {
    /// Reads the file; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or is JSON.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let (name, bytes) = read(path, HOST_BYTES_MAX)?;
        // No TOML file begins with these characters.
        if matches!(begin(&bytes), [Some(b'{'), _] | [Some(b'['), Some(b'{' | b']')]) {
            let what = "a host file, found JSON; results are for `punctual report` and `punctual compare`";
            return Err(Error::Usage(format!("{name}:1:1: expected {what}")));
        }
        Ok(HostFile { name, bytes })
    }

    /// As the source of a grid.
    pub(super) fn into_source(self) -> punctual_sweep::Source {
        let HostFile { name, bytes } = self;
        punctual_sweep::Source { name, bytes }
    }

    /// Its text; parsing has refused files that are not UTF-8.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Several files.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<Self>, Error> {
        paths.iter().map(|path| HostFile::read(path)).collect()
    }

    /// What is in it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file's host with the changes, where it has pools.
    ///
    /// # Errors
    /// All that is wrong with the file or the changes; the host has `host_stack`.
    pub(super) fn host(&self, overrides: &Overrides) -> Result<Host, Errors> {
        file::parse_bytes(&self.bytes, &self.name, overrides)
    }

    /// The file's host with the changes, where it has `host_stack`.
    ///
    /// # Errors
    /// All that is wrong with the file or the changes; the host has pools.
    pub(super) fn host_stack(&self, overrides: &Overrides) -> Result<HostStack, Errors> {
        file::parse_host_stack(&self.bytes, &self.name, overrides)
    }

    /// The file's host with the changes, of either kind.
    ///
    /// # Errors
    /// All that is wrong with the file or the changes.
    pub(super) fn any_host(&self, overrides: &Overrides) -> Result<AnyHost, Errors> {
        AnyHost::parse_bytes(&self.bytes, &self.name, overrides)
    }
}

/// The first two characters of a text that are not white space.
fn begin(text: &[u8]) -> [Option<u8>; 2] {
    let mut characters = text.iter().copied().filter(|byte| !byte.is_ascii_whitespace());
    [characters.next(), characters.next()]
}

/// The name in errors and the bytes of each file of another program, in whatever format; `-` is standard
/// input.
///
/// # Errors
/// When one cannot be read.
pub(super) fn read_foreign(paths: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    paths.iter().map(|path| read(path, HOST_BYTES_MAX)).collect()
}

/// A file with what `--json` printed, and its name in errors; `-` is standard input.
///
/// # Errors
/// When it cannot be read, or is not JSON.
pub(super) fn read_text(path: &Path) -> Result<(String, String), Error> {
    let (name, bytes) = read(path, RESULTS_BYTES_MAX)?;
    // A table of TOML begins with a bracket, too.
    let is_json = match begin(&bytes) {
        [Some(b'['), second] => !second.is_some_and(|second| second.is_ascii_alphabetic()),
        [first, _] => first == Some(b'{'),
    };
    if !is_json {
        let what = "JSON, as commands of Punctual print it with `--json`";
        let host = match name.strip_suffix(".toml") {
            Some(stem) => format!(
                "; this is a host file: `punctual sim {name} --report {stem}.html` simulates and shows it"
            ),
            None => String::new(),
        };
        return Err(Error::Usage(format!("{name}:1:1: expected {what}{host}")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok((name, text)),
        Err(_) => Err(Error::Usage(format!("cannot read {name}: it is not UTF-8"))),
    }
}

/// The name of a file in errors, and its first `bytes_max` bytes.
fn read(path: &Path, bytes_max: u64) -> Result<(String, Vec<u8>), Error> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    let read = if is_stdin {
        std::io::stdin().take(bytes_max).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|f| f.take(bytes_max).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok((name, bytes)),
        Err(e) => Err(Error::Usage(format!("cannot read {name}: {e}{}", instead_of(&name, &e)))),
    }
}

/// What a file was probably meant to be that is not there.
fn instead_of(name: &str, error: &std::io::Error) -> String {
    let whose = <Whose as clap::ValueEnum>::from_str(name, false);
    match whose {
        Ok(_) if error.kind() == std::io::ErrorKind::NotFound => {
            format!("\n  did you mean `--fail-on-miss={name}`? The value needs the `=`")
        }
        _ => String::new(),
    }
}

/// A seed on the command line.
fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// A time on the command line.
///
/// # Errors
/// What was expected.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    file::parse_duration(text).map_err(|expected| format!("expected {expected}"))
}

/// A time of at least 1 us on the command line.
///
/// # Errors
/// What was expected.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    match time(text)? {
        time if time.as_ns() >= 1_000 => Ok(time),
        _ => Err("expected at least 1us".into()),
    }
}

/// Number of threads: `--threads`, or the machine's processors.
///
/// # Errors
/// When the threads cannot be started.
pub(super) fn thread_pool(threads: Option<u16>) -> Result<rayon::ThreadPool, Error> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0).into())
        .build()
        .map_err(|e| Error::Usage(format!("cannot start threads: {e}")))
}

/// Which missed deadlines are a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Whose {
    /// All.
    Any,
    /// Those of jobs that met no disturbance of the machine.
    Ours,
}
