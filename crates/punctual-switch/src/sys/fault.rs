//! Pages of a VM's memory that are not there: the file was shortened, or its file system is full.
//!
//! Linux sends `SIGBUS` to the thread that touches such a page, which ends the process. The switch registers
//! the mappings of VMs. A handler puts a page of zeros where a registered mapping has none, and marks the
//! mapping; the instruction goes on there. Planes look at [`faults`] after each step and take the port out of
//! service. A page of zeros is not shared with the VM, so a marked mapping is of no use.
//!
//! Any other `SIGBUS` has the effect that it had before.

#![expect(unsafe_code, reason = "a signal handler")]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::limits::PORTS_MAX;
use crate::protocol::REGIONS_MAX;

/// Mappings at once: each port's, and as many that are about to be unmapped.
const MAPPINGS_MAX: usize = 2 * PORTS_MAX * REGIONS_MAX;

/// The start of a place in [`MAPPINGS`] without a mapping, and of one that is being filled.
const FREE: usize = 0;
const TAKEN: usize = 1;

struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    page_bytes: AtomicUsize,
    has_faulted: AtomicBool,
}

static MAPPINGS: [Place; MAPPINGS_MAX] = [const {
    Place {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        has_faulted: AtomicBool::new(false),
    }
}; MAPPINGS_MAX];

/// No place from here on was ever used.
static PLACES_USED: AtomicUsize = AtomicUsize::new(0);

static FAULTS: AtomicU32 = AtomicU32::new(0);

/// What `SIGBUS` did before.
static FORMER: OnceLock<libc::sigaction> = OnceLock::new();

/// How often a page of a registered mapping was not there.
#[inline]
pub(crate) fn faults() -> u32 {
    FAULTS.load(Ordering::Relaxed)
}

/// A registered mapping. It must be dropped before the mapping ends.
#[derive(Debug)]
pub(crate) struct Watched(usize);

impl Watched {
    /// Registers a mapping whose file has pages of `page_bytes` bytes, a power of two.
    ///
    /// # Errors
    /// When too many are registered, or the handler cannot be installed.
    pub(crate) fn new(start: usize, bytes: usize, page_bytes: usize) -> io::Result<Watched> {
        install()?;
        let claim = |place: &Place| {
            place.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let at = MAPPINGS.iter().position(claim);
        let at = at.ok_or_else(|| io::Error::other("too many memory regions of VMs"))?;
        let place = &MAPPINGS[at];
        place.end.store(start.saturating_add(bytes), Ordering::Relaxed);
        place.page_bytes.store(page_bytes, Ordering::Relaxed);
        place.has_faulted.store(false, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        PLACES_USED.fetch_max(at + 1, Ordering::AcqRel);
        Ok(Watched(at))
    }

    /// Was a page of it not there?
    pub(crate) fn has_faulted(&self) -> bool {
        MAPPINGS[self.0].has_faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        MAPPINGS[self.0].start.store(FREE, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    if FORMER.get().is_some() {
        return Ok(());
    }
    // SAFETY: an all-zero `sigaction` is valid, and the kernel writes the current one into it.
    let mut former: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above; a null pointer changes nothing.
    if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut former) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if FORMER.set(former).is_err() {
        // Another thread installs it.
        return Ok(());
    }
    let mut own = former;
    own.sa_sigaction = on_bus_error as *const () as usize;
    own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler has the signature that `SA_SIGINFO` requires, and calls only what a handler may
    // call.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const own, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid pointer; the address is one of a fault if the code is positive.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the location of this thread's `errno`, which the interrupted code may be about to read.
    let errno = unsafe { *libc::__errno_location() };
    let is_repaired = code > 0 && find(address).is_some_and(|place| repair(place, address));
    if !is_repaired && let Some(former) = FORMER.get() {
        // SAFETY: `former` came from the kernel. The instruction faults again with it; a signal that was sent
        // by a process is sent again.
        unsafe {
            libc::sigaction(signal, former, std::ptr::null_mut());
            if code <= 0 {
                libc::raise(signal);
            }
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The mapping that holds an address.
fn find(address: usize) -> Option<&'static Place> {
    let used = &MAPPINGS[..PLACES_USED.load(Ordering::Acquire).min(MAPPINGS_MAX)];
    used.iter().find(|place| {
        let start = place.start.load(Ordering::Acquire);
        let is_within = start > TAKEN && (start..place.end.load(Ordering::Acquire)).contains(&address);
        // Another thread may reuse the place meanwhile; this mapping stays while it is touched.
        is_within && place.start.load(Ordering::Acquire) == start
    })
}

/// Puts a page of zeros at an address, and marks its mapping.
fn repair(place: &Place, address: usize) -> bool {
    let bytes = place.page_bytes.load(Ordering::Relaxed);
    let page = std::ptr::without_provenance_mut(address & !(bytes - 1));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the page is within a mapping of a VM's memory that this process made and that is accessed only
    // through volatile pointers; nothing relies on its content. `mmap` is a plain system call here.
    let mapped = unsafe { libc::mmap(page, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    place.has_faulted.store(true, Ordering::Relaxed);
    FAULTS.fetch_add(1, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;

    use vm_memory::{FileOffset, MmapRegion, VolatileMemory};

    use super::*;

    const PAGE_BYTES: usize = 4096;

    /// Eight pages of a file that is then shortened to one.
    fn shortened() -> MmapRegion {
        let file = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let file = File::from(file);
        file.set_len(8 * PAGE_BYTES as u64).expect("long enough");
        let other = file.try_clone().expect("a descriptor");
        let map = MmapRegion::from_file(FileOffset::new(file, 0), 8 * PAGE_BYTES).expect("mapped");
        other.set_len(PAGE_BYTES as u64).expect("shortened");
        map
    }

    fn read(map: &MmapRegion, at: usize) -> u8 {
        map.get_ref::<u8>(at).expect("within").load()
    }

    #[test]
    fn a_page_that_is_not_there_reads_as_zeros_and_marks_its_mapping() {
        let [map, other] = [shortened(), shortened()];
        let watch =
            |map: &MmapRegion| Watched::new(map.as_ptr().addr(), map.size(), PAGE_BYTES).expect("a place");
        let [watched, beside] = [watch(&map), watch(&other)];
        let before = faults();
        assert_eq!((read(&map, 0), watched.has_faulted()), (0, false), "the first page is there");
        map.get_ref::<u64>(5 * PAGE_BYTES + 8).expect("within").store(7);
        assert_eq!((read(&map, 5 * PAGE_BYTES + 8), watched.has_faulted()), (7, true));
        assert!(faults() > before && !beside.has_faulted());
        drop((watched, beside));
        let again = watch(&other);
        assert!(!again.has_faulted(), "a place forgets");
    }

    /// The child is this test again. Its fault is in no registered mapping, or the signal comes from outside.
    #[test]
    fn any_other_bus_error_ends_the_process() {
        const CHILD: &str = "PUNCTUAL_SWITCH_FAULT";
        let name = "sys::fault::tests::any_other_bus_error_ends_the_process";
        if let Ok(kind) = std::env::var(CHILD) {
            let [map, other] = [shortened(), shortened()];
            let _watched = Watched::new(map.as_ptr().addr(), map.size(), PAGE_BYTES).expect("a place");
            if kind == "fault" {
                read(&other, 5 * PAGE_BYTES);
            } else {
                // The handler of Rust's standard library sets the default action the first time, and returns.
                // A second signal is lost while the first one is pending.
                let this = rustix::process::getpid();
                for _ in 0..1_000 {
                    rustix::process::kill_process(this, rustix::process::Signal::BUS).expect("sent");
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            return;
        }
        for kind in ["fault", "sent"] {
            let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
            let child = child.args(["--exact", name]).env(CHILD, kind);
            let status = child.output().expect("a child").status;
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{kind}: {status}");
        }
    }
}
