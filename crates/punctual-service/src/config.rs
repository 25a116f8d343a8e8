//! The files of the configuration: `host.toml` and `host.d/*.toml` of a directory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use punctual_model::file::{ConfigFile, ErrorRecord, Errors, parse_service};
use punctual_model::host::Pool;
use punctual_model::service::ServiceConfig;
use punctual_model::text::printable;
use punctual_model::topology::Topology;

use crate::topology;

/// The directory of an installed service.
pub const DIRECTORY: &str = "/etc/punctual";

/// Longer files are refused by the parser.
const READ_MAX: u64 = (16 << 20) + 1;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file is wrong.
    #[error("{0}")]
    Broken(Errors),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", printable(&path.to_string_lossy()))]
    Unreadable { path: PathBuf, source: io::Error },
}

impl ConfigError {
    /// The first error of a file that is wrong.
    pub fn first(&self) -> Option<ErrorRecord> {
        match self {
            ConfigError::Broken(errors) => errors.records().into_iter().next(),
            ConfigError::Unreadable { .. } => None,
        }
    }

    /// The error on one line: file, line, what is wrong.
    pub fn line(&self) -> String {
        match self.first() {
            Some(ErrorRecord { file: Some(file), line, message, expected, .. }) => {
                format!("{file}:{line}: {message}, {expected}")
            }
            _ => self.to_string(),
        }
    }
}

/// A configuration, and the files that it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub config: ServiceConfig,
    pub files: Vec<ConfigFile>,
}

/// Reads the configuration in `directory`, for the machine with this topology. Files that are not there say
/// nothing.
///
/// # Errors
/// All that is wrong with the files, or why one cannot be read.
pub fn load(directory: &Path, topology: &Topology) -> Result<Loaded, ConfigError> {
    let mut paths = vec![directory.join("host.toml")];
    let more = directory.join("host.d");
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        |source| ConfigError::Unreadable { path, source }
    };
    match fs::read_dir(&more) {
        Ok(entries) => {
            let entries = entries.collect::<Result<Vec<_>, _>>().map_err(unreadable(&more))?;
            let files = entries.into_iter().map(|entry| entry.path());
            let is_visible = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                name.ends_with(".toml") && !name.starts_with('.')
            };
            let mut files: Vec<PathBuf> = files.filter(is_visible).collect();
            files.sort();
            paths.extend(files);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(unreadable(&more)(source)),
    }
    let mut files = Vec::new();
    for path in paths {
        let mut bytes = Vec::new();
        match File::open(&path).and_then(|file| file.take(READ_MAX).read_to_end(&mut bytes)) {
            Ok(_) => files.push(ConfigFile { name: path.display().to_string(), bytes }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(unreadable(&path)(source)),
        }
    }
    let config = parse_service(&files, topology).map_err(ConfigError::Broken)?;
    Ok(Loaded { config, files })
}

/// As [`load`], for a service that has these `pools` on a machine that was as `topology` says when they were
/// chosen. They stay where they are while the files say the same of pools and slots; otherwise the machine
/// below `root` is read again.
///
/// # Errors
/// As [`load`]; `topology` stays.
pub(crate) fn reload(
    directory: &Path,
    root: &Path,
    topology: &mut Topology,
    pools: &[Pool],
) -> Result<Loaded, ConfigError> {
    let as_before = load(directory, topology);
    if as_before.as_ref().is_ok_and(|loaded| loaded.config.pools == pools) {
        return as_before;
    }
    let Ok(now) = topology::read(root) else { return as_before };
    let loaded = load(directory, &now)?;
    *topology = now;
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_stays_until_the_files_say_something_else_of_pools() {
        let directory = tempfile::tempdir().expect("a directory");
        let (root, etc) = (directory.path().join("root"), directory.path().join("etc"));
        let cpus = root.join("sys/devices/system/cpu");
        fs::create_dir_all(&cpus).expect("made");
        fs::create_dir(&etc).expect("made");
        let isolate = |list: &str| fs::write(cpus.join("isolated"), list).expect("written");
        let write = |text: String| fs::write(etc.join("host.toml"), text).expect("written");
        fs::write(cpus.join("present"), "0-3\n").expect("written");
        isolate("2\n");
        let pool = |count| format!("[pool.rt]\nprocessors = {{ count = {count} }}\npolicy = 'deferrable'\n");
        write(pool(1));
        let mut topology = topology::read(&root).expect("a machine");
        let mut pools = load(&etc, &topology).expect("valid").config.pools;
        let mut reload = || {
            let loaded = reload(&etc, &root, &mut topology, &pools)?;
            pools = loaded.config.pools.clone();
            Ok::<_, ConfigError>((pools[0].processors.clone(), loaded.config.classes.len()))
        };
        // The machine changes, and a class comes.
        isolate("3\n");
        assert_eq!(reload().expect("valid"), (vec![2], 0));
        write(pool(1) + "[class.a]\nmatch = [{ name = 'a' }]\nbest_effort = true\n");
        assert_eq!(reload().expect("valid"), (vec![2], 1));
        write(pool(5));
        let error = reload().expect_err("too many").line();
        let expected =
            "host.toml:2: pool rt wants 5 processors, and 4 are there, expected at most 4: 0-3 free";
        assert!(error.ends_with(expected), "{error}");
        write(pool(1));
        assert_eq!(reload().expect("valid"), (vec![2], 0));
        write(pool(2));
        assert_eq!(reload().expect("valid"), (vec![1, 3], 0));
    }

    #[test]
    fn files_count_in_their_order_and_may_be_missing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path();
        assert_eq!(load(path, &Topology::flat(1)).expect("nothing"), Loaded::default());
        fs::create_dir(path.join("host.d")).expect("made");
        let class = |name: &str| format!("[class.{name}]\nmatch = [{{ name = '*' }}]\n");
        fs::write(path.join("host.d/20-b.toml"), class("b")).expect("written");
        fs::write(path.join("host.d/10-a.toml"), class("a")).expect("written");
        fs::write(path.join("host.d/.10-a.toml.swp"), "garbage").expect("written");
        fs::write(path.join("host.d/.hidden.toml"), "garbage").expect("written");
        fs::write(path.join("host.toml"), class("main")).expect("written");
        let names: Vec<String> = load(path, &Topology::flat(1))
            .expect("valid")
            .config
            .classes
            .into_iter()
            .map(|class| class.name)
            .collect();
        assert_eq!(names, ["main", "a", "b"]);
        fs::write(path.join("host.d/30-c.toml"), class("a")).expect("written");
        let error = load(path, &Topology::flat(1)).expect_err("twice");
        let line = error.line();
        assert!(line.contains("host.d/30-c.toml:1: [class.a] is there twice, expected it once"), "{line}");
        assert!(line.contains("host.d/10-a.toml, line 1 first"), "{line}");
        fs::create_dir(path.join("host.d/40-d.toml")).expect("made");
        assert!(
            load(path, &Topology::flat(1)).expect_err("a directory").to_string().starts_with("cannot read ")
        );
    }
}
