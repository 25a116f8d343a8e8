//! Random small fleets.

use std::fmt::Write as _;

/// Uniform numbers from a seed (SplitMix64: Steele, Lea, Flood, *Fast Splittable Pseudorandom Number
/// Generators*, OOPSLA 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) copies: usize,
    /// Processors of the only pool; all of the machine.
    pub(crate) processors: usize,
    pub(crate) policy: &'static str,
    pub(crate) pinned: bool,
    /// By node; processors are in turn in them.
    pub(crate) memory: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) vcpus: usize,
    pub(crate) budget_ms: u64,
    pub(crate) period_ms: u64,
    pub(crate) has_task: bool,
    pub(crate) of_vm: bool,
    pub(crate) memory: u64,
    pub(crate) any_node: bool,
    pub(crate) together: bool,
    pub(crate) apart: bool,
    /// By host.
    pub(crate) may: Vec<bool>,
    pub(crate) today: Option<usize>,
    pub(crate) move_cost: u64,
}

/// A fleet as the exhaustive search needs it, apart from what the parser makes of its text.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) vms: Vec<Vm>,
}

impl Small {
    pub(crate) fn new(seed: u64) -> Small {
        let random = &mut Random(seed);
        let kinds: Vec<Kind> = (0..1 + random.below(2)).map(|_| kind(random)).collect();
        let hosts: usize = kinds.iter().map(|kind| kind.copies).sum();
        let vms = (0..2 + random.below(3)).map(|_| vm(random, hosts)).collect();
        Small { kinds, vms }
    }

    /// Hosts of one processor with nothing but VMs of one vCPU, so that only the analysis says how few do.
    pub(crate) fn plain(seed: u64) -> Small {
        let random = &mut Random(seed);
        let policies = ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf", "cbs"];
        let policy = policies[random.below(policies.len() as u64) as usize];
        let count = 5 + random.below(4) as usize;
        let kind = Kind { copies: count, processors: 1, policy, pinned: false, memory: vec![64] };
        let mut plain = |_| Vm {
            vcpus: 1,
            of_vm: false,
            together: false,
            apart: false,
            may: vec![true; count],
            today: None,
            ..vm(random, count)
        };
        let vms = (0..count).map(&mut plain).collect();
        Small { kinds: vec![kind], vms }
    }

    /// The kind of each host.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        self.kinds.iter().enumerate().flat_map(|(index, kind)| vec![index; kind.copies]).collect()
    }

    fn host_names(&self) -> Vec<String> {
        let of = |(index, kind): (usize, &Kind)| (1..=kind.copies).map(move |n| format!("k{index}-{n}"));
        self.kinds.iter().enumerate().flat_map(of).collect()
    }

    /// The lines that describe the machine of a kind and its pool, with `prefix` before their keys.
    fn machine(kind: &Kind, text: &mut String) {
        let list: Vec<String> = (0..kind.processors).map(|number| number.to_string()).collect();
        let (count, list, policy) = (kind.processors, list.join(", "), kind.policy);
        let _ =
            writeln!(text, "machine = {{ processors = {count}, overheads = {{ context_switch = '20us' }} }}");
        let _ = writeln!(text, "pool.p = {{ processors = [{list}], policy = '{policy}' }}");
    }

    fn domain(vm: &Vm, priority: usize, text: &mut String) {
        let Vm { vcpus, budget_ms, period_ms, .. } = vm;
        let _ = writeln!(text, "vcpus = {vcpus}\nbudget = '{budget_ms}ms'\nperiod = '{period_ms}ms'");
        let _ = writeln!(text, "priority = {priority}");
        if vm.of_vm {
            let _ = writeln!(text, "budget_of = 'vm'");
        }
        if vm.has_task {
            let _ = writeln!(text, "task.t = {{ period = '{}ms', cost = '{budget_ms}ms' }}", 4 * period_ms);
        }
    }

    /// The fleet file.
    pub(crate) fn fleet(&self) -> String {
        let mut text = String::new();
        for (index, kind) in self.kinds.iter().enumerate() {
            let _ = writeln!(text, "[host.k{index}]\ncopies = {}", kind.copies);
            Small::machine(kind, &mut text);
            if kind.pinned {
                text += "pinned = ['p']\n";
            }
            if let [memory] = kind.memory[..] {
                let _ = writeln!(text, "memory_mib = {memory}");
                continue;
            }
            for (node, memory) in kind.memory.iter().enumerate() {
                let own = (0..kind.processors).filter(|place| place % kind.memory.len() == node);
                let own: Vec<String> = own.map(|place| place.to_string()).collect();
                let own = own.join(", ");
                let _ = writeln!(text, "node.{node} = {{ processors = [{own}], memory_mib = {memory} }}");
            }
        }
        let names = self.host_names();
        for (index, vm) in self.vms.iter().enumerate() {
            let _ = writeln!(text, "[vm.v{index}]\nmove_cost = {}", vm.move_cost);
            Small::domain(vm, index + 1, &mut text);
            if vm.memory > 0 {
                let _ = writeln!(text, "memory_mib = {}", vm.memory);
            }
            let named = |wanted: bool| names.iter().zip(&vm.may).filter(move |(_, may)| **may == wanted);
            let list =
                |wanted| named(wanted).map(|(name, _)| format!("'{name}'")).collect::<Vec<_>>().join(", ");
            if index % 2 == 0 && vm.may.contains(&false) {
                let _ = writeln!(text, "avoid = [{}]", list(false));
            } else if vm.may.contains(&false) {
                let _ = writeln!(text, "hosts = [{}]", list(true));
            }
            let word = |is: bool, line: &str| if is { format!("{line}\n") } else { String::new() };
            text += &word(vm.any_node, "numa = 'any'");
            text += &word(vm.together, "together = ['a']");
            text += &word(vm.apart, "apart = ['b']");
            if let Some(today) = vm.today {
                let _ = writeln!(text, "today = ['{}']", names[today]);
            }
        }
        text
    }

    /// A host file of a kind with all VMs.
    pub(crate) fn host(&self, kind: usize) -> String {
        let mut text = String::new();
        Small::machine(&self.kinds[kind], &mut text);
        for (index, vm) in self.vms.iter().enumerate() {
            let _ = writeln!(text, "[domain.v{index}]");
            Small::domain(vm, index + 1, &mut text);
        }
        text
    }
}

fn kind(random: &mut Random) -> Kind {
    let processors = 1 + random.below(2) as usize;
    let (policy, pinned) = match random.below(5) {
        0 => ("deferrable", false),
        1 => ("rtds", false),
        2 => ("rtds", true),
        3 => ("cbs", true),
        _ => ("periodic", false),
    };
    let nodes = if processors == 2 && random.one_in(2) { 2 } else { 1 };
    let memory = (0..nodes).map(|_| 4 + random.below(6)).collect();
    Kind { copies: 1 + random.below(2) as usize, processors, policy, pinned, memory }
}

fn vm(random: &mut Random, hosts: usize) -> Vm {
    let period_ms = [10, 20, 50][random.below(3) as usize];
    let vcpus = if random.one_in(4) { 2 } else { 1 };
    let mut may = vec![true; hosts];
    if random.one_in(3) {
        may[random.below(hosts as u64) as usize] = false;
    }
    if !may.contains(&true) {
        may[0] = true;
    }
    Vm {
        vcpus,
        budget_ms: 1 + random.below(period_ms / 2),
        period_ms,
        has_task: random.one_in(4),
        of_vm: vcpus == 2 && random.one_in(3),
        memory: random.below(4),
        any_node: random.one_in(3),
        together: random.one_in(4),
        apart: random.one_in(3),
        may,
        today: (!random.one_in(3)).then(|| random.below(hosts as u64) as usize),
        move_cost: 1 + random.below(9),
    }
}
