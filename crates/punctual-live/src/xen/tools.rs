//! Xen's own tools: xl and xenstore.

use std::io;
use std::process::{Command, Stdio};

use super::Error;

/// The standard output of a tool.
///
/// # Errors
/// It cannot be started, or it failed: with the last line of what it said.
pub(super) fn tool(name: &str, arguments: &[&str]) -> Result<String, Error> {
    let line = || format!("{name} {}", arguments.join(" "));
    let started = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    let output = started.map_err(|source: io::Error| Error::Start { tool: name.into(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Tool { line: line(), said })
}

/// Does a domain of this name run?
///
/// # Errors
/// As [`tool`].
pub(super) fn runs(name: &str) -> Result<bool, Error> {
    Ok(is_listed(&tool("xl", &["list"])?, name))
}

/// Of `xl list`: the name is the first column.
fn is_listed(listing: &str, name: &str) -> bool {
    listing.lines().skip(1).any(|line| line.split_whitespace().next() == Some(name))
}

/// Where a domain's console is: a terminal of domain 0.
///
/// # Errors
/// As [`tool`], or there is none.
pub(super) fn console(domain: u32) -> Result<String, Error> {
    let listing = tool("xenstore-ls", &[&format!("/local/domain/{domain}/console")])?;
    let found = listing.lines().find_map(|line| line.strip_prefix("tty = "));
    found
        .map(|path| path.trim_matches('"').to_owned())
        .filter(|path| !path.is_empty())
        .ok_or(Error::NoConsole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_found_in_what_xl_prints() {
        let listing = "Name                ID   Mem VCPUs\tState\tTime(s)\n\
                       Domain-0             0   512     1     r-----       6.2\n\
                       one                  3   160     2     -b----       0.1\n";
        assert!(is_listed(listing, "one"));
        assert!(!is_listed(listing, "on") && !is_listed(listing, "Name"));
    }
}
