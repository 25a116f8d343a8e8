//! A small host and event sequences by hand, shared by the tests and the example that writes traces.

use punctual_model::Host;
use punctual_model::host::{
    Arrival, Cost, Domain, Enforce, Overheads, Parent, PolicyChoice, Pool, Task, Vcpu, Work,
};
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_model::live::Live;
use punctual_model::trace::{Entity, Occupant, TraceEvent};
use punctual_sched::registry::{OptionError, Options, PolicyInfo, WorkConservation};
use punctual_sched::{Duration, Instant, UnitParams};

/// A host file with what makes traces hard: two processors under one policy, a domain inside a domain, a task
/// of the pool itself, scheduling that costs time, and a task that asks for more than it gets.
pub const NESTED: &str = r#"
name = "nested and overloaded"
duration = "200ms"

[machine]
processors = 2

[machine.overheads]
decision = "200ns"
context_switch = "2us"
migration = "1us"
lock = "100ns"

[pool.all]
processors = [0, 1]
policy = "rtds"

[pool.all.task.watchdog]
period = "5ms"
cost = "200us"

[domain.outer]
vcpus = 2
budget = "4ms"
period = "10ms"
task.control = { period = "10ms", cost = { min = "1ms", max = "3ms" } }

[domain.inner]
in = "outer"
budget = "3ms"
period = "10ms"
task.plc = { period = "20ms", cost = "2ms" }

[domain.late]
budget = "3ms"
period = "10ms"
task.overloaded = { period = "10ms", cost = "5ms" }
task.background = { hog = true }
"#;

/// Events in the order of their time.
pub type Events = Vec<(Instant, TraceEvent)>;

/// Stands for any policy: the events are written by hand, nothing is scheduled.
static BY_HAND: PolicyInfo = PolicyInfo {
    name: "by-hand",
    summary: "events written by hand",
    source: "this file",
    unit_params: &[],
    options: &[],
    work_conservation: WorkConservation::Never,
    shared_queue: false,
    construct: |_, _| Err(OptionError { option: "policy", expected: "one that schedules".into() }),
    ..punctual_sched::round_robin::INFO
};

/// The first vCPU of `web`.
pub const WEB0: VcpuIx = VcpuIx(0);
/// The second vCPU of `web`.
pub const WEB1: VcpuIx = VcpuIx(1);
/// The vCPU of `outer`.
pub const OUTER: VcpuIx = VcpuIx(2);
/// The vCPU of `inner`.
pub const INNER: VcpuIx = VcpuIx(3);
/// A task of `web`.
pub const CONTROL: TaskIx = TaskIx(0);
/// The other task of `web`.
pub const CAMERA: TaskIx = TaskIx(1);
/// The task of `inner`.
pub const PLC: TaskIx = TaskIx(2);
/// The task of the pool.
pub const WATCHDOG: TaskIx = TaskIx(3);

/// Two processors; `web` with two vCPUs and two tasks, `inner` with the task `plc` inside `outer`, and the
/// task `watchdog` of the pool itself.
pub fn host() -> Host {
    let policy = || PolicyChoice { info: &BY_HAND, options: Options::new() };
    let (pool, outer) = (Parent::Pool(PoolIx(0)), Parent::Domain(DomainIx(1)));
    let domain = |name: &str, parent, vcpus| Domain {
        name: name.into(),
        parent,
        vcpus,
        guest: policy(),
        resources: Vec::new(),
        live: Live::default(),
    };
    let vcpu = |name: &str, domain| Vcpu {
        name: name.into(),
        domain: DomainIx(domain),
        params: UnitParams::default(),
    };
    let task = |name: &str, parent| Task {
        name: name.into(),
        parent,
        params: UnitParams::default(),
        work: Work::Jobs {
            arrival: Arrival::Periodic { period: Duration::from_ms(10), offset: Duration::ZERO },
            cost: Cost { min: Duration::from_ms(1), max: Duration::from_ms(1) },
            deadline: Duration::from_ms(10),
        },
        sections: Vec::new(),
    };
    Host {
        name: "by hand".into(),
        seed: 1,
        duration: Duration::from_ms(100),
        processors: 2,
        overheads: Overheads::default(),
        enforce: Enforce::default(),
        pools: vec![Pool {
            name: "rt".into(),
            processors: vec![0, 1],
            choice: None,
            policy: policy(),
            isolate: true,
        }],
        domains: vec![domain("web", pool, 0..2), domain("outer", pool, 2..3), domain("inner", outer, 3..4)],
        vcpus: vec![vcpu("web.0", 0), vcpu("web.1", 0), vcpu("outer.0", 1), vcpu("inner.0", 2)],
        tasks: vec![
            task("control", Parent::Domain(DomainIx(0))),
            task("camera", Parent::Domain(DomainIx(0))),
            task("plc", Parent::Domain(DomainIx(2))),
            task("watchdog", pool),
        ],
        networks: vec![],
        flows: vec![],
        chains: vec![],
        events: vec![],
        smp: Vec::new(),
    }
}

/// The vCPU, as what occupies a processor.
pub fn vcpu(vcpu: VcpuIx) -> Occupant {
    Occupant::Unit(Entity::Vcpu(vcpu))
}

/// The task, as what occupies a processor.
pub fn task(task: TaskIx) -> Occupant {
    Occupant::Unit(Entity::Task(task))
}

/// `us` microseconds after the origin.
pub fn us(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// From `at` us on the processor is occupied so.
pub fn on_processor(at: u64, processor: usize, occupant: Occupant) -> (Instant, TraceEvent) {
    (us(at), TraceEvent::Processor { processor, occupant })
}

/// From `at` us on the vCPU is occupied so.
pub fn on_vcpu(at: u64, vcpu: VcpuIx, occupant: Occupant) -> (Instant, TraceEvent) {
    (us(at), TraceEvent::Vcpu { vcpu, occupant })
}

/// A job is released at `at` us, due at `deadline` us.
pub fn release(at: u64, task: TaskIx, job: u64, deadline: u64) -> (Instant, TraceEvent) {
    (us(at), TraceEvent::Release { task, job, deadline: us(deadline) })
}

/// A job is finished at `at` us, `response` us after its release.
pub fn completion(at: u64, task: TaskIx, job: u64, response: u64, missed: bool) -> (Instant, TraceEvent) {
    (us(at), TraceEvent::Completion { task, job, response: Duration::from_us(response), missed })
}

/// At `at` us the vCPU has `left` us of budget.
pub fn budget(at: u64, of: VcpuIx, left: u64) -> (Instant, TraceEvent) {
    (us(at), TraceEvent::Budget { unit: Entity::Vcpu(of), left: Duration::from_us(left) })
}

/// `control` is overloaded: up to three of its jobs are open, the last two until the end of the trace.
pub fn overlapping_jobs() -> Events {
    vec![
        release(0, CONTROL, 0, 10),
        on_vcpu(0, WEB0, task(CONTROL)),
        on_processor(0, 0, vcpu(WEB0)),
        budget(0, WEB0, 100),
        release(10, CONTROL, 1, 20),
        release(20, CONTROL, 2, 30),
        completion(25, CONTROL, 0, 25, true),
        release(30, CONTROL, 3, 10_000),
        completion(45, CONTROL, 1, 35, true),
        budget(45, WEB0, 55),
        release(50, CONTROL, 4, 60),
        completion(60, CONTROL, 2, 40, true),
        on_processor(60, 0, Occupant::Idle),
        budget(60, WEB0, 40),
    ]
}

/// A task two levels down loses and regains its processor through each level in turn, and moves.
pub fn nested_domains() -> Events {
    vec![
        on_vcpu(0, INNER, task(PLC)),
        on_vcpu(0, OUTER, vcpu(INNER)),
        on_processor(10, 0, vcpu(OUTER)),
        on_vcpu(20, OUTER, Occupant::Overhead),
        on_vcpu(22, OUTER, vcpu(INNER)),
        on_vcpu(30, INNER, Occupant::Idle),
        on_vcpu(40, INNER, task(PLC)),
        on_processor(50, 0, Occupant::Overhead),
        on_processor(52, 0, task(WATCHDOG)),
        on_processor(52, 1, vcpu(OUTER)),
        on_processor(60, 0, Occupant::IdleFor(Entity::Vcpu(WEB0))),
        on_processor(70, 0, Occupant::Idle),
        on_vcpu(75, OUTER, Occupant::Idle),
        on_vcpu(80, INNER, Occupant::Idle),
        on_processor(90, 1, Occupant::Idle),
    ]
}

/// Changes that last no time, a swap of two processors' units at one instant, and jobs of no length.
pub fn same_instant() -> Events {
    vec![
        release(0, CONTROL, 0, 10),
        release(0, CAMERA, 0, 10),
        on_vcpu(0, WEB0, task(CONTROL)),
        on_vcpu(0, WEB1, task(CAMERA)),
        on_processor(0, 0, vcpu(WEB0)),
        on_processor(0, 1, vcpu(WEB1)),
        on_processor(5, 0, Occupant::Overhead),
        on_processor(5, 0, vcpu(WEB1)),
        on_processor(5, 1, Occupant::Overhead),
        on_processor(5, 1, vcpu(WEB0)),
        on_processor(7, 0, Occupant::Idle),
        on_processor(7, 0, vcpu(WEB1)),
        completion(8, CAMERA, 0, 8, false),
        release(8, CAMERA, 1, 18),
        completion(8, CAMERA, 1, 0, false),
        release(8, CAMERA, 2, 18),
        completion(9, CONTROL, 0, 9, false),
        completion(9, CAMERA, 2, 1, false),
        on_vcpu(9, WEB0, Occupant::Idle),
        on_vcpu(9, WEB1, Occupant::Idle),
        on_processor(9, 0, Occupant::Idle),
        on_processor(9, 1, Occupant::Idle),
    ]
}

/// Numbers below what is asked for: xorshift64 (Marsaglia 2003), the same sequence everywhere.
fn xorshift() -> impl FnMut(u64) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    }
}

/// `count` random events that a machine could produce: no unit on two processors, jobs finish in order.
pub fn random(count: usize) -> Events {
    let mut below = xorshift();
    let mut events = Events::new();
    let mut now = 0;
    let mut processors = [Occupant::Idle; 2];
    let choices = [
        Occupant::Idle,
        Occupant::Overhead,
        Occupant::IdleFor(Entity::Vcpu(WEB0)),
        vcpu(WEB0),
        vcpu(WEB1),
        vcpu(OUTER),
        task(WATCHDOG),
    ];
    let outer = [Occupant::Idle, Occupant::Overhead, vcpu(INNER)];
    let mut jobs = [(0u64, std::collections::VecDeque::new()), (0, std::collections::VecDeque::new())];
    for _ in 0..count {
        // One event in three shares its instant with the one before.
        now += below(3) * below(40);
        match below(8) {
            0..3 => {
                let processor = below(2) as usize;
                let mut next = choices[below(7) as usize];
                if matches!(next, Occupant::Unit(_)) && next == processors[1 - processor] {
                    next = Occupant::Idle;
                }
                processors[processor] = next;
                events.push(on_processor(now, processor, next));
            }
            3..5 => events.push(match below(4) {
                0 => on_vcpu(now, WEB0, [Occupant::Idle, task(CONTROL)][below(2) as usize]),
                1 => on_vcpu(now, WEB1, [Occupant::Idle, task(CAMERA)][below(2) as usize]),
                2 => on_vcpu(now, OUTER, outer[below(3) as usize]),
                _ => on_vcpu(now, INNER, [Occupant::Idle, task(PLC)][below(2) as usize]),
            }),
            5 => events.push(budget(now, [WEB0, WEB1, OUTER][below(3) as usize], below(1000))),
            6 => {
                let of = below(2) as usize;
                let (number, open) = &mut jobs[of];
                open.push_back((*number, now));
                events.push(release(now, [CONTROL, PLC][of], *number, now + 100));
                *number += 1;
            }
            _ => {
                let of = below(2) as usize;
                if let Some((job, released)) = jobs[of].1.pop_front() {
                    let response = now - released;
                    events.push(completion(now, [CONTROL, PLC][of], job, response, response > 100));
                }
            }
        }
    }
    events
}
