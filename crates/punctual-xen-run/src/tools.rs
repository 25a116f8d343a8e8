//! Xen's own tools: xl and xenstore.

use std::io;
use std::process::{Command, Stdio};

use crate::error::Error;

/// The standard output of a tool.
///
/// # Errors
/// It cannot be started, or it failed: with the last line of what it said.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> Result<String, Error> {
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
pub(crate) fn runs(name: &str) -> Result<bool, Error> {
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
pub(crate) fn console(domain: u32) -> Result<String, Error> {
    let listing = tool("xenstore-ls", &[&format!("/local/domain/{domain}/console")])?;
    let found = listing.lines().find_map(|line| line.strip_prefix("tty = "));
    found
        .map(|path| path.trim_matches('"').to_owned())
        .filter(|path| !path.is_empty())
        .ok_or(Error::NoConsole)
}

/// The processors of a cpupool.
///
/// # Errors
/// As [`tool`], or there is no such pool.
pub(crate) fn processors(pool: &str) -> Result<Vec<usize>, Error> {
    let line = format!("xl cpupool-list -c {pool}");
    let said = tool("xl", &["cpupool-list", "-c", pool])?;
    of_pool(&said, pool).ok_or(Error::Tool { line, said })
}

/// Of `xl cpupool-list -c`: name and processors, `0,1,2`.
fn of_pool(listing: &str, pool: &str) -> Option<Vec<usize>> {
    let line = listing.lines().find_map(|line| line.strip_prefix(pool)?.strip_prefix(' '))?;
    line.trim().split(',').map(|cpu| cpu.trim().parse().ok()).collect()
}

/// The hard affinity of a vCPU of domain 0, as `xl vcpu-pin` takes it.
///
/// # Errors
/// As [`tool`], or there is no such vCPU.
pub(crate) fn affinity(vcpu: u32) -> Result<String, Error> {
    let said = tool("xl", &["vcpu-list", "0"])?;
    hard_affinity(&said, vcpu).ok_or(Error::Tool { line: "xl vcpu-list 0".into(), said })
}

/// Of `xl vcpu-list`: name, number of the domain and of the vCPU, ..., hard and soft affinity.
fn hard_affinity(listing: &str, vcpu: u32) -> Option<String> {
    let line = listing.lines().find(|line| line.split_whitespace().nth(2) == Some(&vcpu.to_string()))?;
    let (before, _soft) = line.rsplit_once('/')?;
    before.split_whitespace().next_back().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_and_affinities_are_read_from_what_xl_prints() {
        let pools = "Name               CPU list\nPool-0             0,1\nrt                 2\n";
        assert_eq!(of_pool(pools, "Pool-0"), Some(vec![0, 1]));
        assert_eq!(of_pool(pools, "rt"), Some(vec![2]));
        assert_eq!(of_pool(pools, "Pool"), None);
        let vcpus = "Name            ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\n\
                     Domain-0         0     0    0   r--       7.2  all / all\n\
                     Domain-0         0     1    1   -b-       2.5  0,2 / all\n";
        assert_eq!(hard_affinity(vcpus, 0).as_deref(), Some("all"));
        assert_eq!(hard_affinity(vcpus, 1).as_deref(), Some("0,2"));
        assert_eq!(hard_affinity(vcpus, 2), None);
    }

    #[test]
    fn a_domain_is_found_in_what_xl_prints() {
        let listing = "Name                ID   Mem VCPUs\tState\tTime(s)\n\
                       Domain-0             0   512     1     r-----       6.2\n\
                       one                  3   160     2     -b----       0.1\n";
        assert!(is_listed(listing, "one"));
        assert!(!is_listed(listing, "on") && !is_listed(listing, "Name"));
    }
}
