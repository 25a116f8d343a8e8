//! The files of the configuration that was valid last, kept over restarts of the service and of the machine:
//! one that starts with a broken configuration goes on with these, as a reload does.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use punctual_model::file::{ConfigFile, parse_service};
use punctual_model::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, Loaded};

/// The file's name.
const NAME: &str = "last-good.json";
/// The file is at most this long.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    name: String,
    text: String,
}

/// What a service starts with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) loaded: Loaded,
    /// Why that is not the configuration as it is now, on one line.
    pub(crate) refused: Option<String>,
}

/// Where they are kept, if anywhere.
#[derive(Debug)]
pub(crate) struct LastGood {
    path: Option<PathBuf>,
}

impl LastGood {
    /// In this directory, which is there.
    pub(crate) fn new(directory: Option<&Path>) -> LastGood {
        LastGood { path: directory.map(|directory| directory.join(NAME)) }
    }

    /// What counts at the start, on the machine with this topology.
    ///
    /// # Errors
    /// The configuration is broken, and none is kept.
    pub(crate) fn start(
        &self,
        loaded: Result<Loaded, ConfigError>,
        topology: &Topology,
    ) -> Result<Start, ConfigError> {
        match loaded {
            Ok(loaded) => Ok(Start { loaded, refused: None }),
            Err(error) => match self.load(topology) {
                Some(loaded) => Ok(Start { loaded, refused: Some(error.line()) }),
                None => Err(error),
            },
        }
    }

    /// The configuration for the machine with this topology; none where none is kept, or where this version
    /// or this machine does not take it.
    fn load(&self, topology: &Topology) -> Option<Loaded> {
        let mut bytes = Vec::new();
        File::open(self.path.as_ref()?).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let kept: Vec<Kept> = serde_json::from_slice(&bytes).ok()?;
        let file = |kept: Kept| ConfigFile { name: kept.name, bytes: kept.text.into_bytes() };
        let files: Vec<ConfigFile> = kept.into_iter().map(file).collect();
        let config = parse_service(&files, topology).ok()?;
        Some(Loaded { config, files })
    }

    /// Keeps these and no others.
    ///
    /// # Errors
    /// The file cannot be written; it is as it was.
    pub(crate) fn save(&self, files: &[ConfigFile]) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let text = |file: &ConfigFile| String::from_utf8_lossy(&file.bytes).into_owned();
        let kept = files.iter().map(|file| Kept { name: file.name.clone(), text: text(file) });
        let bytes = serde_json::to_vec(&kept.collect::<Vec<_>>())?;
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&bytes)?;
        // The machine may lose its power next.
        file.sync_all()?;
        fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_files_come_back_unless_they_are_garbage_or_the_machine_is_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let last_good = LastGood::new(Some(directory.path()));
        let two = Topology::flat(2);
        assert_eq!(last_good.load(&two), None, "nothing is kept");
        let pool = "[pool.rt]\nprocessors = [1]\npolicy = 'deferrable'\n";
        fs::write(directory.path().join("host.toml"), pool).expect("written");
        let loaded = config::load(directory.path(), &two).expect("valid");
        last_good.save(&loaded.files).expect("written");
        assert_eq!(last_good.load(&two), Some(loaded));
        assert_eq!(last_good.load(&Topology::flat(1)), None, "it has no processor 1");
        fs::write(directory.path().join(NAME), "[{}]").expect("written");
        assert_eq!(last_good.load(&two), None, "garbage");
        let nowhere = LastGood::new(None);
        nowhere.save(&[]).expect("nothing to do");
        assert_eq!(nowhere.load(&two), None);
    }
}
