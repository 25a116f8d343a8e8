//! The driver and the table of limits against a model of the scheduler in `crates/punctual-scx/bpf`: units
//! get what they get in the simulator.

use proptest::prelude::*;
use punctual_enforce::driver::{Driver, Order, Settings};
use punctual_enforce::enforcer::{Decided, limit};
use punctual_model::file::{Overrides, parse};
use punctual_model::host::{Arrival, Host, Work};
use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::servers::{EXACT, QUANTUM};
use punctual_sched::{CpuId, Duration, Instant};
use punctual_scx::{State, Table, UNITS_MAX, UnitState};

/// One processor, and units that work off what was released. It does with a table what the scheduler does:
/// the most urgent unit that has work and is below its limit runs until one of these changes.
#[derive(Default)]
struct Model {
    now_ns: u64,
    table: Table,
    used_ns: Vec<u64>,
    backlog_ns: Vec<u64>,
}

impl Model {
    fn new(units: usize) -> Model {
        Model { used_ns: vec![0; units], backlog_ns: vec![0; units], ..Model::default() }
    }

    fn left_ns(&self, unit: usize) -> u64 {
        self.table.limits_ns[unit].saturating_sub(self.used_ns[unit])
    }

    /// Runs up to `end_ns`, or until a unit has used up its time or its work, which the kernel would report.
    fn run_until(&mut self, end_ns: u64) {
        let can_run = |unit: &usize| self.backlog_ns[*unit] > 0 && self.left_ns(*unit) > 0;
        let current = self.table.order.iter().map(|unit| *unit as usize).find(can_run);
        let Some(unit) = current else {
            self.now_ns = end_ns;
            return;
        };
        let ran = self.backlog_ns[unit].min(self.left_ns(unit)).min(end_ns - self.now_ns);
        self.used_ns[unit] += ran;
        self.backlog_ns[unit] -= ran;
        self.now_ns += ran;
    }

    fn state(&self) -> State {
        let mut units = [UnitState::default(); UNITS_MAX];
        for (unit, state) in units.iter_mut().enumerate().take(self.used_ns.len()) {
            let runnable = u32::from(self.backlog_ns[unit] > 0);
            *state = UnitState { used_ns: self.used_ns[unit], runnable };
        }
        State { units, ejected: None }
    }
}

/// A task of each domain: its period and cost.
fn tasks(host: &Host) -> Vec<(u64, u64)> {
    let task = |task: &punctual_model::host::Task| match task.work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, .. } => {
            (period.as_ns(), cost.max.as_ns())
        }
        _ => panic!("a periodic task"),
    };
    host.tasks.iter().map(task).collect()
}

/// By vCPU: processor time and exhaustions, with user space that is told at once.
fn in_model(host: &Host) -> Vec<(u64, u64)> {
    let policy = &host.pools[0].policy;
    let mut options: Options = policy.options.clone();
    if policy.info.option(QUANTUM.name).is_some() {
        options.set(QUANTUM.name, OptionValue::Word(EXACT));
    }
    let settings = Settings { kernel_tells: true, granularity: Duration::from_ns(1), ..Settings::default() };
    let mut driver = Driver::new(policy.info, &options, 1, settings).expect("a policy");
    let (tasks, end_ns) = (tasks(host), host.duration.as_ns());
    let mut model = Model::new(tasks.len());
    let mut decided = Decided::default();
    for vcpu in &host.vcpus {
        driver.insert(Instant::ZERO, &vcpu.params).expect("a unit");
    }
    let mut released = vec![0u64; tasks.len()];
    loop {
        for (unit, (period, cost)) in tasks.iter().enumerate() {
            while released[unit] * period <= model.now_ns && model.now_ns < end_ns {
                model.backlog_ns[unit] += cost;
                released[unit] += 1;
            }
        }
        let state = model.state();
        let observed: Vec<_> = (0..tasks.len()).map(|unit| (unit, decided.observe(&state, unit))).collect();
        let look = driver.observe(Instant::from_ns(model.now_ns), CpuId(0), &observed);
        let orders =
            (0..tasks.len()).map(|unit| (unit, driver.order(unit), driver.account(unit).and_then(limit)));
        if let Some(table) = decided.table(&state, orders) {
            model.table = table.clone();
        }
        if model.now_ns >= end_ns {
            break;
        }
        let releases = tasks.iter().zip(&released).map(|((period, _), count)| count * period);
        let next = releases.chain([look.as_ns(), end_ns]).min().expect("the end is one");
        model.run_until(next.max(model.now_ns + 1).min(end_ns));
    }
    let counted = |unit: usize| (model.used_ns[unit], driver.account(unit).expect("there").exhaustions);
    (0..tasks.len()).map(counted).collect()
}

fn in_simulator(host: &Host) -> Vec<(u64, u64)> {
    let results = punctual_sim::simulate(host).expect("a host that can be simulated");
    let counted = |vcpu: &punctual_model::results::VcpuResult| {
        (vcpu.cpu_time_ns, vcpu.counts.map_or(0, |counts| counts.exhaustions))
    };
    results.vcpus.iter().map(counted).collect()
}

/// A unit: budget in 100 us and period in ms, and its task's cost in 10 us and period in ms.
type Unit = (u64, u64, u64, u64);

fn host(policy: &str, units: &[Unit]) -> Host {
    let mut text = format!(
        "duration = \"200ms\"\n[machine]\nprocessors = 1\n[pool.all]\n\
         processors = [0]\npolicy = \"{policy}\"\n"
    );
    for (index, (budget, period, cost, task_period)) in units.iter().enumerate() {
        // Deadlines are never equal: a policy may take either unit first then.
        let beyond_ns = 23u64.pow(index as u32);
        let budget = (budget % (period * 10 / units.len() as u64)).max(1) * 100;
        text += &format!(
            "[domain.d{index}]\nbudget = \"{budget}us\"\nperiod = \"{}ns\"\npriority = {index}\n\
             task.work = {{ period = \"{task_period}ms\", cost = \"{}us\" }}\n",
            period * 1_000_000 + beyond_ns,
            cost * 10
        );
    }
    // Extra time is in rounds that end together with work here and there, and either may count first.
    let set = match policy {
        "sedf" => text.replace("priority = ", "# "),
        "rtds" => text.replace("priority = ", "extratime = false # "),
        _ => text,
    };
    parse(&set, "host.toml", &Overrides::default()).unwrap_or_else(|error| panic!("{error}\n{set}"))
}

fn units() -> impl Strategy<Value = Vec<Unit>> {
    prop::collection::vec((1u64..60, 2u64..20, 1u64..400, 1u64..25), 1..5)
}

const POLICIES: [&str; 6] = ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_kernel_and_the_driver_give_units_what_the_simulator_gives_them(
        policy in prop::sample::select(&POLICIES[..]),
        units in units(),
    ) {
        let host = host(policy, &units);
        let (here, there) = (in_model(&host), in_simulator(&host));
        let counts = |of: &[(u64, u64)]| of.iter().map(|(_, exhaustions)| *exhaustions).collect::<Vec<_>>();
        prop_assert_eq!(counts(&here), counts(&there), "{}", policy);
        // Two looks are a nanosecond apart at least.
        let is_same = here.iter().zip(&there).all(|(here, there)| here.0.abs_diff(there.0) <= 100);
        prop_assert!(is_same, "{}: {:?} and {:?}", policy, here, there);
    }
}

#[test]
fn a_unit_that_the_kernel_parked_with_a_little_left_gets_the_rest() {
    let mut decided = Decided::default();
    let mut state = State { units: [UnitState::default(); UNITS_MAX], ejected: None };
    let ms = Duration::from_ms;
    let first = decided.table(&state, [(0, Order::Ranked(0), Some(ms(1)))].into_iter()).cloned();
    assert_eq!(first.expect("it is new").limits_ns[0], 1_000_000);
    // The look read a clock that was 2 us ahead of what the kernel charged.
    state.units[0].used_ns = 500_000;
    decided.observe(&state, 0);
    let left = Duration::from_us(502);
    assert_eq!(decided.table(&state, [(0, Order::Ranked(0), Some(left))].into_iter()), None, "a little");
    state.units[0].used_ns = 1_000_000;
    decided.observe(&state, 0);
    let rest = decided.table(&state, [(0, Order::Ranked(0), Some(Duration::from_us(2)))].into_iter());
    assert_eq!(rest.expect("it would never go on").limits_ns[0], 1_002_000);
    let parked = decided.table(&state, [(0, Order::Parked, Some(ms(0)))].into_iter());
    assert!(parked.expect("no more").order.is_empty());
}
