//! The programs in the running kernel.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, RingBuffer,
    RingBufferBuilder,
};

use crate::interface::{Mark, Settings, Story, Sum, THREADS_MAX, Tally, Thread};
use crate::layout;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waits.bpf.o"));

/// The program that counts how often vCPUs spin. The others are needed.
const ON_SPIN: &str = "on_spin";

/// Why the programs are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no types (BTF) that the programs could be adapted to.
    #[error("the kernel is built without its types (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF)")]
    NoTypes,
    /// This process may not.
    #[error("CAP_BPF and CAP_PERFMON are needed, which punctuald.service has")]
    NotPermitted,
    /// The kernel does not take them.
    #[error("the kernel does not take the programs: {source}{said}")]
    Load {
        /// What the system says.
        source: libbpf_rs::Error,
        /// The last line of what the loader says, after a colon.
        said: String,
    },
}

/// The programs in the running kernel. They end when this is dropped, or its process ends.
pub struct Loaded {
    /// Dropped first.
    links: Vec<Link>,
    _object: Object,
    ring: RingBuffer<'static>,
    heard: Arc<Mutex<Vec<Story>>>,
    maps: Maps,
    spins: Spins,
    /// Of each watched thread its slot; slots that are free.
    slots: HashMap<u32, u32>,
    threads: Vec<Option<u32>>,
    free: Vec<u32>,
    generation: u32,
}

/// Is it counted how often vCPUs spin?
enum Spins {
    Counted,
    /// KVM is not loaded.
    NoKvm,
    /// Why not.
    Refused(String),
}

struct Maps {
    watched: MapHandle,
    threads: MapHandle,
    marks: MapHandle,
    processors: MapHandle,
    ran: MapHandle,
    spins: MapHandle,
    run: MapHandle,
    generation: MapHandle,
    sums: [MapHandle; 2],
    stories: MapHandle,
}

impl Debug for Loaded {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Loaded { slots, generation, .. } = self;
        out.debug_struct("Loaded")
            .field("slots", slots)
            .field("generation", generation)
            .finish_non_exhaustive()
    }
}

/// All sums are read by one system call: a full bucket ends a batch early, which the iterator takes for the
/// end.
const BATCH: u32 = 32 * 1024;
/// What the loader said.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Bytes of it at most.
const SAID_MAX: usize = 100_000;

fn hear(_level: PrintLevel, text: String) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() + text.len() <= SAID_MAX {
        said.push_str(&text);
    }
}

fn failed(source: libbpf_rs::Error) -> Error {
    let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied && !said.contains("processed") {
        return Error::NotPermitted;
    }
    // The kernel's reason is before its statistics.
    let lines: Vec<&str> = said.lines().collect();
    let end = lines.iter().rposition(|line| line.starts_with("processed")).unwrap_or(lines.len());
    let last = lines[..end].last().map_or("", |line| line.trim());
    let said = if last.is_empty() { String::new() } else { format!(": {last}") };
    Error::Load { source, said }
}

fn open(settings: &Settings) -> Result<OpenObject, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
    let processors = libbpf_rs::num_possible_cpus()?;
    for mut map in open.maps_mut() {
        if map.name() == ".rodata.settings" {
            map.set_initial_value(&layout::settings_bytes(settings))?;
        } else if map.name() == "processors" {
            map.set_max_entries(u32::try_from(processors).unwrap_or(u32::MAX))?;
        }
    }
    Ok(open)
}

impl Maps {
    fn of(object: &Object) -> Result<Maps, libbpf_rs::Error> {
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            let missing = || libbpf_rs::Error::from(io::Error::other(format!("there is no map {name}")));
            found.ok_or_else(missing).and_then(|map| MapHandle::try_from(&map))
        };
        Ok(Maps {
            watched: map("watched")?,
            threads: map("threads")?,
            marks: map("marks")?,
            processors: map("processors")?,
            ran: map("ran")?,
            spins: map("spins")?,
            run: map(".data.run")?,
            generation: map(".data.generation")?,
            sums: [map("sums_even")?, map("sums_odd")?],
            stories: map("stories")?,
        })
    }
}

impl Loaded {
    /// Loads the programs into the running kernel.
    ///
    /// # Errors
    /// The kernel does not take them, or this process may not.
    pub fn load(settings: &Settings) -> Result<Loaded, Error> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(Error::NoTypes);
        }
        libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
        let object = open(settings).and_then(OpenObject::load).map_err(failed)?;
        let maps = Maps::of(&object).map_err(failed)?;
        let heard: Arc<Mutex<Vec<Story>>> = Arc::default();
        let mut ring = RingBufferBuilder::new();
        let listener = Arc::clone(&heard);
        let listen = move |bytes: &[u8]| {
            listener.lock().unwrap_or_else(PoisonError::into_inner).extend(layout::story_of(bytes));
            0
        };
        ring.add(&maps.stories, listen).map_err(failed)?;
        let ring = ring.build().map_err(failed)?;
        let (mut links, mut spins) = (Vec::new(), Spins::NoKvm);
        for program in object.progs_mut() {
            let is_of_kvm = program.name() == ON_SPIN;
            if is_of_kvm && !Path::new("/sys/module/kvm").exists() {
                continue;
            }
            match program.attach() {
                Ok(link) => {
                    links.push(link);
                    spins = if is_of_kvm { Spins::Counted } else { spins };
                }
                // The kernel has no kprobes, is locked down, or permits them to other capabilities than those
                // that the other programs need.
                Err(error) if is_of_kvm => {
                    spins = Spins::Refused(format!("the kernel refuses a probe of KVM: {error}"));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let (slots, threads, free, generation) = (HashMap::new(), Vec::new(), Vec::new(), 0);
        Ok(Loaded { links, _object: object, ring, heard, maps, spins, slots, threads, free, generation })
    }

    fn slot(&mut self) -> io::Result<u32> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        if self.threads.len() >= THREADS_MAX {
            return Err(io::Error::other(format!("there are more than {THREADS_MAX} threads")));
        }
        self.threads.push(None);
        Ok((self.threads.len() - 1) as u32)
    }
}

fn lookup(map: &MapHandle, key: u32, flags: MapFlags) -> io::Result<Option<Vec<u8>>> {
    map.lookup(&key.to_ne_bytes(), flags).map_err(io::Error::other)
}

fn update(map: &MapHandle, key: u32, value: &[u8]) -> io::Result<()> {
    map.update(&key.to_ne_bytes(), value, MapFlags::ANY).map_err(io::Error::other)
}

impl Tally for Loaded {
    fn watch(&mut self, thread: u32) -> io::Result<()> {
        if self.slots.contains_key(&thread) {
            return Ok(());
        }
        let slot = self.slot()?;
        // Those who wait for a processor are known by slot and wait: the number goes on.
        let before = lookup(&self.maps.threads, slot, MapFlags::ANY)?.unwrap_or_default();
        let wait = layout::thread_of(&before).wait.wrapping_add(1);
        let done = update(&self.maps.threads, slot, &layout::new_thread(thread, wait))
            .and_then(|()| update(&self.maps.marks, slot, &layout::mark_bytes(Mark::default())))
            .and_then(|()| empty(&self.maps.ran, slot))
            .and_then(|()| update(&self.maps.spins, slot, &[0; 8]))
            .and_then(|()| update(&self.maps.watched, thread, &slot.to_ne_bytes()));
        if let Err(error) = done {
            self.free.push(slot);
            return Err(error);
        }
        self.threads[slot as usize] = Some(thread);
        self.slots.insert(thread, slot);
        Ok(())
    }

    fn forget(&mut self, thread: u32) {
        if let Some(slot) = self.slots.remove(&thread) {
            // One that is not there needs no removal.
            let _ = self.maps.watched.delete(&thread.to_ne_bytes());
            self.threads[slot as usize] = None;
            self.free.push(slot);
        }
    }

    fn thread(&mut self, thread: u32) -> io::Result<Option<Thread>> {
        let Some(slot) = self.slots.get(&thread).copied() else { return Ok(None) };
        let ran =
            self.maps.ran.lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
        let Some(bytes) = lookup(&self.maps.threads, slot, MapFlags::LOCK)? else { return Ok(None) };
        let ran_ns = ran.unwrap_or_default().iter().map(|bytes| layout::u64_at(bytes, 0)).collect();
        let spins = match self.spins {
            Spins::Counted => lookup(&self.maps.spins, slot, MapFlags::ANY)?,
            Spins::NoKvm | Spins::Refused(_) => None,
        };
        let spins = spins.map(|bytes| layout::u64_at(&bytes, 0));
        Ok(Some(Thread { ran_ns, spins, ..layout::thread_of(&bytes) }))
    }

    fn occupant(&mut self, processor: u32) -> io::Result<Option<u32>> {
        let bytes = lookup(&self.maps.processors, processor, MapFlags::ANY)?;
        Ok(bytes.and_then(|bytes| layout::occupant_of(&bytes)))
    }

    fn mark(&mut self, thread: u32, mark: Mark) -> io::Result<()> {
        let Some(slot) = self.slots.get(&thread).copied() else { return Ok(()) };
        update(&self.maps.marks, slot, &layout::mark_bytes(mark))
    }

    fn turn(&mut self) -> io::Result<()> {
        let next = self.generation ^ 1;
        update(&self.maps.generation, 0, &next.to_ne_bytes())?;
        self.generation = next;
        Ok(())
    }

    fn stories(&mut self) -> io::Result<Vec<Story>> {
        self.ring.consume().map_err(io::Error::other)?;
        Ok(std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn sums(&mut self) -> io::Result<Vec<Sum>> {
        let table = &self.maps.sums[(self.generation ^ 1) as usize];
        let all = table.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        let all = all.map_err(io::Error::other)?.map(|(pair, sum)| layout::sum_of(&pair, &sum));
        // A slot without a thread had one that is forgotten.
        let named = all.filter_map(|sum| {
            let thread = self.threads.get(sum.thread as usize).copied().flatten()?;
            Some(Sum { thread, ..sum })
        });
        Ok(named.collect())
    }

    fn no_spins(&self) -> Option<&str> {
        if let Spins::Refused(reason) = &self.spins { Some(reason) } else { None }
    }

    fn lost(&self) -> u64 {
        let run = lookup(&self.maps.run, 0, MapFlags::ANY).ok().flatten();
        run.map_or(0, |run| layout::u64_at(&run, layout::LOST_AT))
    }
}

/// A slot's thread has run on no processor yet.
fn empty(ran: &MapHandle, slot: u32) -> io::Result<()> {
    let processors = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let none = vec![vec![0; 8]; processors];
    ran.update_percpu(&slot.to_ne_bytes(), &none, MapFlags::ANY).map_err(io::Error::other)
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.links.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_what_the_loader_asks_for() {
        let mut open = ObjectBuilder::default().open_memory(OBJECT).expect("an object of BPF");
        let size = |open: &OpenObject, name: &str| {
            let map = open.maps().find(|map| map.name() == name);
            map.unwrap_or_else(|| panic!("no map {name}")).value_size() as usize
        };
        for (name, bytes) in layout::SIZES {
            assert_eq!(size(&open, name), bytes, "{name}");
        }
        let entries = open.maps().find(|map| map.name() == "threads").map(|map| map.max_entries());
        assert_eq!(entries, Some(THREADS_MAX as u32));
        let names: Vec<_> = open.progs_mut().map(|program| program.name().to_owned()).collect();
        assert_eq!(names, ["on_switch", "on_wakeup", ON_SPIN]);
    }
}
