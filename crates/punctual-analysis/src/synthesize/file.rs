//! From a host file and back to one.

use std::fmt::{self, Display, Formatter};

use punctual_model::Host;
use punctual_model::file::edit::{periods, with_budgets, with_params};
use punctual_model::file::{self, Errors, Overrides};
use thiserror::Error as ThisError;

use super::chosen::Chosen;

/// The file that was written is read as another host than the one that was analysed: a fault of Punctual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("the written file is read as a different host")]
pub struct NotTheSame;

/// Why a host file cannot be searched.
#[derive(Debug)]
pub enum ReadError {
    /// The file is wrong.
    File(Errors),
    /// Periods are those of the file, and these domains have none.
    Periods(Vec<String>),
}

impl Display for ReadError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::File(errors) => f.write_str(&errors.render(false)),
            ReadError::Periods(domains) => {
                let (s, have) = if domains.len() == 1 { ("", "has") } else { ("s", "have") };
                write!(f, "domain{s} {} {have} no period, and others have one", domains.join(", "))
            }
        }
    }
}

/// Are the periods chosen that a search for budgets is given? Those of the file are kept if it has any; who
/// asks otherwise decides.
pub fn are_periods_free(bytes: &[u8], asked: Option<bool>) -> bool {
    asked.unwrap_or_else(|| {
        let (with, without) = periods(&String::from_utf8_lossy(bytes));
        with == 0 && !without.is_empty()
    })
}

/// A host file that is searched.
#[derive(Debug)]
pub struct Searched {
    /// With budgets, and periods where they are free, to start from where there are none.
    pub text: String,
    /// The host of this text with the changes.
    pub host: Host,
    /// The domains that had no budget.
    filled: Vec<String>,
}

impl Searched {
    /// Removes the budgets to start from from what was there before.
    pub fn forget_starts(&self, chosen: &mut [Chosen]) {
        for unit in chosen {
            let domain = unit.name.rsplit_once('.').map_or(&*unit.name, |(domain, _)| domain);
            if self.filled.iter().any(|filled| filled == domain) {
                unit.budget_before = None;
            }
        }
    }
}

/// The text of a host file, with budgets to start from where there are none, and its host with the changes.
/// Domains without a period get one if periods are free.
///
/// # Errors
/// Those of the file as it is; or which domains have no period, where that is all that is wrong.
pub fn read_file(
    bytes: &[u8],
    name: &str,
    overrides: &Overrides,
    free_periods: bool,
) -> Result<Searched, ReadError> {
    // Parsing refuses files that are not UTF-8.
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Some((text, filled)) = with_budgets(&text, free_periods)
        && let Ok(host) = file::parse(&text, name, overrides)
    {
        return Ok(Searched { text, host, filled });
    }
    let errors = match file::parse_bytes(bytes, name, overrides) {
        Ok(host) => return Ok(Searched { text, host, filled: Vec::new() }),
        Err(errors) => errors,
    };
    let is_read =
        with_budgets(&text, true).is_some_and(|(text, _)| file::parse(&text, name, overrides).is_ok());
    let (_, without) = periods(&text);
    let lacks_periods = !free_periods && is_read && !without.is_empty();
    Err(if lacks_periods { ReadError::Periods(without) } else { ReadError::File(errors) })
}

/// The host file `text`, which was read as `before`, with the parameters of `after`.
///
/// # Errors
/// The file would be read as another host than `after`.
pub fn write_file(text: &str, name: &str, before: &Host, after: &Host) -> Result<String, NotTheSame> {
    let file = with_params(text, name, before, after);
    // What was written is what was analysed.
    if file::parse(&file, name, &Overrides::default()).as_ref() == Ok(after) {
        Ok(file)
    } else {
        Err(NotTheSame)
    }
}
