//! From a host file and back to one.

use punctual_model::Host;
use punctual_model::file::edit::{with_budgets, with_params};
use punctual_model::file::{self, Errors, Overrides};
use thiserror::Error as ThisError;

/// The file that was written is read as another host than the one that was analysed: a fault of Punctual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error("the written file is read as a different host")]
pub struct NotTheSame;

/// The text of a host file, with budgets to start from where there are none, and its host with the changes.
/// Domains without a period get one if periods are free.
///
/// # Errors
/// Those of the file as it is.
pub fn read_file(
    bytes: &[u8],
    name: &str,
    overrides: &Overrides,
    free_periods: bool,
) -> Result<(String, Host), Errors> {
    // Parsing refuses files that are not UTF-8.
    let text = String::from_utf8_lossy(bytes).into_owned();
    if let Some(text) = with_budgets(&text, free_periods)
        && let Ok(host) = file::parse(&text, name, overrides)
    {
        return Ok((text, host));
    }
    Ok((text, file::parse_bytes(bytes, name, overrides)?))
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
