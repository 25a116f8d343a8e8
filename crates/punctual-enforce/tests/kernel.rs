//! The driver and the table of limits against a model of the scheduler in `crates/punctual-scx/bpf`: units
//! get what they get in the simulator.

use proptest::prelude::*;
use punctual_enforce::driver::{Driver, Order, Settings};
use punctual_enforce::enforcer::{Decided, Said};
use punctual_model::file::{Overrides, parse};
use punctual_model::host::{Arrival, Host, Work};
use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::servers::{EXACT, QUANTUM};
use punctual_sched::{CpuId, Duration, Instant};
use punctual_scx::{Asleep, Event, NEVER_NS, State, Table, UNITS_MAX, UnitState};

/// One processor, and units that work off what was released. It does with a table what the scheduler does:
/// the most urgent unit that has work and is below its limit runs until one of these changes, and budgets
/// come back when the table says.
#[derive(Default)]
struct Model {
    now_ns: u64,
    table: Table,
    units: Vec<UnitState>,
    backlog_ns: Vec<u64>,
    /// By unit: a replenishment was due while it had no work, and waits.
    waits: Vec<bool>,
    /// What user space has not read yet.
    events: Vec<Event>,
    /// Is user space to read at once?
    wakes: bool,
}

impl Model {
    fn new(units: usize) -> Model {
        let unit = UnitState { next_ns: NEVER_NS, ..UnitState::default() };
        let (backlog_ns, waits) = (vec![0; units], vec![false; units]);
        Model { units: vec![unit; units], backlog_ns, waits, ..Model::default() }
    }

    fn left_ns(&self, unit: usize) -> u64 {
        self.units[unit].limit_ns.saturating_sub(self.units[unit].used_ns)
    }

    fn tell(&mut self, unit: usize) {
        self.write(unit, false);
    }

    fn write(&mut self, unit: usize, is_exhaustion: bool) {
        let (at_ns, state) = (self.now_ns, self.units[unit]);
        self.events.push(Event { at_ns, unit: unit as u32, is_exhaustion, state });
        self.wakes |= self.table.wakes;
    }

    /// Takes what user space decided where it knows of the last replenishment.
    fn decide(&mut self, table: &Table) {
        self.table = table.clone();
        for &unit in &table.order {
            let (decision, unit) = (table.units[unit as usize], unit as usize);
            if decision.replenished != self.units[unit].replenished {
                self.tell(unit);
                self.wakes = true;
                continue;
            }
            self.units[unit].limit_ns = decision.limit_ns;
            self.waits[unit] &= self.units[unit].next_ns == decision.next_ns;
            self.units[unit].next_ns = decision.next_ns;
        }
    }

    fn release(&mut self, unit: usize, cost_ns: u64) {
        self.backlog_ns[unit] += cost_ns;
        if std::mem::replace(&mut self.units[unit].runnable, 1) == 0 {
            self.tell(unit);
            if self.waits[unit] {
                self.replenish(unit);
            }
        }
    }

    /// A budget comes back that is due.
    fn replenish(&mut self, unit: usize) {
        let (now_ns, decision) = (self.now_ns, self.table.units[unit]);
        let state = &mut self.units[unit];
        let is_asleep = state.runnable == 0;
        let periods = (now_ns - state.next_ns) / decision.period_ns + 1;
        match decision.asleep {
            Asleep::Waits | Asleep::Restarts if is_asleep => {
                if !std::mem::replace(&mut self.waits[unit], true) {
                    self.tell(unit);
                }
                return;
            }
            Asleep::Discarded if is_asleep => {
                state.limit_ns = state.limit_ns.min(state.used_ns);
                state.next_ns += periods * decision.period_ns;
            }
            Asleep::Restarts if self.waits[unit] => {
                state.limit_ns = state.limit_ns.min(state.used_ns) + decision.budget_ns;
                state.next_ns = now_ns + decision.period_ns;
            }
            _ => {
                state.limit_ns = state.limit_ns.min(state.used_ns) + decision.budget_ns;
                state.next_ns += periods * decision.period_ns;
            }
        }
        state.replenished += 1;
        self.waits[unit] = false;
        self.tell(unit);
    }

    fn is_due(&self, unit: usize) -> bool {
        self.units[unit].next_ns <= self.now_ns && !self.waits[unit]
    }

    /// Runs up to `end_ns`, or until a unit has used up its time or its work, or a budget comes back.
    fn run_until(&mut self, end_ns: u64) {
        let end_ns = (0..self.units.len())
            .filter(|&unit| !self.waits[unit])
            .fold(end_ns, |end_ns, unit| end_ns.min(self.units[unit].next_ns.max(self.now_ns)));
        let mut order: Vec<usize> = self.table.order.iter().map(|unit| *unit as usize).collect();
        order.retain(|&unit| self.left_ns(unit) > 0);
        let key = |unit: &usize| {
            if self.table.by_deadline { self.units[*unit].next_ns } else { self.table.units[*unit].key }
        };
        order.sort_by_key(key);
        let has_work = |unit: &usize| self.backlog_ns[*unit] > 0;
        let first = order.first().copied().filter(|_| self.table.idles_away);
        match first.or_else(|| order.iter().copied().find(has_work)) {
            Some(unit) if self.backlog_ns[unit] > 0 => {
                let ran = self.backlog_ns[unit].min(self.left_ns(unit)).min(end_ns - self.now_ns);
                self.units[unit].used_ns += ran;
                self.backlog_ns[unit] -= ran;
                self.now_ns += ran;
                if self.left_ns(unit) == 0 && ran > 0 {
                    self.write(unit, true);
                }
                if self.backlog_ns[unit] == 0 {
                    self.units[unit].runnable = 0;
                    if self.table.units[unit].asleep == Asleep::Discarded {
                        self.units[unit].limit_ns = self.units[unit].limit_ns.min(self.units[unit].used_ns);
                    }
                    self.tell(unit);
                }
            }
            Some(unit) => {
                let idled = self.left_ns(unit).min(end_ns - self.now_ns);
                self.units[unit].used_ns += idled;
                self.units[unit].idled_ns += idled;
                self.now_ns += idled;
                if self.left_ns(unit) == 0 {
                    self.write(unit, true);
                }
            }
            None => self.now_ns = end_ns,
        }
        for unit in 0..self.units.len() {
            if self.is_due(unit) {
                self.replenish(unit);
            }
        }
    }

    fn state(&self) -> State {
        let mut units = [UnitState::default(); UNITS_MAX];
        units[..self.units.len()].copy_from_slice(&self.units);
        State { units, lost: 0, ejected: None }
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

/// User space: the driver, and what it knows of the model.
struct UserSpace {
    driver: Driver,
    decided: Decided,
}

impl UserSpace {
    fn new(host: &Host) -> UserSpace {
        let policy = &host.pools[0].policy;
        let mut options: Options = policy.options.clone();
        if policy.info.option(QUANTUM.name).is_some() {
            options.set(QUANTUM.name, OptionValue::Word(EXACT));
        }
        let granularity = Duration::from_ns(1);
        let settings = Settings { kernel_tells: true, granularity, ..Settings::default() };
        let mut driver = Driver::new(policy.info, &options, 1, settings).expect("a policy");
        for vcpu in &host.vcpus {
            driver.insert(Instant::ZERO, &vcpu.params).expect("a unit");
        }
        UserSpace { driver, decided: Decided::default() }
    }

    /// As `Pool::look_at_kernel`. Returns when the next look is due.
    fn look(&mut self, model: &mut Model) -> u64 {
        let (state, at) = (model.state(), Instant::from_ns(model.now_ns));
        for events in std::mem::take(&mut model.events).chunk_by(|one, other| one.at_ns == other.at_ns) {
            let mut observed = Vec::new();
            events.iter().for_each(|event| self.decided.learn(event));
            let replayed = if self.decided.replays() { events } else { &[] };
            // The policy learns of the end of a budget with the next event.
            for event in replayed.iter().filter(|event| !event.is_exhaustion) {
                observed.push((event.unit as usize, self.decided.observe(event.unit as usize, &event.state)));
            }
            if !observed.is_empty() {
                self.driver.replay_event(Instant::from_ns(events[0].at_ns), CpuId(0), &observed);
            }
        }
        let units = 0..model.units.len();
        let observed: Vec<_> =
            units.clone().map(|unit| (unit, self.decided.observe(unit, &state.units[unit]))).collect();
        let next = self.driver.observe(self.decided.settled(&state, at), CpuId(0), &observed);
        let said: Vec<_> = units.map(|unit| Said::of(&self.driver, unit)).collect();
        model.wakes = false;
        if let Some(table) = self.decided.table(&state, &said, self.driver.idles_away()) {
            model.decide(table);
        }
        next.as_ns()
    }
}

/// By vCPU: processor time and exhaustions. User space is told at once what it asks for, and looks at least
/// every `interval_ns`. Second, the looks.
fn in_model(host: &Host, interval_ns: u64) -> (Vec<(u64, u64)>, u64) {
    let (tasks, end_ns) = (tasks(host), host.duration.as_ns());
    let (mut model, mut user_space) = (Model::new(tasks.len()), UserSpace::new(host));
    let mut released = vec![0u64; tasks.len()];
    let (mut look_ns, mut looks) = (0, 0);
    loop {
        for (unit, (period, cost)) in tasks.iter().enumerate() {
            while released[unit] * period <= model.now_ns && model.now_ns < end_ns {
                model.release(unit, *cost);
                released[unit] += 1;
            }
        }
        if model.wakes || model.now_ns >= look_ns || model.now_ns >= end_ns {
            look_ns = user_space.look(&mut model).min(model.now_ns + interval_ns).max(model.now_ns + 1);
            looks += 1;
        }
        if model.now_ns >= end_ns {
            break;
        }
        let releases = tasks.iter().zip(&released).map(|((period, _), count)| count * period);
        let next = releases.chain([look_ns, end_ns]).min().expect("the end is one");
        model.run_until(next.max(model.now_ns + 1).min(end_ns));
    }
    let exhaustions = |unit: usize| user_space.driver.account(unit).expect("there").exhaustions;
    let counted = |unit: usize| (model.units[unit].used_ns - model.units[unit].idled_ns, exhaustions(unit));
    ((0..tasks.len()).map(counted).collect(), looks)
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
        interval_ms in 1u64..100,
    ) {
        let host = host(policy, &units);
        let (here, there) = (in_model(&host, interval_ms * 1_000_000).0, in_simulator(&host));
        let counts = |of: &[(u64, u64)]| of.iter().map(|(_, exhaustions)| *exhaustions).collect::<Vec<_>>();
        prop_assert_eq!(counts(&here), counts(&there), "{}", policy);
        // Two looks are a nanosecond apart at least.
        let is_same = here.iter().zip(&there).all(|(here, there)| here.0.abs_diff(there.0) <= 100);
        prop_assert!(is_same, "{}: {:?} and {:?}", policy, here, there);
    }
}

#[test]
fn user_space_looks_only_now_and_then_where_the_policy_says_replenishments_ahead() {
    let units: [Unit; 3] = [(20, 10, 400, 20), (30, 15, 300, 10), (10, 5, 50, 7)];
    for policy in POLICIES {
        let (_, looks) = in_model(&host(policy, &units), 50_000_000);
        // The first, one every 50 ms, and one when the table was new.
        let is_rare = looks <= 8;
        assert_eq!(is_rare, policy != "sporadic", "{policy}: {looks} looks in 200 ms");
    }
}

#[test]
fn a_unit_that_the_kernel_parked_with_a_little_left_gets_the_rest() {
    let mut decided = Decided::default();
    let mut state = State { units: [UnitState::default(); UNITS_MAX], lost: 0, ejected: None };
    let said = |order, left_ns| [Said { unit: 0, order, left_ns: Some(left_ns), ahead: None }];
    let ranked = |left_ns| said(Order::Ranked(0), left_ns);
    let first = decided.table(&state, &ranked(1_000_000), false).cloned();
    assert_eq!(first.expect("it is new").units[0].limit_ns, 1_000_000);
    // The look read a clock that was 2 us ahead of what the kernel charged.
    state.units[0].used_ns = 500_000;
    decided.observe(0, &state.units[0]);
    assert_eq!(decided.table(&state, &ranked(502_000), false), None, "a little");
    state.units[0].used_ns = 1_000_000;
    decided.observe(0, &state.units[0]);
    let rest = decided.table(&state, &ranked(2_000), false);
    assert_eq!(rest.expect("it would never go on").units[0].limit_ns, 1_002_000);
    let parked = decided.table(&state, &said(Order::Parked, 0), false);
    assert!(parked.expect("no more").order.is_empty());
}
