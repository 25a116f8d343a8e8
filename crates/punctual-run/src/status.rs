//! What `punctual top` shows: snapshots of a run, written to every client of a Unix socket, one JSON value a
//! line.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_model::Host;
use punctual_model::index::PoolIx;
use punctual_model::results::PortDrops;
use punctual_sched::Duration;
use serde::{Deserialize, Serialize};

use crate::config::RunView;
use punctual_enforce::journal;
use punctual_enforce::session::UnitHandle;
use punctual_enforce::unit::UnitCounters;
use punctual_vm::workload::JobCounts;

/// The state of a run at one instant, or of switches that work without one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The host's name; of switches alone their networks and processes.
    pub host: String,
    /// Since the tasks started; of switches alone since they are watched.
    pub elapsed_ns: u64,
    /// By pool.
    pub pools: Vec<PoolStatus>,
    /// By vCPU.
    pub vcpus: Vec<VcpuStatus>,
    /// By domain that has deadlines.
    pub domains: Vec<DomainStatus>,
    /// By port of the run's switches, as of the last half second.
    #[serde(default)]
    pub ports: Vec<PortStatus>,
    /// By domain whose guest has sockets of this host.
    #[serde(default)]
    pub sockets: Vec<SocketsStatus>,
    /// By plane of these switches.
    #[serde(default)]
    pub planes: Vec<PlaneStatus>,
}

/// A guest's sockets of this host so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketsStatus {
    /// The domain's name.
    pub name: String,
    /// Most sockets at once.
    pub sockets_most: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Those of the last half second, for a second.
    pub calls_per_s: u64,
    /// Calls refused because the file does not allow the address.
    pub refused: u64,
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that it received.
    pub received_bytes: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// A plane of a switch so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaneStatus {
    /// Its network.
    pub network: String,
    /// Its name.
    pub name: String,
    /// Packets that it brought to their receivers.
    pub packets: u64,
    /// Processor time of it and of its uplinks' threads.
    pub processor_ns: u64,
    /// Of that, what it took in a second, by the last half.
    pub processor_ns_per_s: u64,
    /// What they may take together in each period, if that is limited.
    pub budget_ns: Option<u64>,
    /// See `budget_ns`.
    pub period_ns: Option<u64>,
    /// How often the budget was used up.
    pub exhaustions: u64,
}

/// A port of a switch so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its network.
    pub network: String,
    /// Its name.
    pub name: String,
    /// Frames that it sent.
    pub sent: u64,
    /// Those that were delivered; one to several ports counts for each.
    pub delivered: u64,
    /// Frames that it received.
    pub received: u64,
    /// Frames that it sent in a second, by the last half.
    pub sent_per_s: u64,
    /// Frames that it received in a second, by the last half.
    pub received_per_s: u64,
    /// Those of it that were dropped.
    pub dropped: PortDrops,
    /// Those of it that wait in its ring or in the switch.
    #[serde(default)]
    pub queued: u64,
    /// 99 % of its frames were at most so long inside the switch.
    pub latency_p99_ns: u64,
}

/// Deadlines of a domain so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainStatus {
    /// Its name.
    pub name: String,
    /// Its jobs; finished ones as of the guest's last report, about once a second.
    #[serde(flatten)]
    pub jobs: JobCounts,
}

/// A pool at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its policy, or the scheduler of plain Linux.
    pub policy: String,
    /// Its processors.
    pub processors: Vec<usize>,
    /// Looks of its enforcers so far.
    pub looks: u64,
    /// Processor time of its enforcers so far.
    pub enforcers_ns: u64,
}

/// Where a vCPU stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Its threads ended.
    Gone,
    /// Out of budget.
    Parked,
    /// Plain Linux schedules it.
    Linux,
    /// It could not be enforced any more; plain Linux schedules it.
    GivenUp,
    /// It may run; 0 is the most urgent.
    Rank(u64),
}

/// A vCPU at one instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuStatus {
    /// Its name.
    pub name: String,
    /// Its pool, by position.
    pub pool: usize,
    /// Whether it may run.
    pub standing: Standing,
    /// Budget left; `None` when the policy keeps none.
    pub left_ns: Option<u64>,
    /// Its budget and period, where given.
    pub budget_ns: Option<u64>,
    /// See `budget_ns`.
    pub period_ns: Option<u64>,
    /// Processor time so far.
    pub cpu_time_ns: u64,
    /// Exhaustions so far.
    pub exhaustions: u64,
    /// Replenishments so far.
    pub replenishments: u64,
    /// What it was delivered since it is under enforcement; `None` where nothing of that is known yet.
    pub delivery: Option<DeliveryStatus>,
}

/// What a vCPU was delivered so far, as of the last half second; see [`Delivery`].
///
/// [`Delivery`]: punctual_model::results::Delivery
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryStatus {
    /// Periods of its budget that passed; 0 where it has none.
    pub periods: u64,
    /// Those in which it got its whole budget, or did not want more.
    pub delivered: u64,
    /// The longest time without the processor while it was ready.
    pub longest_without_ns: u64,
    /// 99 % of its waits for the processor were at most that.
    pub wait_p99_ns: u64,
}

/// Takes a snapshot of a run of `host`. A vCPU whose thread was replaced is there once, with its present
/// thread.
pub fn snapshot(host: &Host, policy: Option<&str>, view: &RunView<'_>) -> Snapshot {
    let is_present =
        |at: usize, unit: &UnitHandle| view.units[at + 1..].iter().all(|later| later.name != unit.name);
    let present = view.units.iter().enumerate().filter(|(at, unit)| is_present(*at, unit));
    let domain = |(name, jobs): &(String, JobCounts)| DomainStatus { name: name.clone(), jobs: *jobs };
    Snapshot {
        host: host.name.clone(),
        elapsed_ns: view.elapsed.as_ns(),
        pools: (0..host.pools.len()).map(|pool| pool_status(host, PoolIx(pool), policy, view)).collect(),
        vcpus: present.map(|(_, unit)| vcpu_status(host, unit, view)).collect(),
        domains: view.jobs.iter().map(domain).collect(),
        ports: Vec::new(),
        sockets: Vec::new(),
        planes: Vec::new(),
    }
}

fn pool_status(host: &Host, ix: PoolIx, policy: Option<&str>, view: &RunView<'_>) -> PoolStatus {
    let pool = &host.pools[ix.0];
    let in_session = view.pools.iter().position(|known| *known == ix);
    let enforcers = in_session.map(|pool| view.session.enforcers(pool)).unwrap_or_default();
    PoolStatus {
        name: pool.name.clone(),
        policy: policy.unwrap_or(pool.policy.info.name).to_owned(),
        processors: pool.processors.clone(),
        looks: enforcers.iter().map(|(looks, _)| looks).sum(),
        enforcers_ns: enforcers.iter().map(|(_, cost)| cost).sum(),
    }
}

fn vcpu_status(host: &Host, unit: &UnitHandle, view: &RunView<'_>) -> VcpuStatus {
    let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let counters = &unit.counters;
    let params = host.vcpus.iter().find(|vcpu| vcpu.name == unit.name).map(|vcpu| &vcpu.params);
    VcpuStatus {
        name: unit.name.clone(),
        pool: view.pools[unit.pool].0,
        standing: match read(&counters.order) {
            UnitCounters::GONE => Standing::Gone,
            UnitCounters::PARKED => Standing::Parked,
            UnitCounters::UNMANAGED => Standing::Linux,
            UnitCounters::GIVEN_UP => Standing::GivenUp,
            rank => Standing::Rank(rank - UnitCounters::FIRST_RANK),
        },
        left_ns: Some(read(&counters.left_ns)).filter(|&left| left != u64::MAX),
        budget_ns: params.and_then(|params| params.budget).map(Duration::as_ns),
        period_ns: params.and_then(|params| params.period).map(Duration::as_ns),
        cpu_time_ns: read(&counters.cpu_time_ns),
        exhaustions: read(&counters.exhaustions),
        replenishments: read(&counters.replenishments),
        delivery: (read(&counters.periods) > 0 || read(&counters.waits) > 0).then(|| DeliveryStatus {
            periods: read(&counters.periods),
            delivered: read(&counters.delivered),
            longest_without_ns: read(&counters.longest_without_ns),
            wait_p99_ns: read(&counters.wait_p99_ns),
        }),
    }
}

/// Clients at once; a newcomer takes the place of the oldest.
const CLIENTS_MAX: usize = 16;

/// Bytes that may wait in the socket of a client, as the kernel counts them; it rounds up what is less than
/// one snapshot needs.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// What the abstract names of sockets begin with that every user of this machine may read. They have no file,
/// so nothing of them outlasts the run.
const PUBLIC: &str = "punctual/top/";

/// The run's end of the sockets: every client gets every snapshot; one that is too slow is disconnected. No
/// client can make the run wait, and no number of them takes more than 16 descriptors a socket.
#[derive(Debug)]
pub struct Publisher {
    /// For who may read the state directory.
    own: Clients,
    path: PathBuf,
    /// For everybody else, who cannot disconnect the others.
    public: Option<Clients>,
}

/// A socket with its clients.
#[derive(Debug)]
struct Clients {
    listener: UnixListener,
    connected: Vec<UnixStream>,
}

impl Publisher {
    /// Opens the socket of this process beside its journal, and the one for everybody.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn open() -> io::Result<Publisher> {
        let id = std::process::id();
        let mut publisher = Publisher::at(journal::prepare_directory()?.join(format!("{id}.socket")))?;
        let name = SocketAddr::from_abstract_name(format!("{PUBLIC}{id}"));
        publisher.public = name.and_then(|name| UnixListener::bind_addr(&name)).and_then(Clients::of).ok();
        Ok(publisher)
    }

    fn at(path: PathBuf) -> io::Result<Publisher> {
        let _ = std::fs::remove_file(&path);
        Ok(Publisher { own: Clients::of(UnixListener::bind(&path)?)?, path, public: None })
    }

    /// Writes a snapshot to every client.
    pub fn publish(&mut self, snapshot: &Snapshot) {
        let mut all: Vec<&mut Clients> =
            [Some(&mut self.own), self.public.as_mut()].into_iter().flatten().collect();
        all.iter_mut().for_each(|clients| clients.accept());
        if all.iter().all(|clients| clients.connected.is_empty()) {
            return;
        }
        let Ok(mut line) = serde_json::to_vec(snapshot) else { return };
        line.push(b'\n');
        all.iter_mut().for_each(|clients| clients.write(&line));
    }
}

impl Clients {
    fn of(listener: UnixListener) -> io::Result<Clients> {
        listener.set_nonblocking(true)?;
        Ok(Clients { listener, connected: Vec::new() })
    }

    fn accept(&mut self) {
        // Those that come faster than that wait until the next snapshot.
        for _ in 0..CLIENTS_MAX {
            let Ok((stream, _)) = self.listener.accept() else { break };
            let is_ready = stream.set_nonblocking(true).is_ok()
                && rustix::net::sockopt::set_socket_send_buffer_size(&stream, WAITING_BYTES_MAX).is_ok();
            if is_ready {
                if self.connected.len() == CLIENTS_MAX {
                    self.connected.remove(0);
                }
                self.connected.push(stream);
            }
        }
    }

    /// Writes a line. One that does not fit a client's buffer would arrive in part: it is disconnected.
    fn write(&mut self, line: &[u8]) {
        self.connected.retain_mut(|client| client.write_all(line).is_ok());
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The sockets of runs on this machine: those of the state directory, where one whose run is gone is removed.
/// Users who may not read it get the abstract names, with an `@` in front.
///
/// # Errors
/// The state directory cannot be read for another reason than the user.
pub fn running() -> io::Result<Vec<PathBuf>> {
    let files = match journal::state_files("socket") {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return public_sockets(),
        files => files?,
    };
    let mut found = Vec::new();
    for path in files {
        match UnixStream::connect(&path) {
            Ok(_) => found.push(path),
            Err(_) => drop(std::fs::remove_file(&path)),
        }
    }
    Ok(found)
}

/// The sockets that every user may read.
fn public_sockets() -> io::Result<Vec<PathBuf>> {
    let all = std::fs::read_to_string("/proc/net/unix")?;
    let names = all.lines().filter_map(|line| line.split_ascii_whitespace().last());
    let of_runs = names.filter(|name| name.strip_prefix('@').is_some_and(|name| name.starts_with(PUBLIC)));
    // A connection has the name of its listener.
    let found: BTreeSet<PathBuf> = of_runs.map(PathBuf::from).collect();
    Ok(found.into_iter().filter(|name| connect(name).is_ok()).collect())
}

/// Connects to a run by a path or an abstract name.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let Some(name) = path.to_str().and_then(|path| path.strip_prefix('@')) else {
        return UnixStream::connect(path);
    };
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // Any user can take such a name.
    let owner = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if owner.is_root() || owner == rustix::process::geteuid() {
        Ok(stream)
    } else {
        let message = format!("it belongs to user {}, who is not root", owner.as_raw());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

/// Reads the snapshots of a run until it ends or `each` returns false.
///
/// # Errors
/// The run is not there, or writes something that is not a snapshot.
pub fn follow(path: &Path, mut each: impl FnMut(Snapshot) -> bool) -> io::Result<()> {
    let mut lines = BufReader::new(connect(path)?);
    let mut line = String::new();
    loop {
        line.clear();
        // A snapshot of 65,536 vCPUs is far below this.
        let read = io::Read::take(&mut lines, 64 << 20).read_line(&mut line)?;
        if read == 0 {
            return Ok(());
        }
        let snapshot =
            serde_json::from_str(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        if !each(snapshot) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn snapshot(elapsed_ns: u64) -> Snapshot {
        let vcpu = |number| VcpuStatus {
            name: format!("vcpu{number}"),
            pool: 0,
            standing: Standing::Parked,
            left_ns: None,
            budget_ns: None,
            period_ns: None,
            cpu_time_ns: 0,
            exhaustions: 0,
            replenishments: 0,
            delivery: None,
        };
        let vcpus = (0..50).map(vcpu).collect();
        Snapshot {
            host: "test".into(),
            elapsed_ns,
            pools: Vec::new(),
            vcpus,
            domains: Vec::new(),
            ports: Vec::new(),
            sockets: Vec::new(),
            planes: Vec::new(),
        }
    }

    #[test]
    fn mute_listeners_neither_hold_up_a_run_nor_take_its_descriptors() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let mut publisher = Publisher::at(path.clone()).expect("a socket");
        let mut mute = Vec::new();
        let mut slowest = Duration::ZERO;
        for round in 0..400 {
            mute.push(UnixStream::connect(&path).expect("connected"));
            let start = Instant::now();
            publisher.publish(&snapshot(round));
            slowest = slowest.max(start.elapsed());
            assert!(publisher.own.connected.len() <= CLIENTS_MAX);
        }
        assert!(slowest < Duration::from_millis(100), "a snapshot took {slowest:?}");
        for round in 0..200 {
            publisher.publish(&snapshot(round));
        }
        assert_eq!(publisher.own.connected.len(), 0, "those that never read are gone");
        let (told, seen) = std::sync::mpsc::channel();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || follow(&path, |snapshot| told.send(snapshot.elapsed_ns).is_ok())
        });
        let arrived = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            publisher.publish(&snapshot(7));
            seen.try_recv() == Ok(7)
        });
        assert!(arrived, "one that reads gets its snapshots");
        drop((publisher, seen));
        // It ends with the run.
        let _ = reader.join();
    }
}
