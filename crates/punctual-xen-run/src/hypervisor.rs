//! What domain 0 asks of Xen: cpupools and domains by their names, and `punctual_xen::op`.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;

use punctual_guest::os::now_ns;
use punctual_linux::os::hypercall::Hypervisor;
use punctual_model::text::printable;
use punctual_xen::op::{self, Op};
use serde::Serialize;

use crate::error::Error;
use crate::own::OwnScheduler;

/// `XEN_SYSCTL_cpupool_op`, and its INFO.
const CPUPOOL_OP: u32 = 18;
const CPUPOOL_INFO: u32 = 3;
/// `XEN_SYSCTL_scheduler_op`, and its putinfo.
const SCHEDULER_OP: u32 = 19;
const PUT_INFO: u32 = 0;
/// `XEN_SCHEDULER_RTDS`, the number that Punctual's scheduler has.
const RTDS: u32 = 8;

/// A cpupool.
#[derive(Clone, Debug, Serialize)]
pub struct Cpupool {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The number of its scheduler, `XEN_SCHEDULER_*`.
    pub scheduler: u32,
}

/// A domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// How many vCPUs it has.
    pub vcpus: u32,
}

/// Xen, with the names that xl gives.
pub struct Xen {
    hypervisor: Hypervisor,
    /// Names of cpupools by their numbers: to ask for one starts a program, which takes a domain 0 with a
    /// small budget long.
    names: BTreeMap<u32, String>,
}

impl Xen {
    /// Xen below this domain 0.
    ///
    /// # Errors
    /// When there is none, or it cannot be called.
    pub fn open() -> Result<Xen, Error> {
        let opened = Hypervisor::open();
        opened.map(|hypervisor| Xen { hypervisor, names: BTreeMap::new() }).map_err(|error| {
            Error::Refused(match error.kind() {
                io::ErrorKind::NotFound => {
                    "this Linux is not the domain 0 of a Xen: no /dev/xen/privcmd".into()
                }
                _ => format!("cannot call Xen: {error}"),
            })
        })
    }

    /// All cpupools, with names that may be out of date where a number was used again.
    ///
    /// # Errors
    /// When Xen does not say.
    pub fn cpupools(&mut self) -> Result<Vec<Cpupool>, Error> {
        let mut pools: Vec<Cpupool> = Vec::new();
        loop {
            // Operation, cpupool, scheduler, domain, processor, domains; then a bitmap, which has no bits.
            let mut union = [0; 40];
            union[..4].copy_from_slice(&CPUPOOL_INFO.to_le_bytes());
            let next = pools.last().map_or(0, |pool| pool.id + 1);
            union[4..8].copy_from_slice(&next.to_le_bytes());
            match self.hypervisor.sysctl(CPUPOOL_OP, &mut union, 24, &mut []) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(pools),
                Err(error) => return Err(Error::Refused(format!("Xen does not say its cpupools: {error}"))),
            }
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| union[at + index]));
            let id = word(4);
            let name = self.names.entry(id).or_insert_with(|| pool_name(id)).clone();
            pools.push(Cpupool { id, name, scheduler: word(8) });
        }
    }

    /// The cpupool of this name or number, if Punctual schedules it.
    ///
    /// # Errors
    /// When there is none, or another scheduler has it.
    pub fn cpupool(&mut self, name: &str) -> Result<Cpupool, Error> {
        let is_it = |pool: &&Cpupool| pool.name == name || pool.id.to_string() == name;
        if let Some(pool) = self.cpupools()?.iter().find(is_it) {
            return Ok(pool.clone());
        }
        self.names.clear();
        let pools = self.cpupools()?;
        let Some(pool) = pools.iter().find(is_it) else {
            let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
            return Err(Error::Refused(format!(
                "no cpupool is called `{}`; there are {}",
                printable(name),
                names.join(", ")
            )));
        };
        Ok(pool.clone())
    }

    /// The scheduler of Xen's own that a cpupool has; `None`: Punctual's has it.
    ///
    /// # Errors
    /// There is no such pool, or its scheduler is neither Punctual's nor RTDS nor Credit.
    pub(crate) fn own_scheduler(&mut self, name: &str) -> Result<Option<OwnScheduler>, Error> {
        let pool = self.cpupool(name)?;
        let asked = self.scheduler_op(&pool, &mut Op::new(op::What::GetPool));
        match (asked, OwnScheduler::of_number(pool.scheduler)) {
            (Ok(()), _) => Ok(None),
            (Err(_), Some(own)) => Ok(Some(own)),
            (Err(error), None) => Err(error),
        }
    }

    /// How long a vCPU has run, in ns.
    ///
    /// # Errors
    /// Why Xen does not say.
    pub(crate) fn vcpu_time_ns(&mut self, domain: u32, vcpu: u32) -> Result<u64, Error> {
        let time = self.hypervisor.vcpu_time_ns(domain, vcpu);
        time.map_err(|error| {
            Error::Refused(format!("Xen does not say how long vCPU {vcpu} of domain {domain} ran: {error}"))
        })
    }

    /// How far Xen's clock is ahead of domain 0's monotonic one, in ns. The cpupool is Punctual's.
    ///
    /// # Errors
    /// As [`Xen::scheduler_op`].
    pub fn clock_ahead_ns(&mut self, pool: &Cpupool) -> Result<i64, Error> {
        let mut best = (u64::MAX, 0);
        // The shortest answer is the most exact one.
        for _ in 0..5 {
            let mut op = Op::new(op::What::GetPool);
            let before_ns = now_ns();
            self.scheduler_op(pool, &mut op)?;
            let took_ns = now_ns().saturating_sub(before_ns);
            best = best.min((took_ns, op.now_ns as i64 - (before_ns + took_ns / 2) as i64));
        }
        Ok(best.1)
    }

    /// Sends an operation to the scheduler of a cpupool.
    ///
    /// # Errors
    /// Its own words why not; that it is not Punctual's.
    pub fn scheduler_op(&mut self, pool: &Cpupool, op: &mut Op) -> Result<(), Error> {
        // cpupool, scheduler, command, nothing; then the address of the payload.
        let mut union = [0; 24];
        for (index, word) in [pool.id, RTDS, PUT_INFO].into_iter().enumerate() {
            union[index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        let mut payload = op.to_bytes();
        let done = match pool.scheduler {
            RTDS => self.hypervisor.sysctl(SCHEDULER_OP, &mut union, 16, &mut payload),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        op.answer(&payload);
        match done {
            // Xen's own RTDS takes any question, and answers none.
            Ok(()) if op.what != op::What::GetPool || !op.policy.is_empty() => Ok(()),
            Err(error) if !op.why.is_empty() => {
                Err(Error::Refused(format!("{}: {} ({error})", printable(&pool.name), printable(&op.why))))
            }
            Err(error) if pool.scheduler == RTDS => {
                Err(Error::Refused(format!("{}: Xen refuses: {error}", printable(&pool.name))))
            }
            _ => Err(Error::Refused(format!(
                "{} has another scheduler than Punctual's: boot Xen with sched=punctual (docs/xen.md)",
                printable(&pool.name)
            ))),
        }
    }
}

/// The name that libxl gave.
fn pool_name(id: u32) -> String {
    let path = format!("/local/pool/{id}/name");
    let said = Command::new("xenstore-read").arg(path).output();
    let name = said.ok().filter(|said| said.status.success());
    let name = name.map(|said| String::from_utf8_lossy(&said.stdout).trim_end().to_string());
    // Without xenstore the one that Xen makes is known.
    name.unwrap_or_else(|| format!("Pool-{id}"))
}

/// All domains, as `xl list` has them.
///
/// # Errors
/// When xl cannot be run or prints something else.
pub fn domains() -> Result<Vec<Domain>, Error> {
    let said = Command::new("xl").arg("list").output();
    let said = said.map_err(|error| Error::Refused(format!("cannot run xl list: {error}")))?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        return Err(Error::Refused(format!("xl list: {}", printable(why.trim()))));
    }
    listed(&String::from_utf8_lossy(&said.stdout))
        .ok_or_else(|| Error::Refused("xl list prints something else than expected".into()))
}

/// Name, number, memory, vCPUs and more in columns, below their titles.
fn listed(text: &str) -> Option<Vec<Domain>> {
    text.lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split_whitespace();
            let name = columns.next()?.to_string();
            let id = columns.next()?.parse().ok()?;
            Some(Domain { id, name, vcpus: columns.nth(1)?.parse().ok()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_read_from_what_xl_prints() {
        let text = "Name                ID   Mem VCPUs\tState\tTime(s)\n\
            Domain-0             0   512     1     r-----      11.3\n\
            one                  4   160     2     -b----       0.9\n";
        let domains = listed(text).unwrap();
        let seen: Vec<_> = domains.iter().map(|d| (d.name.as_str(), d.id, d.vcpus)).collect();
        assert_eq!(seen, [("Domain-0", 0, 1), ("one", 4, 2)]);
        assert!(listed("Name ID\nodd").is_none());
    }
}
