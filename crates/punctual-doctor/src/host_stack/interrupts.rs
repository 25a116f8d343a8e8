//! The interrupts of a network device.

use punctual_linux::os::net::DEVICES;

use crate::doctor::{ReadError, Root};

/// An interrupt that a driver has requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interrupt {
    pub number: u32,
    /// The receive queue that it belongs to; 0 where its name says none.
    pub queue: usize,
    /// Is it handled in a thread?
    pub has_thread: bool,
}

/// The interrupts of a device, ascending. One without hardware has none.
pub(super) fn of_device(root: &Root, device: &str) -> Result<Vec<Interrupt>, ReadError> {
    // A virtio device has those of the PCI device above it.
    let above = ["device", "device/.."].map(|above| format!("{DEVICES}/{device}/{above}"));
    let messages = above.iter().find_map(|directory| root.names(&format!("{directory}/msi_irqs")).ok());
    let one = || above.iter().find_map(|directory| root.number(&format!("{directory}/irq")).ok());
    let mut numbers: Vec<u32> = match messages {
        Some(names) => names.iter().filter_map(|name| name.parse().ok()).collect(),
        None => one().and_then(|number| u32::try_from(number).ok()).filter(|n| *n > 0).into_iter().collect(),
    };
    numbers.sort_unstable();
    let threads = irq_threads(root)?;
    let interrupt = |number: u32| {
        let handler = handler(root, number)?;
        let has_thread = threads.contains(&number);
        Some(Interrupt { number, queue: queue(&handler).unwrap_or(0), has_thread })
    };
    Ok(numbers.into_iter().filter_map(interrupt).collect())
}

/// The name of an interrupt's handler: the directory beside its files.
fn handler(root: &Root, number: u32) -> Option<String> {
    let directory = format!("/proc/irq/{number}");
    let names = root.names(&directory).ok()?;
    names.into_iter().find(|name| root.names(&format!("{directory}/{name}")).is_ok())
}

/// The queue that a handler's name ends with: `virtio2-input.1`, `eth0-TxRx-3`.
fn queue(handler: &str) -> Option<usize> {
    let (start, number) = handler.rsplit_once(['-', '.'])?;
    // The name of the device itself may end with a number.
    number.parse().ok().filter(|_| !start.is_empty())
}

/// The interrupts that have a thread.
fn irq_threads(root: &Root) -> Result<Vec<u32>, ReadError> {
    let processes = root.names("/proc")?;
    let comm = |process: &String| {
        process.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("/proc/{process}/comm"))
    };
    let names = processes.iter().filter_map(comm).filter_map(|path| root.text(&path).ok());
    let number = |name: String| name.strip_prefix("irq/")?.split_once('-')?.0.parse().ok();
    Ok(names.filter_map(number).collect())
}
