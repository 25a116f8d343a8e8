//! Calls of Xen from its domain 0, through Linux's `/dev/xen/privcmd` (Linux `include/uapi/xen/privcmd.h`).

#![expect(unsafe_code, reason = "ioctl(2) and memory of Xen")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use memmap2::{MmapMut, MmapOptions};

/// `IOCTL_PRIVCMD_HYPERCALL`: `_IOC(_IOC_NONE, 'P', 0, sizeof(struct privcmd_hypercall))`. C libraries differ
/// in the type of a request.
const HYPERCALL: libc::c_ulong = 0x0030_5000;
/// `__HYPERVISOR_sysctl` (Xen `xen/include/public/xen.h`).
const SYSCTL: u64 = 35;
/// `__HYPERVISOR_domctl`, and `XEN_DOMCTL_getvcpuinfo` (Xen `xen/include/public/domctl.h`).
const DOMCTL: u64 = 36;
const GET_VCPU: u32 = 14;
/// Versions of sysctls to try (`XEN_SYSCTL_INTERFACE_VERSION`): Xen 4.17 to 4.20 have 0x15, 4.21 has 0x16.
const SYSCTL_VERSIONS: [u32; 3] = [0x15, 0x16, 0x14];
/// Versions of domctls to try (`XEN_DOMCTL_INTERFACE_VERSION`): Xen 4.17, 4.18, and 4.19 to 4.21.
const DOMCTL_VERSIONS: [u32; 3] = [0x15, 0x16, 0x17];
/// Bytes of `struct xen_sysctl`: command, version, and a union.
const SYSCTL_BYTES: usize = 136;
/// Where in the page what a sysctl points to is.
const PAYLOAD: usize = 256;
const PAGE: usize = 4096;

/// `struct privcmd_hypercall`.
#[repr(C)]
struct PrivcmdHypercall {
    op: u64,
    arg: [u64; 5],
}

/// The hypervisor below this domain 0.
#[derive(Debug)]
pub struct Hypervisor {
    privcmd: File,
    /// Memory that stays where it is, as Xen needs it.
    page: MmapMut,
    version: u32,
}

impl Hypervisor {
    /// Opens the way to Xen.
    ///
    /// # Errors
    /// Those of opening `/dev/xen/privcmd` and `/dev/xen/hypercall`: `ENOENT` where Linux is no domain 0.
    pub fn open() -> io::Result<Hypervisor> {
        let open = |path| File::options().read(true).write(true).open(path);
        let privcmd = open("/dev/xen/privcmd")?;
        let memory = open("/dev/xen/hypercall")?;
        // SAFETY: the device gives anonymous memory of its own to each mapping; nobody else has this one.
        let page = unsafe { MmapOptions::new().len(PAGE).map_mut(&memory) }?;
        Ok(Hypervisor { privcmd, page, version: SYSCTL_VERSIONS[0] })
    }

    /// Makes a sysctl. `union` is what follows command and version, and is what it was changed to afterwards;
    /// so is `payload`, whose address is written to `union` at `handle_at`.
    ///
    /// # Errors
    /// That of Xen; `EACCES` where it speaks none of the known versions.
    ///
    /// # Panics
    /// When one of them is longer than fits.
    pub fn sysctl(
        &mut self,
        command: u32,
        union: &mut [u8],
        handle_at: usize,
        payload: &mut [u8],
    ) -> io::Result<()> {
        let tries = [self.version].into_iter().chain(SYSCTL_VERSIONS);
        let mut done = Ok(());
        for version in tries {
            let address = self.page.as_ptr() as u64 + PAYLOAD as u64;
            union[handle_at..handle_at + 8].copy_from_slice(&address.to_le_bytes());
            self.page[..SYSCTL_BYTES].fill(0);
            self.page[..4].copy_from_slice(&command.to_le_bytes());
            self.page[4..8].copy_from_slice(&version.to_le_bytes());
            self.page[8..SYSCTL_BYTES][..union.len()].copy_from_slice(union);
            self.page[PAYLOAD..][..payload.len()].copy_from_slice(payload);
            done = self.call(SYSCTL);
            if !matches!(&done, Err(error) if error.raw_os_error() == Some(libc::EACCES)) {
                self.version = version;
                break;
            }
        }
        union.copy_from_slice(&self.page[8..][..union.len()]);
        payload.copy_from_slice(&self.page[PAYLOAD..][..payload.len()]);
        done
    }

    /// How long a vCPU has run, in ns.
    ///
    /// # Errors
    /// That of Xen; `ESRCH` where there is no such domain or vCPU.
    pub fn vcpu_time_ns(&mut self, domain: u32, vcpu: u32) -> io::Result<u64> {
        let Ok(domain) = u16::try_from(domain) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut done = Ok(());
        for version in DOMCTL_VERSIONS {
            // Command, version, domain; then vCPU, three flags, the time.
            self.page[..SYSCTL_BYTES].fill(0);
            self.page[..4].copy_from_slice(&GET_VCPU.to_le_bytes());
            self.page[4..8].copy_from_slice(&version.to_le_bytes());
            self.page[8..10].copy_from_slice(&domain.to_le_bytes());
            self.page[16..20].copy_from_slice(&vcpu.to_le_bytes());
            done = self.call(DOMCTL);
            if !matches!(&done, Err(error) if error.raw_os_error() == Some(libc::EACCES)) {
                break;
            }
        }
        done.map(|()| u64::from_le_bytes(std::array::from_fn(|index| self.page[24 + index])))
    }

    /// Makes the call whose structure begins the page.
    fn call(&mut self, number: u64) -> io::Result<()> {
        let mut call = PrivcmdHypercall { op: number, arg: [self.page.as_mut_ptr() as u64, 0, 0, 0, 0] };
        // SAFETY: the argument is the structure that this ioctl takes, and lives until it returns. Xen writes
        // to nothing but the structure of the call and its payload, which are in the page.
        let done = unsafe { libc::ioctl(self.privcmd.as_raw_fd(), HYPERCALL as _, &raw mut call) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
