//! What a host file means: defaults, numbering, order, overrides, and the way back to text.

use proptest::prelude::*;
use punctual_model::file::{Errors, OtherOverheads, Overrides, parse, parse_bytes, to_toml};
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_model::live::{
    Accel, Attach, Backend, HelperPolicy, Helpers, Live, Process, Program, Vm, VmNetwork,
};
use punctual_model::network::{Endpoint, Traffic};
use punctual_model::sockets::Sockets;
use punctual_model::{AnyHost, Host};
use punctual_sched::{CpuId, Duration};

const MINIMAL: &str = "
[machine]
processors = 1
[pool.all]
policy = 'rtds'
[domain.vm]
[domain.vm.task.t]
period = '10ms'
cost = '1ms'
";

const TWO_POOLS: &str = "
[machine]
processors = 6
[pool.a]
processors = [4, 1]
policy = 'deferrable'
deferrable = { quantum = 'exact', accounting = 'exact' }
rtds = {}
[pool.a.task.daemon]
separation = '20ms'
slack_mean = '5ms'
cost = { min = '1ms', max = '2ms' }
affinity = [4]
server = { budget = '3ms' }
[pool.b]
processors = [0]
policy = 'rtds'
[domain.inner]
in = 'outer'
affinity = [1]
priority = 3
[domain.inner.task.work]
period = '40ms'
cost = '2ms'
[domain.outer]
pool = 'a'
vcpus = 2
budget = '4ms'
period = '10ms'
vcpu.1 = { budget = '5ms', affinity = [1] }
guest = { policy = 'round-robin', slice = '7ms' }
[domain.outer.task.burn]
hog = true
start = '1s'
[domain.other]
pool = 'b'
";

fn valid(text: &str) -> Host {
    changed(text, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn changed(text: &str, overrides: &Overrides) -> Result<Host, Errors> {
    parse(text, "dir/host.toml", overrides)
}

fn set(changes: &[&str]) -> Overrides {
    Overrides { set: changes.iter().map(|s| s.to_string()).collect(), ..Overrides::default() }
}

fn refusal(text: &str, overrides: &Overrides) -> String {
    changed(text, overrides).expect_err("must be refused").to_string()
}

#[test]
fn defaults_are_those_of_the_reference() {
    let host = valid(MINIMAL);
    assert_eq!((host.name.as_str(), host.seed, host.duration), ("host", 1, Duration::from_secs(10)));
    assert_eq!(host.overheads, Default::default());
    assert_eq!(host.pools[0].processors, [0]);
    assert_eq!((host.vcpus.len(), host.vcpus[0].name.as_str()), (1, "vm.0"));
    assert_eq!(host.domains[0].guest.info.name, "fixed-priority");
    let Work::Jobs { arrival, cost, deadline } = host.tasks[0].work else { panic!("no hog") };
    assert_eq!(arrival, Arrival::Periodic { period: Duration::from_ms(10), offset: Duration::ZERO });
    assert_eq!(
        (cost.min, cost.max, deadline),
        (Duration::from_ms(1), Duration::from_ms(1), Duration::from_ms(10))
    );
}

#[test]
fn published_overheads_have_a_name_and_are_written_out() {
    let text = MINIMAL.replace("processors = 1", "processors = 1\noverheads = 'xen-4.0'");
    let host = valid(&text);
    let costs = &host.overheads;
    assert_eq!((costs.decision, costs.context_switch), (Duration::from_ns(121), Duration::from_ns(1498)));
    assert_eq!(valid(&to_toml(&host)), host);
    assert_eq!((host.free_scheduling(), valid(MINIMAL).free_scheduling().is_some()), (None, true));
}

#[test]
fn a_host_with_a_network_stack_takes_no_overheads_of_the_option() {
    let text = include_str!("../../../examples/kvm-host.toml");
    let overheads = Some(OtherOverheads::Preset("xen-4.0".into()));
    let overrides = Overrides { overheads, ..Overrides::default() };
    let said = AnyHost::parse(text, "kvm-host.toml", &overrides).expect_err("refused").to_string();
    assert!(said.contains("has costs of its own") && said.contains("kvm-host.toml:"), "{said}");
    assert!(changed(MINIMAL, &overrides).is_ok_and(|host| host.free_scheduling().is_none()));
}

#[test]
fn processors_are_numbered_by_the_machine_in_the_file_and_by_position_in_the_policy() {
    let host = valid(TWO_POOLS);
    assert_eq!(host.pools[0].processors, [1, 4]);
    let affinity = host.tasks[0].params.affinity.as_ref().unwrap();
    assert_eq!(affinity.iter().collect::<Vec<_>>(), [CpuId(1)]);
    let outer = &host.vcpus[host.domains[0].vcpus.clone()];
    assert_eq!(outer[0].params.affinity, None);
    assert_eq!(outer[1].params.affinity.as_ref().unwrap().iter().collect::<Vec<_>>(), [CpuId(0)]);
}

#[test]
fn every_period_may_be_a_frequency() {
    let text = NETWORK
        .replace("period = '1ms'", "period = '4kHz'")
        .replace(
            "plane.rest = { budget = '2ms', period = '10ms'",
            "plane.rest = { budget = '2ms', period = '100 Hz'",
        )
        .replace("task.sense = { period = '10ms'", "task.sense = { period = '12.5Hz'")
        .replace("[domain.b]", "[domain.b]\nbudget = '1ms'\nperiod = '50Hz'");
    let host = valid(&text);
    let Traffic::Periodic { period, .. } = host.flows[2].traffic else { panic!("a periodic flow") };
    assert_eq!(period, Duration::from_us(250));
    let budget = host.networks[0].planes[1].budget.as_ref().expect("a budget");
    assert_eq!(budget.params.period, Some(Duration::from_ms(10)));
    assert_eq!(host.vcpus[0].params.period, Some(Duration::from_ms(20)));
    let sense = host.tasks.iter().find(|task| task.name == "sense").expect("the task");
    let Work::Jobs { arrival: Arrival::Periodic { period, .. }, .. } = sense.work else { panic!("jobs") };
    assert_eq!(period, Duration::from_ms(80));
    assert_eq!(valid(&to_toml(&host)), Host { name: host.name.clone(), ..host.clone() });
    let sporadic = MINIMAL.replace("period = '10ms'", "separation = '10ms'");
    let changes = set(&["domain.vm.task.t.separation=2kHz", "domain.vm.task.t.server.period=1kHz"]);
    let host = changed(&sporadic, &changes).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(host.tasks[0].params.period, Some(Duration::from_ms(1)));
    assert_eq!(host.tasks[0].params.deadline, Some(Duration::from_us(500)));
}

#[test]
fn a_nested_domain_stands_after_the_one_it_runs_in() {
    let host = valid(TWO_POOLS);
    let names: Vec<&str> = host.domains.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["outer", "inner", "other"]);
    assert_eq!(host.domains[1].parent, Parent::Domain(DomainIx(0)));
    assert_eq!(host.pool_of(host.domains[1].parent), PoolIx(0));
    assert_eq!(host.pool_of(host.domains[2].parent), PoolIx(1));
}

#[test]
fn single_vcpus_override_the_domain() {
    let host = valid(TWO_POOLS);
    let budgets: Vec<_> =
        host.vcpus[..2].iter().map(|v| v.params.budget.unwrap().as_ns() / 1_000_000).collect();
    assert_eq!(budgets, [4, 5]);
    assert!(host.vcpus[..2].iter().all(|v| v.params.period == Some(Duration::from_ms(10))));
}

#[test]
fn a_task_is_its_own_server_unless_it_says_otherwise() {
    let host = valid(TWO_POOLS);
    let params = &host.tasks[0].params;
    assert_eq!((params.budget, params.period), (Some(Duration::from_ms(3)), Some(Duration::from_ms(20))));
    assert_eq!(params.deadline, Some(Duration::from_ms(20)));
}

#[test]
fn options_that_equal_the_default_are_not_kept() {
    let host = valid(TWO_POOLS);
    let options: Vec<_> = host.pools[0].policy.options.iter().map(|(name, _)| name).collect();
    assert_eq!(options, ["quantum"]);
}

#[test]
fn tasks_without_a_priority_get_their_deadline_monotonic_rank_hogs_last() {
    let task = |name: &str, keys: &str| format!("[domain.vm.task.{name}]\n{keys}\n");
    let text = MINIMAL.to_string()
        + &task("hog", "hog = true")
        + &task("tight", "period = '50ms'\ncost = '1ms'\ndeadline = '5ms'")
        + &task("given", "period = '1ms'\ncost = '10us'\npriority = 77")
        + &task("equal", "period = '10ms'\ncost = '1ms'");
    let host = valid(&text);
    let ranks: Vec<_> = host.tasks.iter().map(|t| (t.name.as_str(), t.params.priority.unwrap())).collect();
    assert_eq!(ranks, [("t", 2), ("hog", 4), ("tight", 1), ("given", 77), ("equal", 3)]);
}

#[test]
fn generated_tasks_follow_from_the_seed_and_the_domains_name() {
    let text = |name: &str, more: &str| {
        format!(
            "{MINIMAL}\n[domain.{name}]\n\
             generate = {{ recipe = 'uunifast', tasks = 3, utilization = '50%'{more} }}"
        )
    };
    let tasks = |text: &str, overrides: &Overrides| changed(text, overrides).unwrap().tasks.split_off(1);
    let plain = tasks(&text("a", ""), &Overrides::default());
    assert_eq!(plain.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["t1", "t2", "t3"]);
    assert_eq!(plain, tasks(&text("a", ""), &Overrides::default()));
    assert_ne!(plain, tasks(&text("b", ""), &Overrides::default()));
    assert_ne!(plain, tasks(&text("a", ""), &Overrides { seed: Some(2), ..Overrides::default() }));
    let own_seed = tasks(&text("a", ", seed = 7"), &Overrides::default());
    assert_eq!(
        own_seed,
        tasks(&text("a", ", seed = 7"), &Overrides { seed: Some(2), ..Overrides::default() })
    );
}

#[test]
fn generated_names_avoid_those_that_are_taken() {
    let text = format!(
        "{MINIMAL}\n[domain.vm.task.t2]\nhog = true\n[domain.vm.generate]\nrecipe = 'schedcat'\ntasks = 2\n\
         utilizations = 'uni-light'"
    );
    let host = valid(&text);
    assert_eq!(host.tasks.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["t", "t2", "t1", "t3"]);
}

#[test]
fn options_change_the_file_before_it_is_read() {
    let overrides = Overrides {
        policy: Some("a=polling,b=deferrable".into()),
        set: vec![
            "domain.*.budget=3ms".into(),
            "domain.*.period = '12ms'".into(),
            "domain.outer.vcpu.1.budget=2ms".into(),
            "pool.a.polling.quantum=exact".into(),
            "machine.overheads.decision=5ns".into(),
            "domain.outer.task.*.start=2s".into(),
            "name=nine to five".into(),
        ],
        seed: Some(9),
        duration: Some("3s".into()),
        ..Overrides::default()
    };
    let host = changed(TWO_POOLS, &overrides).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(host.pools.iter().map(|p| p.policy.info.name).collect::<Vec<_>>(), ["polling", "deferrable"]);
    let budgets: Vec<_> = host.vcpus.iter().map(|v| v.params.budget.unwrap().as_ns() / 1_000_000).collect();
    assert_eq!(budgets, [3, 2, 3, 3]);
    assert_eq!(host.pools[0].policy.options.iter().count(), 1);
    assert_eq!((host.seed, host.duration, host.name.as_str()), (9, Duration::from_secs(3), "nine to five"));
    assert_eq!(host.overheads.decision, Duration::from_ns(5));
    let hog = host.tasks.iter().find(|t| t.name == "burn").unwrap();
    assert_eq!(hog.work, Work::Hog { start: Duration::from_secs(2) });
}

#[test]
fn a_policy_option_applies_to_every_pool() {
    let overrides = Overrides { policy: Some("sporadic".into()), ..Overrides::default() };
    let host = changed(TWO_POOLS, &overrides);
    let text = host.expect_err("the vCPU of `other` has no budget").to_string();
    assert!(text.contains("policy `sporadic` needs it"), "{text}");
    let overrides =
        Overrides { set: vec!["domain.*.period=10ms".into(), "domain.*.budget=1ms".into()], ..overrides };
    let host = changed(TWO_POOLS, &overrides).unwrap_or_else(|e| panic!("{e}"));
    assert!(host.pools.iter().all(|p| p.policy.info.name == "sporadic"));
}

#[test]
fn errors_in_options_name_the_option_and_the_nearest_name() {
    let cases = [
        (set(&["domain.vn.budget=3ms"]), "there is no domain `vn`", "did you mean `vm`?"),
        (set(&["domain.vm.bugdet=3ms"]), "[domain.vm] has no key `bugdet`", "did you mean `budget`?"),
        (set(&["domain.vm.budget=3"]), "`budget` is a bare number", "--set domain.vm.budget=3"),
        (set(&["domain.vm.task.x.cost=3ms"]), "there is no task `x`", "expected one of t"),
        (set(&["pool.all.task.*.cost=3ms"]), "there is no task", "the host file has no task here"),
        (set(&["domain.*.task.*.gost.min=1ms"]), "task t has no key `gost`", "did you mean `cost`?"),
        (
            set(&["domain.vm.task.t.cost.min=3ms"]),
            "`cost` is a string in the host file",
            "expected the name of a table",
        ),
        (set(&["budget"]), "--set needs a key and a value", "for example domain.video.budget=3ms"),
        (set(&["=3"]), "--set needs a key and a value", "--set =3"),
        (set(&["domain.vm.budget=20ms"]), "policy `rtds` refuses `budget`", "command line:1:"),
        (
            Overrides { policy: Some("credt".into()), ..Overrides::default() },
            "no policy is called \"credt\"",
            "--policy credt",
        ),
        (
            Overrides { policy: Some("al=rtds".into()), ..Overrides::default() },
            "there is no pool `al`",
            "did you mean `all`?",
        ),
        (
            Overrides { duration: Some("10".into()), ..Overrides::default() },
            "`duration` cannot be \"10\"",
            "\"10ms\"",
        ),
        (
            Overrides { seed: Some(u64::MAX), ..Overrides::default() },
            "`seed` is too large",
            "--seed 18446744073709551615",
        ),
    ];
    for (overrides, message, hint) in cases {
        let text = refusal(MINIMAL, &overrides);
        assert!(text.contains(message) && text.contains(hint), "{overrides:?}\n{text}");
    }
}

#[test]
fn records_are_for_machines() {
    let errors = changed("[machine]\nprocessors = 'x'\n[pool.p]\npolicy = 'rtsd'\n", &Overrides::default())
        .unwrap_err();
    let json = serde_json::to_value(errors.records()).unwrap();
    assert_eq!(json[0]["line"], 2);
    assert_eq!(json[0]["column"], 14);
    assert_eq!(json[1]["text"], "'rtsd'");
    assert_eq!(json[1]["nearest"], "rtds");
    assert_eq!(json[1]["file"], "dir/host.toml");
}

/// What `keys` of the domain `vm` say about it on a real host.
fn live(keys: &str) -> Live {
    let text = MINIMAL.replace("[domain.vm]\n", &format!("[domain.vm]\n{keys}\n"));
    valid(&text).domains.remove(0).live
}

#[test]
fn a_domain_without_live_keys_leaves_it_to_the_run() {
    for keys in ["", "helpers = {}", "helpers = { policy = 'other', nice = 0 }"] {
        let live = live(keys);
        assert_eq!(live, Live::default());
        assert_eq!(live.backend, Backend::Default);
        let expected = Helpers { processors: None, policy: HelperPolicy::Other { nice: 0 } };
        assert_eq!(live.helpers, expected);
    }
}

#[test]
fn what_a_run_starts_may_have_a_limit_of_threads_and_what_it_attaches_to_none() {
    let limited = live("process = {}\nthreads_max = 20");
    assert_eq!(limited.threads_max, Some(20));
    let text = MINIMAL.replace("[domain.vm]\n", "[domain.vm]\nthreads_max = 20\n");
    let host = valid(&text);
    assert_eq!(valid(&to_toml(&host)).domains[0].live.threads_max, Some(20));
    let attached =
        MINIMAL.replace("[domain.vm]\n", "[domain.vm]\nattach = { process = 7 }\nthreads_max = 20\n");
    let errors = parse(&attached, "host.toml", &Overrides::default()).expect_err("not somebody else's VM");
    assert!(errors.to_string().contains("both `attach` and `threads_max`"), "{errors}");
}

#[test]
fn sockets_of_a_guest_are_read_written_and_checked() {
    let given =
        "sockets = { allow = [\"bind udp 127.0.0.1:7\"], priority = 60, poll = \"50us\", netns = \"lan\" }";
    let sockets = live(given).sockets.clone().expect("sockets");
    let allow = vec!["bind udp 127.0.0.1:7".parse().expect("a rule")];
    let (poll, netns) = (Duration::from_us(50), Some("lan".to_string()));
    assert_eq!(sockets, Sockets { allow, priority: Some(60), poll, netns, ..Sockets::default() });
    let text = MINIMAL.replace("[domain.vm]\n", &format!("[domain.vm]\n{given}\n"));
    assert_eq!(valid(&to_toml(&valid(&text))).domains[0].live.sockets, Some(sockets));
    assert_eq!(live("sockets = {}").sockets, Some(Sockets::default()), "nothing is allowed by itself");
    let wrong = [
        ("allow = [\"bind udp 7\"]", "\"bind udp 7\": no port"),
        ("allow = \"all\"", "expected a list of rules"),
        ("processor = 4000", "the machine has"),
        ("sockets_max = 5000", "sockets_max"),
        ("netns = \"../lan\"", "`netns` is \"../lan\""),
    ];
    for (keys, part) in wrong {
        let text = MINIMAL.replace("[domain.vm]\n", &format!("[domain.vm]\nsockets = {{ {keys} }}\n"));
        let errors = parse(&text, "host.toml", &Overrides::default()).expect_err("wrong").to_string();
        assert!(errors.contains(part), "{errors}");
    }
    let text = MINIMAL.replace("[domain.vm]\n", "[domain.vm]\nprocess = {}\nsockets = {}\n");
    let errors = parse(&text, "host.toml", &Overrides::default()).expect_err("a process has sockets");
    assert!(errors.to_string().contains("both `process` and `sockets`"), "{errors}");
}

#[test]
fn a_vm_has_the_defaults_of_the_reference() {
    let expected = Vm {
        kernel: None,
        initrd: None,
        memory_mib: 128,
        disks: Vec::new(),
        network: VmNetwork::None,
        accel: Accel::Auto,
        arguments: Vec::new(),
        append: None,
    };
    assert_eq!(live("vm = {}").backend, Backend::Vm(expected));
}

#[test]
fn a_vm_has_what_its_keys_say() {
    let keys = "vm = { kernel = 'bzImage', initrd = '/boot/initrd', memory_mib = 256, \
                disk = ['a.img', 'b.img'], network = 'tap:tap0', accel = 'tcg', \
                arguments = ['-cpu', 'max'], append = 'quiet' }";
    let expected = Vm {
        kernel: Some("bzImage".into()),
        initrd: Some("/boot/initrd".into()),
        memory_mib: 256,
        disks: vec!["a.img".into(), "b.img".into()],
        network: VmNetwork::Tap("tap0".into()),
        accel: Accel::Tcg,
        arguments: vec!["-cpu".into(), "max".into()],
        append: Some("quiet".into()),
    };
    assert_eq!(live(keys).backend, Backend::Vm(expected));
}

#[test]
fn a_process_without_a_command_is_the_guest_program() {
    assert_eq!(live("process = {}").backend, Backend::Process(Process::default()));
    let keys =
        "process = { command = ['sh', '-c', ''], environment = { B = '2', A = '' }, directory = '/tmp' }";
    let expected = Process {
        program: Program::Command { program: "sh".into(), arguments: vec!["-c".into(), "".into()] },
        environment: vec![("B".into(), "2".into()), ("A".into(), "".into())],
        directory: Some("/tmp".into()),
    };
    assert_eq!(live(keys).backend, Backend::Process(expected));
}

#[test]
fn a_domain_attaches_to_what_its_only_key_names() {
    let cases = [
        ("qmp = '/run/vm.sock'", Attach::Qmp("/run/vm.sock".into())),
        ("libvirt = 'debian 13'", Attach::Libvirt("debian 13".into())),
        ("process = 1", Attach::Process(1)),
        ("firecracker = 4194303", Attach::Firecracker(4_194_303)),
        ("cloud_hypervisor = 17", Attach::CloudHypervisor(17)),
        ("threads = [4711]", Attach::Threads(vec![4711])),
    ];
    for (key, expected) in cases {
        assert_eq!(live(&format!("attach = {{ {key} }}")).backend, Backend::Attach(expected));
    }
    let threads = live("vcpus = 3\nattach = { threads = [9, 3, 5] }");
    assert_eq!(threads.backend, Backend::Attach(Attach::Threads(vec![9, 3, 5])), "in the vCPUs' order");
}

#[test]
fn helpers_have_their_processors_in_ascending_order_and_their_policy() {
    let text = TWO_POOLS.to_string() + "helpers = { processors = [5, 4], policy = 'fifo' }\n";
    let helpers = |text: &str| valid(text).domains.pop().unwrap().live.helpers.clone();
    let policy = HelperPolicy::Fifo { priority: 40 };
    assert_eq!(helpers(&text), Helpers { processors: Some(vec![4, 5]), policy });
    let text = TWO_POOLS.to_string() + "helpers = { nice = -20 }\n";
    assert_eq!(helpers(&text), Helpers { processors: None, policy: HelperPolicy::Other { nice: -20 } });
}

#[test]
fn options_make_a_domain_real() {
    let host = changed(MINIMAL, &set(&["domain.vm.process.command=['a', 'b']", "domain.*.helpers.nice=3"]));
    let live = host.unwrap_or_else(|e| panic!("{e}")).domains.remove(0).live;
    let program = Program::Command { program: "a".into(), arguments: vec!["b".into()] };
    assert_eq!(live.backend, Backend::Process(Process { program, ..Process::default() }));
    assert_eq!(live.helpers.policy, HelperPolicy::Other { nice: 3 });
}

#[test]
fn the_largest_hosts_are_read_in_bounded_time() {
    let mut text = String::from("[machine]\nprocessors = 1024\n[pool.p]\npolicy = 'rtds'\n");
    for i in 0..64 {
        text += &format!("[domain.d{i}]\nvcpus = 1024\n");
    }
    text += "generate = { recipe = 'randfixedsum', tasks = 1000, utilization = '50000%' }\n";
    let start = std::time::Instant::now();
    let host = valid(&text);
    assert_eq!((host.vcpus.len(), host.tasks.len()), (65_536, 1000));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Keys of a domain on a real host.
fn arbitrary_live_keys() -> impl Strategy<Value = String> {
    // A Rust literal of these characters is a TOML string too.
    let text = || "[ -~äµ]{1,12}".prop_map(|text| format!("{text:?}"));
    let texts = move || prop::collection::vec(text(), 1..4).prop_map(|texts| texts.join(", "));
    let network = prop::sample::select(vec!["none", "user", "tap:tap-0.1"]);
    let vm = (text(), texts(), texts(), network, 16u32..=1 << 20);
    let vm = vm.prop_map(|(line, disks, arguments, network, mib)| {
        format!(
            "vm = {{ kernel = {line}, append = {line}, disk = [{disks}], arguments = [{arguments}], \
             network = '{network}', memory_mib = {mib} }}\n"
        )
    });
    let process = (texts(), text(), text()).prop_map(|(command, value, directory)| {
        format!(
            "process = {{ command = [{command}], environment = {{ 'a b' = {value}, \"ü\" = '' }}, \
             directory = {directory} }}\n"
        )
    });
    let keys = prop::sample::select(vec!["process", "firecracker", "cloud_hypervisor"]);
    let attach = (keys, 1u32..1 << 22).prop_map(|(key, pid)| format!("attach = {{ {key} = {pid} }}\n"));
    let attach_by_name = (prop::sample::select(vec!["qmp", "libvirt"]), text())
        .prop_map(|(key, name)| format!("attach = {{ {key} = {name} }}\n"));
    let none = prop::sample::select(vec!["", "vm = {}\n", "process = {}\n"]).prop_map(str::to_string);
    let fifo = (1u8..=99).prop_map(|n| format!("helpers = {{ policy = 'fifo', priority = {n} }}\n"));
    let other = (-20i8..=19).prop_map(|n| format!("helpers = {{ processors = [2, 0], nice = {n} }}\n"));
    let helpers = prop_oneof![Just(String::new()), fifo, other];
    (prop_oneof![none, vm, process, attach, attach_by_name], helpers)
        .prop_map(|(keys, helpers)| keys + &helpers)
}

/// Keys of a task: periodic, sporadic or a hog.
fn arbitrary_task() -> impl Strategy<Value = String> {
    prop_oneof![
        (10u64..500, 1u64..9, 0u64..3)
            .prop_map(|(p, c, o)| format!("period = '{p}ms'\ncost = '{c}.5ms'\noffset = '{o}us'\n")),
        (10u64..500, 0u64..50, 1u64..9).prop_map(|(s, m, c)| format!(
            "separation = '{s}ms'\nslack_mean = '{m}ms'\ncost = {{ min = '{c}us', max = '{c}ms' }}\n\
             deadline = '{}ms'\nserver = {{ cap_percent = 40, deadline = '{s}us' }}\n",
            s * 2
        )),
        (0u64..9).prop_map(|s| format!(
            "hog = true\nstart = '{s}s'\n\
             server = {{ budget = '1ms', period = '7ms' }}\naffinity = [0]\n"
        )),
    ]
}

/// No generated tasks, or those of a recipe.
fn arbitrary_recipe() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("generate = { recipe = 'rt-xen', tasks = 4, load = '62.5%' }\n".to_string()),
        Just(
            "generate = { recipe = 'uunifast-discard', tasks = 4, utilization = '190%', \
              periods = 'log-uni-long' }\n"
                .to_string()
        ),
        Just(
            "generate = { recipe = 'randfixedsum', tasks = 3, utilization = '290%', \
              deadlines = 'uni-arbitrary' }\n"
                .to_string()
        ),
        Just(
            "generate = { recipe = 'schedcat', utilization = '90%', \
              utilizations = 'bimo-light' }\n"
                .to_string()
        ),
        Just(
            "generate = { recipe = 'uunifast', tasks = 3, utilization = '60%', \
              periods = 'automotive' }\n"
                .to_string()
        ),
        Just("generate = { recipe = 'automotive', utilization = '70%' }\n".to_string()),
    ]
}

/// A valid host file with a random structure.
fn arbitrary_host_file() -> impl Strategy<Value = String> {
    let unit = (1u64..10, 10u64..100, 1u32..9, any::<bool>()).prop_map(|(b, p, prio, x)| {
        format!(
            "budget = '{b}ms'\nperiod = '{p}ms'\npriority = {prio}\nextratime = {x}\nweight = {}\n",
            b * 100
        )
    });
    let policies =
        prop::sample::select(vec!["deferrable", "sporadic", "rtds", "edf", "round-robin", "fixed-priority"]);
    // Not RTDS: it refuses the small budgets of some generated tasks.
    let guests = prop::sample::select(vec!["deferrable", "sporadic", "edf", "round-robin", "fixed-priority"]);
    let guest = (guests, arbitrary_recipe(), prop::collection::vec(arbitrary_task(), 0..4));
    let domain = (unit, 1usize..4, guest, arbitrary_live_keys(), any::<bool>(), 0..3, any::<bool>());
    (prop::collection::vec(domain, 0..5), policies, any::<u32>()).prop_map(|(domains, policy, seed)| {
        let mut text = format!(
            "name = \"q\\\"\\\\ü\"\nseed = {seed}\n[machine]\nprocessors = 4\n[pool.p]\n\
             processors = [1, 3]\npolicy = '{policy}'\n"
        );
        for (i, (unit, vcpus, (guest, generate, tasks), live, nested, budgets, copied)) in
            domains.into_iter().enumerate()
        {
            text += &format!("[domain.d{i}]\n{unit}vcpus = {vcpus}\nguest = '{guest}'\n{generate}");
            if nested && i > 0 {
                text += &format!("in = 'd{}'\naffinity = [0]\n", i - 1);
            } else {
                text += &live;
            }
            text += match budgets {
                0 => "",
                1 => "vcpu.0 = { weight = 77, budget = '1ms' }\n",
                _ => "budget_of = 'vm'\n",
            };
            for (j, task) in tasks.iter().enumerate() {
                text += &format!("[domain.d{i}.task.job{j}]\n{task}");
                if copied {
                    text += "copies = 3\nstagger = '7us'\n";
                }
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn a_host_survives_being_written_and_read(text in arbitrary_host_file()) {
        let host = valid(&text);
        let written = to_toml(&host);
        let again = parse(&written, "other.toml", &Overrides::default());
        prop_assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{written}")), host);
    }

    #[test]
    fn any_bytes_give_a_host_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Err(e) = parse_bytes(&bytes, "fuzz.toml", &Overrides::default()) {
            prop_assert!(!e.render(true).is_empty() && e.records().len() == e.count());
        }
    }

    #[test]
    fn any_option_gives_a_host_or_errors(
        change in "[a-z.*=0-9\"'{}\\[\\] %ms-]{0,40}",
        path in prop::sample::select(vec![
            "domain.vm.", "domain.*.task.", "pool.*.", "machine.", "domain.vm.vcpu.0.",
            "domain.vm.generate.", "",
        ]),
    ) {
        if let Err(e) = changed(MINIMAL, &set(&[&format!("{path}{change}")])) {
            prop_assert!(!e.render(false).is_empty() && e.records().len() == e.count());
        }
    }

    #[test]
    fn a_damaged_host_file_gives_a_host_or_errors(
        source in prop::sample::select(
            vec![MINIMAL, TWO_POOLS, include_str!("../../../examples/five-vms.toml")],
        ),
        damage in prop::collection::vec(
            (
                any::<prop::sample::Index>(),
                0usize..30,
                "[a-z0-9\"'=.\\[\\]{}#\n%-]{0,6}|99999999999999999999|-1|\u{fffd}|\u{0}",
            ),
            1..6,
        ),
    ) {
        let mut text = source.to_string();
        for (at, length, instead) in damage {
            let at = text.floor_char_boundary(at.index(text.len().max(1)));
            let end = text.floor_char_boundary((at + length).min(text.len()));
            text.replace_range(at..end.max(at), &instead);
        }
        let start = std::time::Instant::now();
        if let Err(e) = changed(&text, &Overrides::default()) {
            prop_assert!(!e.render(false).is_empty() && e.records().len() == e.count());
        }
        prop_assert!(start.elapsed().as_secs() < 10);
    }
}

const NETWORK: &str = "
[machine]
processors = 1
[pool.all]
policy = 'fixed-priority'
[domain.b]
priority = 7
task.serve = { on_packet = true, cost = '1ms', deadline = '5ms' }
task.step = { on_packet = true, cost = { min = '1ms', max = '2ms' }, deadline = '4ms' }
[domain.dom0]
[domain.a]
task.sense = { period = '10ms', cost = '1ms' }
task.act = { on_packet = true, cost = '1ms', deadline = '9ms', priority = 3 }
[network.lan]
driver = 'dom0'
discipline = 'rtca'
rtca = { batch = 64 }
netback = { tx_round = 100 }
scan = 'word'
events = 'one-by-one'
costs.tx = '3us'
costs.jitter = '5%'
costs.guest_wake = '9us'
costs.guest_wake_busy = '4us'
costs.guest_wake_busy_p90 = '5us'
nic.bandwidth = '100Mbit/s'
mtu = 9000
outside.client = { turnaround = '5us', vlan = 5 }
interface.a = { priority = 1, ring_slots = 64, credit_bytes = 10_000, vlan = 5, trunk = [7, 6] }
interface.b = { vlan = 5 }
plane.rest = { budget = '2ms', period = '10ms', processors = [0] }
plane.urgent = { up_to = 3, fifo = 50, poll = '20us' }
[flow.ping]
kind = 'ping'
from = 'client'
to = 'a'
[flow.rpc]
kind = 'request'
from = 'a'
to = 'b'
server = 'b.serve'
period = '10ms'
[flow.sensor]
kind = 'periodic'
from = 'b'
to = 'client'
period = '1ms'
[flow.iperf]
kind = 'stream'
from = 'a'
to = 'b'
[flow.storm]
kind = 'storm'
from = 'b'
to = 'a'
start = '1s'
[flow.breaker]
kind = 'goose'
from = 'client'
to = 'a'
period = '100ms'
slack_mean = '1s'
retransmit = '4ms'
[flow.alive]
kind = 'goose'
from = 'a'
to = 'b'
heartbeat = '2Hz'
[chain.loop]
steps = ['a.sense', 'b.step', 'a.act']
deadline = '10ms'
";

#[test]
fn a_network_has_its_guests_in_the_order_of_the_domains_with_their_priorities() {
    let host = valid(NETWORK);
    let lan = &host.networks[0];
    assert_eq!(host.domains[lan.driver.0].name, "dom0");
    assert_eq!(
        (lan.discipline.info.name, lan.discipline.options.count(&punctual_net::rtca::BATCH_OPTION)),
        ("rtca", 64)
    );
    let guests: Vec<_> = lan.interfaces.iter().map(|i| (i.domain.0, i.params.priority)).collect();
    assert_eq!(guests, [(0, Some(7)), (2, Some(1))]);
    assert_eq!((lan.nic.bandwidth_bps, lan.costs.jitter_ppm), (100_000_000, 50_000));
    assert_eq!((lan.costs.tx, lan.costs.rx), (Duration::from_us(3), Duration::from_us(2)));
    let busy = lan.costs.guest_wake_busy;
    assert_eq!((busy.median, busy.p90, busy.p99), (Duration::from_us(4), Some(Duration::from_us(5)), None));
    assert_eq!(lan.costs.guest_wake_most(), Duration::from_us(9));
}

#[test]
fn planes_are_in_the_order_of_their_urgency_with_their_budgets() {
    let host = valid(NETWORK);
    let [urgent, rest] = &host.networks[0].planes[..] else { panic!("two planes") };
    assert_eq!((urgent.name.as_str(), urgent.up_to, urgent.fifo), ("urgent", Some(3), Some(50)));
    assert_eq!((urgent.poll, &urgent.budget), (Duration::from_us(20), &None));
    let budget = rest.budget.as_ref().expect("a budget");
    assert_eq!((rest.up_to, rest.processors.as_slice(), budget.policy.name), (None, &[0][..], "deferrable"));
    assert_eq!(budget.params.budget, Some(Duration::from_ms(2)));
    let unlimited = changed(NETWORK, &set(&["network.lan.plane.rest.policy=rtds"]));
    let unlimited = unlimited.unwrap_or_else(|e| panic!("{e}"));
    let budget = unlimited.networks[0].planes[1].budget.as_ref().expect("a budget");
    assert_eq!(budget.params.extratime, Some(false), "time that nobody wants is not the plane's");
}

#[test]
fn interfaces_and_hosts_outside_have_vlans() {
    let host = valid(NETWORK);
    let lan = &host.networks[0];
    let own: Vec<_> = lan.interfaces.iter().map(|i| (i.vlans.untagged, i.vlans.tagged.clone())).collect();
    assert_eq!(own, [(Some(5), vec![]), (Some(5), vec![7, 6])]);
    assert_eq!((lan.outside[0].vlans.untagged, lan.mtu), (Some(5), Some(9_000)));
}

#[test]
fn flows_and_chains_name_domains_hosts_outside_and_tasks() {
    let host = valid(NETWORK);
    let kinds: Vec<_> = host.flows.iter().map(|f| f.traffic.kind()).collect();
    assert_eq!(kinds, ["ping", "request", "periodic", "stream", "storm", "goose", "goose"]);
    assert_eq!((host.flows[0].from, host.flows[0].to), (Endpoint::Outside(0), Endpoint::Guest(DomainIx(2))));
    let Traffic::Request { server: Some(server), .. } = host.flows[1].traffic else { panic!("a server") };
    assert_eq!(host.tasks[server.0].name, "serve");
    let steps: Vec<_> = host.chains[0].steps.iter().map(|s| host.tasks[s.0].name.as_str()).collect();
    assert_eq!(steps, ["sense", "step", "act"]);
}

#[test]
fn a_host_with_networks_survives_being_written_out() {
    let host = valid(NETWORK);
    let written = to_toml(&host);
    assert_eq!(
        parse(&written, "written.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}")),
        host
    );
}

#[test]
fn a_table_with_copies_is_as_many_flows_and_tasks() {
    let sensor = "[flow.sensor]\nkind = 'periodic'\nfrom = 'b'\nto = 'client'\nperiod = '1ms'\n";
    let b = |tasks: &str, flows: &str| {
        NETWORK.replace("[domain.dom0]", &format!("{tasks}\n[domain.dom0]")).replace(sensor, flows)
    };
    let short = b(
        "task.poll = { period = '5ms', cost = '1us', copies = 2, stagger = '1ms' }",
        &format!("{sensor}start = '2us'\ncopies = 3\nstagger = '3us'\n"),
    );
    let flow = |n: u64, start: u64| {
        sensor.replace("sensor", &format!("sensor-{n}")) + &format!("start = '{start}us'\n")
    };
    let long = b(
        "task.poll-1 = { period = '5ms', cost = '1us' }\n\
         task.poll-2 = { period = '5ms', cost = '1us', offset = '1ms' }",
        &(flow(1, 2) + &flow(2, 5) + &flow(3, 8)),
    );
    let host = valid(&short);
    assert_eq!(host.flows.len(), NETWORK.matches("[flow.").count() + 2);
    assert_eq!(host, valid(&long));
    assert_eq!(host, valid(&to_toml(&host)));
    let more = changed(&short, &set(&["flow.sensor.copies=1", "domain.b.task.poll.copies=40"]));
    let more = more.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((more.flows[2].name.as_str(), more.flows.len()), ("sensor-1", host.flows.len() - 2));
    assert_eq!(more.tasks.len(), host.tasks.len() + 38);
}

#[test]
fn a_chain_names_one_copy_of_a_task() {
    let copied = NETWORK.replace("task.sense = { ", "task.sense = { copies = 2, ");
    let said = refusal(&copied, &Overrides::default());
    assert!(said.contains("`a` has no task `sense`") && said.contains("did you mean `sense-1`?"), "{said}");
    let host = valid(&copied.replace("'a.sense'", "'a.sense-2'"));
    assert_eq!(host.tasks[host.chains[0].steps[0].0].name, "sense-2");
}

#[test]
fn hogs_and_sporadic_tasks_are_staggered_too() {
    let text = MINIMAL.to_string()
        + "[domain.vm.task.hog]\nhog = true\nstart = '1s'\ncopies = 2\nstagger = '1s'\n\
           [domain.vm.task.rare]\nseparation = '9ms'\ncost = '1us'\ncopies = 2\nstagger = '2ms'\n";
    let host = valid(&text);
    let [_, _, hog, _, rare] = &host.tasks[..] else { panic!("five tasks") };
    assert_eq!((hog.name.as_str(), hog.work), ("hog-2", Work::Hog { start: Duration::from_secs(2) }));
    let Work::Jobs { arrival: Arrival::Sporadic { offset, .. }, .. } = rare.work else { panic!("sporadic") };
    assert_eq!(offset, Duration::from_ms(2));
}

#[test]
fn totals_of_copies_are_those_of_tables() {
    let flows = |tables: usize| -> String {
        let flow = |n| format!("[flow.f{n}]\nkind = 'storm'\nfrom = 'a'\nto = 'b'\ncopies = 1024\n");
        NETWORK.to_string() + &(0..tables).map(flow).collect::<String>()
    };
    assert!(refusal(&flows(64), &Overrides::default()).contains("too many flows"));
    let tasks = |tables: usize| -> String {
        let task = |n| format!("[domain.vm.task.x{n}]\nperiod = '9ms'\ncost = '1us'\ncopies = 1024\n");
        MINIMAL.to_string() + &(0..tables).map(task).collect::<String>()
    };
    assert!(refusal(&tasks(64), &Overrides::default()).contains("too many tasks"));
}

#[test]
fn options_reach_into_networks_and_make_interfaces() {
    let changes =
        ["network.lan.discipline=preemptive", "network.*.interface.b.batch=8", "flow.ping.bytes=1400"];
    let host = changed(NETWORK, &set(&changes)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(host.networks[0].discipline.info.name, "preemptive");
    assert_eq!(host.networks[0].interfaces[0].params.batch, Some(8));
    let unknown = refusal(NETWORK, &set(&["flow.pong.bytes=1400"]));
    assert!(
        unknown.contains("there is no flow `pong`") && unknown.contains("did you mean `ping`?"),
        "{unknown}"
    );
}

#[test]
fn pools_that_do_not_list_processors_get_some_and_show_says_why() {
    let text = "[machine]\nprocessors = 6\n[slot.bus]\nprocessors = [2]\n[slot.card]\ninterrupts = 'eno6'\n\
                [pool.be]\nprocessors = [1]\npolicy = 'rtds'\n\
                [pool.rt]\nprocessors = { count = 2, isolated = true, near = 'card', smt = 'idle' }\n\
                policy = 'deferrable'\n";
    let host = parse(text, "host.toml", &Overrides::default()).expect("valid");
    assert_eq!((&host.pools[0].processors[..], &host.pools[1].processors[..]), (&[1][..], &[3, 4][..]));
    assert_eq!(host.pools[0].choice, None);
    let shown = to_toml(&host);
    let expected = "[pool.rt]\n# Chosen: the lowest free numbers because only the number of processors is \
                    known.\nprocessors = [3, 4]\n";
    assert!(shown.contains(expected), "{shown}");
    let again = parse(&shown, "host.toml", &Overrides::default()).expect("valid");
    assert_eq!(again.pools[1].processors, host.pools[1].processors);
    assert_eq!(
        to_toml(&again),
        shown.replace(
            "# Chosen: the lowest free numbers because only the number of \
                                               processors is known.\n",
            ""
        )
    );
    let fewer = changed(text, &set(&["pool.rt.processors.count=1", "slot.bus.processors=[3]"]));
    assert_eq!(fewer.expect("valid").pools[1].processors, [2]);
}

/// A domain that changes twice, and a pool that gets another policy, with events out of order.
const EVENTS: &str = "[machine]\nprocessors = 2\n[pool.rt]\nprocessors = [0]\npolicy = \"deferrable\"\n\
                      [pool.rest]\nprocessors = [1]\npolicy = \"credit\"\n\
                      [domain.a]\npool = \"rt\"\nvcpus = 2\nbudget = \"2ms\"\nperiod = \"10ms\"\n\
                      priority = 1\n\
                      [event.late]\nat = \"3s\"\ndomain = \"a\"\nbudget = \"1ms\"\nweight = 7\n\
                      [event.early]\nat = \"1s\"\ndomain = \"a\"\nperiod = \"5ms\"\npriority = 0\n\
                      [event.switch]\nat = \"1s\"\npool = \"rt\"\npolicy = \"sporadic\"\n\
                      sporadic = { refills_max = 3 }\n";

#[test]
fn events_are_in_the_order_of_time_and_make_modes() {
    let host = valid(EVENTS);
    let names: Vec<&str> = host.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["early", "switch", "late"]);
    assert_eq!(valid(&to_toml(&host)), host);
    let modes = host.modes();
    let begins: Vec<(u64, &[usize])> =
        modes.iter().map(|mode| (mode.from.as_ns() / 1_000_000, &mode.events[..])).collect();
    assert_eq!(begins, [(0, &[][..]), (1_000, &[0, 1]), (3_000, &[2])]);
    let of = |mode: usize| {
        let params = &modes[mode].host.vcpus[1].params;
        let policy = &modes[mode].host.pools[0].policy;
        let us = |time: Option<Duration>| time.map(|time| time.as_ns() / 1_000);
        (us(params.budget), us(params.period), params.priority, params.weight, policy.info.name)
    };
    assert_eq!(of(0), (Some(2_000), Some(10_000), Some(1), None, "deferrable"));
    assert_eq!(of(1), (Some(2_000), Some(5_000), Some(0), None, "sporadic"));
    assert_eq!(of(2), (Some(1_000), Some(5_000), Some(0), Some(7), "sporadic"));
    for mode in &modes {
        assert_eq!(valid(&to_toml(&mode.host)), mode.host);
    }
}

#[test]
fn what_a_policy_refuses_after_an_event_is_an_error_at_the_event_or_the_domain() {
    let longer = EVENTS.replace("period = \"5ms\"", "period = \"1500us\"");
    // The budget of 2 ms is longer than the new period.
    let found = changed(&longer, &Overrides::default()).expect_err("refused").to_string();
    assert!(
        found.contains("policy `deferrable` refuses `budget`") && found.contains("[event.early]"),
        "{found}"
    );
    let missing = EVENTS.replace("policy = \"deferrable\"", "policy = \"round-robin\"");
    let missing =
        missing.replace("budget = \"2ms\"\nperiod = \"10ms\"\n", "").replace("period = \"5ms\"\n", "");
    let found = changed(&missing, &Overrides::default()).expect_err("refused").to_string();
    assert!(found.contains("`budget` is missing: policy `sporadic` needs it"), "{found}");
}
