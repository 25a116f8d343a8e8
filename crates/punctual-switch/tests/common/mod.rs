//! A switch in a directory of its own, and VMs on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use punctual_model::network::{Groups, Vlans};
use punctual_net::{InterfaceParams, registry};
use punctual_sched::registry::{OptionValue, Options};
use punctual_switch::budget::Budget;
use punctual_switch::testing::{self, FrontEnd};
use punctual_switch::wire::Wire;
use punctual_switch::{Config, End, Event, Notice, PlaneThread, Port, Report, Switch};

/// Long enough for anything that must happen.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Usually long enough for something that must not happen to show.
pub(crate) const SHORT: Duration = Duration::from_millis(30);

pub(crate) const ALL: [u8; 6] = [0xff; 6];

/// The address of port `n`'s VM.
pub(crate) fn address(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, n]
}

/// A frame of 64 bytes from port to port.
pub(crate) fn frame(from: u8, to: u8, number: u64) -> Vec<u8> {
    testing::frame(address(to), address(from), number, 64)
}

pub(crate) struct Lab {
    switch: Option<(Switch, Receiver<Notice>)>,
    folder: tempfile::TempDir,
    setting: Setting,
    /// The wires of the last ports.
    wires: Vec<Box<dyn Wire>>,
}

/// What a switch is made of.
#[derive(Clone)]
pub(crate) struct Setting {
    pub discipline: &'static str,
    pub batch: Option<u64>,
    pub ports: Vec<InterfaceParams>,
    /// By port.
    pub planes: Vec<usize>,
    /// By plane.
    pub budgets: Vec<Option<Budget>>,
    /// Of each plane.
    pub poll: punctual_sched::Duration,
    /// By port.
    pub vlans: Vec<Vlans>,
    /// By port; a missing one has none.
    pub groups: Vec<Vec<Groups>>,
    pub mtu: Option<u32>,
    /// Check the switch's invariants.
    pub check: bool,
    /// Runs first in each plane's thread.
    pub enter: fn(plane: usize),
}

impl Setting {
    /// Ports of one priority in one plane.
    pub(crate) fn plain(discipline: &'static str, ports: usize) -> Self {
        let params = InterfaceParams { priority: Some(1), ..InterfaceParams::default() };
        Setting {
            discipline,
            batch: None,
            ports: vec![params; ports],
            planes: vec![0; ports],
            budgets: Vec::new(),
            poll: punctual_sched::Duration::ZERO,
            vlans: Vec::new(),
            groups: Vec::new(),
            mtu: None,
            check: true,
            enter: |_| (),
        }
    }
}

impl Lab {
    pub(crate) fn new(setting: Setting) -> Lab {
        Lab::with_uplinks(setting, Vec::new())
    }

    /// A switch whose last ports are uplinks to these.
    pub(crate) fn with_uplinks(setting: Setting, wires: Vec<Box<dyn Wire>>) -> Lab {
        let folder = tempfile::tempdir().expect("a folder");
        let mut lab = Lab { switch: None, folder, setting, wires };
        lab.start();
        lab
    }

    pub(crate) fn socket(&self, port: usize) -> PathBuf {
        self.folder.path().join(format!("{port}.sock"))
    }

    pub(crate) fn start(&mut self) {
        let setting = &self.setting;
        let planes = setting.planes.iter().max().map_or(0, |last| last + 1);
        let plane = |index: usize| PlaneThread {
            name: format!("plane {index}"),
            enter: Arc::new({
                let enter = setting.enter;
                move || enter(index)
            }),
            poll: setting.poll,
            budget: setting.budgets.get(index).cloned().flatten(),
        };
        let mut ends: Vec<End> =
            (0..setting.ports.len() - self.wires.len()).map(|port| End::Socket(self.socket(port))).collect();
        ends.extend(std::mem::take(&mut self.wires).into_iter().map(End::Uplink));
        let port = |((index, params), end): ((usize, &InterfaceParams), End)| Port {
            name: format!("port {index}"),
            end,
            params: params.clone(),
            plane: setting.planes[index],
            address: None,
            vlans: setting.vlans.get(index).cloned().unwrap_or_default(),
            groups: setting.groups.get(index).cloned().unwrap_or_default(),
        };
        let options = setting
            .batch
            .map_or_else(Options::new, |batch| Options::new().with("batch", OptionValue::Count(batch)));
        let config = Config {
            ports: setting.ports.iter().enumerate().zip(ends).map(port).collect(),
            planes: (0..planes).map(plane).collect(),
            discipline: registry::find(setting.discipline).expect("a discipline"),
            options,
            mtu: setting.mtu,
            check: setting.check,
        };
        self.switch = Some(Switch::start(config).expect("a switch"));
    }

    pub(crate) fn switch(&self) -> &Switch {
        &self.switch.as_ref().expect("a switch at work").0
    }

    pub(crate) fn switch_mut(&mut self) -> &mut Switch {
        &mut self.switch.as_mut().expect("a switch at work").0
    }

    /// A port to add.
    pub(crate) fn port(&self, number: usize, params: InterfaceParams) -> Port {
        Port {
            name: format!("port {number}"),
            end: End::Socket(self.socket(number)),
            params,
            plane: 0,
            address: None,
            vlans: Vlans::default(),
            groups: Vec::new(),
        }
    }

    /// Stops the switch, and asserts its invariants.
    pub(crate) fn stop(&mut self) -> Report {
        let report = self.switch.take().expect("a switch at work").0.stop();
        for checked in &report.checked {
            assert!(checked.is_ok(), "{checked:?}");
        }
        report
    }

    /// A VM on a port. The switch has learned its address.
    pub(crate) fn vm(&self, port: usize, options: testing::Options) -> FrontEnd {
        let mut vm = FrontEnd::connected(&self.socket(port), options).expect("a VM");
        // To itself: the switch learns the address and drops the frame.
        assert!(vm.send(&frame(port as u8, port as u8, 0)).expect("sent"));
        let end = Instant::now() + LONG;
        while vm.reclaim().expect("reclaimed") == 0 {
            assert!(Instant::now() < end, "the switch does not take frames");
            std::thread::sleep(Duration::from_micros(100));
        }
        vm
    }

    /// The next event of any port, within this time.
    pub(crate) fn notice(&self, limit: Duration) -> Option<Notice> {
        self.switch.as_ref().expect("a switch at work").1.recv_timeout(limit).ok()
    }

    /// Waits for an event of a port.
    pub(crate) fn wait(&self, port: usize, wanted: impl Fn(&Event) -> bool) -> Event {
        loop {
            let (_, notices) = self.switch.as_ref().expect("a switch at work");
            let notice = notices.recv_timeout(LONG).expect("something happens");
            if notice.port == port && wanted(&notice.event) {
                return notice.event;
            }
        }
    }
}

/// Asserts that this frame is the next to arrive.
pub(crate) fn expect(vm: &mut FrontEnd, wanted: &[u8]) {
    let received = vm.receive_within(LONG).expect("whole frames").expect("a frame");
    assert!(received.frame == wanted, "frame {} arrived", testing::number(&received.frame));
}

/// Asserts that nothing arrives.
pub(crate) fn expect_nothing(vm: &mut FrontEnd) {
    assert_eq!(vm.receive_within(SHORT).expect("whole frames"), None);
}
