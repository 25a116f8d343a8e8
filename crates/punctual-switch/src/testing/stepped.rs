//! A plane without a thread. Its caller is the driver of all its ports, and decides when it runs, so it does
//! the same in every run: its instructions can be counted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::network::Vlans;
use punctual_net::InterfaceParams;
use punctual_net::discipline::DisciplineInfo;
use punctual_sched::Duration;
use punctual_sched::registry::Options;

use super::{FrontEnd, Options as VmOptions, other};
use crate::assemble::{plane, shared};
use crate::config::{Config, End, PlaneThread, Port};
use crate::driver::Queue;
use crate::frame::Address;
use crate::mailbox::Mailbox;
use crate::memory::Memory;
use crate::plane::{PlaneHandles, RunPlane};
use crate::protocol::Region;
use crate::ring::{RxRing, TxRing, VringConfig};
use crate::session::{RX, TX};
use crate::stats::PortStats;

/// A plane that serves all ports of a switch, and their VMs.
pub struct SteppedPlane {
    plane: Box<dyn RunPlane>,
    /// By port.
    pub vms: Vec<FrontEnd>,
}

/// The address that is reserved for a port's VM.
pub fn address(port: usize) -> [u8; 6] {
    let [high, low] = crate::narrow::to_u16(port).to_be_bytes();
    [0x52, 0x54, 0, 0, high, low]
}

impl SteppedPlane {
    /// A plane with a port for each of these parameters, whose VM is connected.
    pub fn new(
        discipline: &'static DisciplineInfo,
        options: &Options,
        ports: &[InterfaceParams],
        vm: VmOptions,
    ) -> io::Result<SteppedPlane> {
        SteppedPlane::with_classes(discipline, options, (ports, &[]), vm)
    }

    /// The same with classes behind the ports: of which port, PCP and priority.
    pub fn with_classes(
        discipline: &'static DisciplineInfo,
        options: &Options,
        (ports, classes): (&[InterfaceParams], &[(usize, u8, u32)]),
        vm: VmOptions,
    ) -> io::Result<SteppedPlane> {
        let class = |&(home, pcp, priority): &(usize, u8, u32)| Port {
            name: format!("port {home}, pcp {pcp}"),
            end: End::VmClass { home, pcp },
            params: InterfaceParams { priority: Some(priority), rate: None, ..ports[home].clone() },
            plane: 0,
            address: None,
            vlans: Vlans::default(),
            groups: Vec::new(),
        };
        let port = |(number, params): (usize, &InterfaceParams)| Port {
            name: format!("port {number}"),
            end: End::Socket(PathBuf::new()),
            params: params.clone(),
            plane: 0,
            address: Some(Address(address(number))),
            vlans: Vlans::default(),
            groups: Vec::new(),
        };
        let thread = PlaneThread {
            name: "stepped".into(),
            enter: Arc::new(|| ()),
            poll: Duration::ZERO,
            budget: None,
        };
        let config = Config {
            ports: ports.iter().enumerate().map(port).chain(classes.iter().map(class)).collect(),
            planes: vec![thread],
            discipline,
            options: options.clone(),
            mtu: None,
            check: !classes.is_empty(),
        };
        let mailbox = Arc::new(Mailbox::new()?);
        let shared = Arc::new(shared(&config, std::slice::from_ref(&mailbox), None).map_err(other)?);
        let handles = PlaneHandles { shared, mailbox, plane_budget: None, vlans: None };
        let mut plane = plane(&config, 0, handles).map_err(other)?;
        let mut vms = Vec::new();
        for number in 0..ports.len() {
            let vm = FrontEnd::new(vm)?;
            let (tx, rx) = vm.rings()?;
            plane.start_rings(number, Box::new(tx), Box::new(rx));
            vms.push(vm);
        }
        Ok(SteppedPlane { plane, vms })
    }

    /// Lets no packet pass several stages in one step.
    pub fn forbid_cut_through(&mut self) {
        self.plane.forbid_cut_through();
    }

    /// Looks at the rings once. Returns whether a frame passed all stages, and how many packets wait.
    pub fn look(&mut self) -> (bool, usize) {
        self.plane.look()
    }

    /// Carries frames until no one waits.
    #[inline(never)]
    pub fn run(&mut self) {
        self.plane.run_to_idle();
    }

    /// Ends the plane. Returns the counters of its ports.
    ///
    /// # Panics
    /// If it has violated an invariant.
    pub fn stop(self) -> Vec<PortStats> {
        let outcome = self.plane.end();
        if let Some(Err(violation)) = outcome.checked {
            panic!("{violation}");
        }
        outcome.ports
    }

    /// Stops the TX ring of a port's VM, as its front-end does, and starts it again where it was left.
    ///
    /// # Errors
    /// When the ring cannot be mapped again.
    pub fn restart_tx(&mut self, port: usize) -> io::Result<()> {
        self.plane.stop_ring(port);
        // The new ring begins at the index that the old one has left.
        let (tx, _) = self.vms[port].rings()?;
        self.plane.start_ring(port, Box::new(tx));
        Ok(())
    }
}

impl FrontEnd {
    /// The switch's side of its rings, without a connection.
    fn rings(&self) -> io::Result<(TxRing, RxRing)> {
        let file = self.memory_file()?.file().try_clone()?.into();
        let bytes = self.bytes as u64;
        let region = Region { guest_address: 0, bytes, user_address: 0, offset: 0, file };
        let memory = Arc::new(Memory::map(vec![region]).map_err(other)?);
        let ring = |queue: &Queue| {
            Ok::<_, io::Error>(VringConfig {
                memory: Arc::clone(&memory),
                size: queue.entries,
                desc_table: queue.descriptors,
                avail_ring: queue.avail,
                used_ring: queue.used,
                features: self.options.features,
                features_assumed: false,
                kick: Arc::new(queue.kick.try_clone()?),
                call: Some(Arc::new(queue.call.try_clone()?)),
                err: None,
            })
        };
        let [tx, rx] = [TX, RX].map(|queue| ring(&self.queues[queue]));
        Ok((TxRing::new(&tx?).map_err(other)?, RxRing::new(&rx?).map_err(other)?))
    }
}
