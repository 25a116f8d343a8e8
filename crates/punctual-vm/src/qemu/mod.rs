//! Virtual machines: QEMU processes that we start, and whose threads we schedule.
//!
//! ```no_run
//! use std::time::Duration;
//! use punctual_vm::{cache::Cache, image, qemu::{self, Vm, VmSpec}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let say = |line: &str| eprintln!("{line}");
//! let cache = Cache::of_user()?;
//! let image = image::prepare_in(&cache, &say, || false)?;
//! let (accelerator, why) = qemu::accel::choose(&cache, &image, &say, || false)?;
//! let mut vm = Vm::start(&VmSpec::new("vm1", &image, accelerator), || false)?;
//! let client = vm.connect(Duration::from_secs(60))?;
//! let calibration = client.calibrate(Duration::from_millis(200))?;
//! println!("{:?} {:?} {calibration:?}", vm.vcpu_threads()?, vm.helper_threads()?);
//! vm.quit();
//! # Ok(())
//! # }
//! ```
//!
//! A VM leaves nothing on the machine, however we end: its channels are socket pairs instead of files, and
//! the kernel kills QEMU with us.

pub mod accel;
mod confine;
mod console;
mod error;
mod qmp;
mod spec;
mod vm;

pub use error::{Error, LastWords};
pub use qmp::{Qmp, QmpError};
pub use spec::{Accelerator, Disk, Network, PROGRAM, SwitchPort, VmSpec};
pub use vm::Vm;
