//! The configuration of the service: what it means, and the errors for its defects.

use punctual_model::file::{ConfigFile, Errors, parse_service};
use punctual_model::index::PoolIx;
use punctual_model::live::HelperPolicy;
use punctual_model::placement::slot_processors;
use punctual_model::service::{Helper, Match, Mode, Pattern, ServiceConfig, ThreadPlace, Threads};
use punctual_model::topology::{Device, Topology};
use punctual_sched::Duration;

fn parse(files: &[(&str, &str)]) -> Result<ServiceConfig, Errors> {
    let file = |&(name, text): &(&str, &str)| ConfigFile { name: name.into(), bytes: text.into() };
    parse_service(&files.iter().map(file).collect::<Vec<_>>(), &Topology::flat(4))
}

/// The error for files with one defect: file, line, message, expected, nearest name.
fn defect(files: &[(&str, &str)]) -> (String, usize, String, String, Option<String>) {
    let errors = parse(files).expect_err("a defect");
    let mut records = errors.records();
    assert_eq!(records.len(), 1, "{}", errors.render(false));
    let record = records.remove(0);
    (record.file.unwrap_or_default(), record.line, record.message, record.expected, record.nearest)
}

const RELAY: &str = "[class.relay]\nmatch = [{ libvirt = 'relay-*' }, { metadata = 'relay' }]\n";

#[test]
fn no_files_are_a_configuration_without_classes() {
    assert_eq!(parse(&[]).expect("nothing"), ServiceConfig::default());
    assert_eq!(parse(&[("host.toml", "mode = 'observe'\n")]).expect("nothing"), ServiceConfig::default());
}

#[test]
fn tables_of_several_files_are_merged_by_name_in_their_order() {
    let pool = "[pool.rt]\nprocessors = [2, 3]\npolicy = 'deferrable'\n";
    let relay = format!("{RELAY}budget = '400us'\nperiod = '1ms'\npriority = 1\n");
    let more = "[class.bulk]\nmatch = [{ name = '*' }]\npool = 'rt'\nbest_effort = true\n\
                [class.one]\nmatch = [{ uuid = 'C7A5FDBD-cdaf-9455-926a-d65c16db1809' }, { unit = 'a?' }]\n\
                budget = '1ms'\nperiod = '10ms'\npriority = 2\n";
    let config = parse(&[("a", pool), ("b", &relay), ("c", more)]).expect("valid");
    assert_eq!(config.pools[0].processors, [2, 3]);
    let names: Vec<&str> = config.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["relay", "bulk", "one"]);
    let relay = &config.classes[0];
    assert_eq!(relay.pool, Some(PoolIx(0)), "the only pool");
    assert_eq!((relay.params.budget, relay.params.priority), (Some(Duration::from_us(400)), Some(1)));
    let matches = [Match::Libvirt(Pattern::new("relay-*")), Match::Metadata("relay".into())];
    assert_eq!(relay.matches, matches);
    let uuid = "c7a5fdbd-cdaf-9455-926a-d65c16db1809".to_owned();
    assert_eq!(config.classes[2].matches, [Match::Uuid(uuid), Match::Unit(Pattern::new("a?"))]);
}

#[test]
fn units_and_cgroups_are_named_or_matched() {
    let text = "[class.a]\nmatch = [{ unit = 'sniffer.service' }, { unit = 'libpod-*.scope' }, \
                { cgroup = '/kubepods.slice/*pod1234*' }]\n";
    let config = parse(&[("a", text)]).expect("valid");
    let [first, second, Match::Cgroup(path)] = &config.classes[0].matches[..] else {
        panic!("{:?}", config.classes[0].matches)
    };
    assert_eq!(*first, Match::Unit(Pattern::new("sniffer.service")));
    assert_eq!(*second, Match::Unit(Pattern::new("libpod-*.scope")));
    assert_eq!(path.names(), [Pattern::new("kubepods.slice"), Pattern::new("*pod1234*")]);
    assert_eq!(path.names()[0].literal(), Some("kubepods.slice"));
    assert_eq!(path.names()[1].literal(), None);
}

#[test]
fn a_name_given_twice_is_an_error_with_both_places() {
    let first = format!("# A comment.\n{RELAY}");
    let (file, line, message, expected, _) = defect(&[("host.toml", &first), ("host.d/b.toml", RELAY)]);
    assert_eq!((file.as_str(), line, message.as_str()), ("host.d/b.toml", 1, "[class.relay] is there twice"));
    assert_eq!(expected, "expected it once; it is in host.toml, line 2 first");
    let mode = "mode = 'observe'\n";
    let (_, _, message, expected, _) = defect(&[("a", mode), ("b", mode)]);
    assert_eq!(message, "`mode` is there twice");
    assert_eq!(expected, "expected it once; it is in a, line 1 first");
}

#[test]
fn the_service_observes_unless_it_is_to_enforce() {
    let mode = |text: &str| parse(&[("a", text)]).expect("valid").mode;
    assert_eq!(mode(""), Mode::Observe);
    assert_eq!(mode("mode = 'observe'\n"), Mode::Observe);
    assert_eq!(mode("mode = 'enforce'\n"), Mode::Enforce);
    let is_strict = |text: &str| parse(&[("a", text)]).expect("valid").is_strict;
    assert!(!is_strict("admission = 'warn'\n") && is_strict("admission = 'strict'\n"));
}

#[test]
fn what_this_version_cannot_carry_out_is_refused() {
    let version = env!("CARGO_PKG_VERSION");
    for key in ["domain", "flow"] {
        let (_, _, message, ..) = defect(&[("a", &format!("[{key}.a]\nbudget = '1ms'\n"))]);
        let of = "the service's configuration";
        let expected = format!("`{key}` in {of} is not supported by the service of punctual {version}");
        assert_eq!(message, expected);
    }
}

#[test]
fn errors_name_file_line_what_was_expected_and_the_nearest_name() {
    for (text, line, message, nearest) in [
        ("[class.a]\nmatch = [{ libvrt = 'x' }]\n", 2, "an item of `match` has no key `libvrt`", "libvirt"),
        (
            "[class.a]\nmatch = [{ name = 'x' }]\nbugdet = '1ms'\n",
            3,
            "[class.a] has no key `bugdet`",
            "budget",
        ),
        ("[class.a]\nmatch = [{ unit = 'sniffer' }]\n", 2, "`unit` cannot be \"sniffer\"", "sniffer.service"),
        ("[class.a]\nmatch = [{ unit = 'a.scpe' }]\n", 2, "`unit` cannot be \"a.scpe\"", "a.scope"),
        ("[class.a]\nmatch = [{ cgroup = 'a/b' }]\n", 2, "`cgroup` cannot be \"a/b\"", "/a/b"),
        (
            "[class.a]\nmatch = [{ cgroup = '/sys/fs/cgroup/a/b/' }]\n",
            2,
            "`cgroup` cannot be \"/sys/fs/cgroup/a/b/\"",
            "/a/b",
        ),
        ("[class.a]\nmatch = [{ exce = 'x' }]\n", 2, "an item of `match` has no key `exce`", "exec"),
        ("mdoe = 'observe'\n", 1, "the service's configuration has no key `mdoe`", "mode"),
        ("mode = 'obsrve'\n", 1, "`mode` is \"obsrve\"", "observe"),
    ] {
        let found = defect(&[("good", "[machine]\n"), ("bad", text)]);
        assert_eq!((found.0.as_str(), found.1, found.2.as_str()), ("bad", line, message));
        assert_eq!(found.4.as_deref(), Some(nearest), "{text}");
    }
    for (text, message) in [
        ("[class.a]\n", "`match` is missing in [class.a]"),
        ("[class.a]\nmatch = []\n", "`match` is empty"),
        ("[class.a]\nmatch = [{ name = 'a', unit = 'b' }]\n", "an item of `match` has one key"),
        ("[class.a]\nmatch = [{ uuid = 'x' }]\n", "`uuid` cannot be \"x\""),
        ("[class.a]\nmatch = [{ unit = 'init.scope' }]\n", "`unit` cannot be \"init.scope\""),
        ("[class.a]\nmatch = [{ unit = '/a.service' }]\n", "`unit` cannot be \"/a.service\""),
        ("[class.a]\nmatch = [{ cgroup = '/' }]\n", "`cgroup` cannot be \"/\""),
        ("[class.a]\nmatch = [{ cgroup = '/a/../b' }]\n", "`cgroup` cannot be \"/a/../b\""),
        (
            "[class.a]\nmatch = [{ cgroup = '/user.slice/user-1.slice' }]\n",
            "`cgroup` cannot be \"/user.slice/user-1.slice\"",
        ),
        (
            "[class.a]\nmatch = [{ name = 'x' }]\nbudget = '1ms'\n",
            "`budget` stands without `period` in [class.a]",
        ),
        ("[class.a]\nmatch = [{ name = 'x' }]\nbudget = '2ms'\nperiod = '1ms'\n", "`budget` is 2ms"),
        ("[class.a]\nmatch = [{ name = 'x' }]\npool = 'rt'\n", "there is no pool `rt`"),
        (
            "[pool.rt]\nprocessors = [4]\npolicy = 'deferrable'\n",
            "4 is not among the processors of the machine",
        ),
        ("mode = \n", "invalid TOML: a value is missing"),
        ("mode = 'observe'\nmode = 'observe'\n", "`mode` is there twice"),
    ] {
        let (file, _, found, ..) = defect(&[("other", "[machine]\n"), ("file", text)]);
        assert_eq!((file.as_str(), found.as_str()), ("file", message));
    }
}

#[test]
fn the_policy_of_its_pool_checks_a_class() {
    let text = format!("[pool.rt]\nprocessors = [2]\npolicy = 'deferrable'\n{RELAY}budget = '1ms'\n");
    let errors = parse(&[("host.toml", &text)]).expect_err("no period");
    let messages: Vec<String> = errors.records().into_iter().map(|record| record.message).collect();
    assert_eq!(messages, ["`period` is missing: policy `deferrable` needs it"]);
}

#[test]
fn several_pools_leave_the_choice_to_the_class() {
    let pool = |name: &str, processor| format!("[pool.{name}]\nprocessors = [{processor}]\npolicy = 'cbs'\n");
    let text = pool("a", 1) + &pool("b", 2) + RELAY + "budget = '1ms'\nperiod = '2ms'\n";
    let (_, line, message, expected, _) = defect(&[("host.toml", &text)]);
    assert_eq!((line, message.as_str()), (7, "`pool` is missing in [class.relay]"));
    assert_eq!(expected, "there are several pools; expected one of a, b");
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_their_file() {
    let files = [ConfigFile { name: "x.toml".into(), bytes: vec![0xff, b'\n'] }];
    let errors = parse_service(&files, &Topology::flat(1)).expect_err("no text");
    assert_eq!(errors.records()[0].file.as_deref(), Some("x.toml"));
}

/// Six processors on two nodes, 3 and 4 isolated; the interrupts of eno6 of node 1 go to 4.
fn two_nodes() -> Topology {
    let mut topology = Topology::flat(6);
    for one in &mut topology.processors {
        (one.node, one.cache) = (one.number / 3, one.number / 3);
        one.is_isolated = [3, 4].contains(&one.number);
    }
    let device = Device { node: Some(1), interrupts: [4].into(), ..Device::default() };
    topology.devices = [("0000:3b:00.0".to_owned(), device.clone()), ("eno6".to_owned(), device)].into();
    Topology { is_flat: false, ..topology }
}

fn parse_on(topology: &Topology, text: &str) -> Result<ServiceConfig, Errors> {
    parse_service(&[ConfigFile { name: "host.toml".into(), bytes: text.into() }], topology)
}

#[test]
fn pools_are_near_the_slots_of_this_machine() {
    for device in ["eno6", "0000:3b:00.0"] {
        let text = format!(
            "[slot.sv0]\ninterrupts = '{device}'\n[slot.own]\nprocessors = [5]\n\
             [pool.rt]\nprocessors = {{ count = 1, isolated = true, near = 'sv0' }}\npolicy = 'deferrable'\n\
             [pool.be]\nprocessors = {{ count = 2 }}\npolicy = 'deferrable'\n"
        );
        let config = parse_on(&two_nodes(), &text).expect("valid");
        let pool = |index: usize| (&config.pools[index].processors[..], config.pools[index].choice.as_ref());
        let (rt, choice) = pool(0);
        assert_eq!(rt, [3], "4 has interrupts, and 5 is in a slot");
        assert_eq!(
            choice.expect("chosen").reason,
            "isolated, one cache of NUMA node 1, in the cache of slot sv0"
        );
        assert_eq!(pool(1).0, [1, 4]);
        assert_eq!(config.slots.len(), 2);
    }
    // The file is for a part of the machine.
    let text = "[machine]\nprocessors = 3\n[pool.rt]\nprocessors = { count = 2 }\npolicy = 'deferrable'\n";
    assert_eq!(parse_on(&two_nodes(), text).expect("valid").pools[0].processors, [1, 2]);
}

#[test]
fn a_class_is_near_a_slot_within_its_pool() {
    let text = |slot: &str, pool: &str| {
        format!(
            "[slot.sv0]\ninterrupts = 'eno6'\n[slot.low]\nprocessors = [0]\n\
             [pool.rt]\nprocessors = {pool}\npolicy = 'deferrable'\n\
             {RELAY}near = '{slot}'\nbudget = '1ms'\nperiod = '10ms'\npriority = 1\n"
        )
    };
    let affinity = |slot: &str| {
        let config = parse_on(&two_nodes(), &text(slot, "[1, 2, 4, 5]")).expect("valid");
        let set = config.classes[0].params.affinity.clone().expect("it is near");
        set.iter().map(|place| config.pools[0].processors[place.index()]).collect::<Vec<_>>()
    };
    assert_eq!((affinity("sv0"), affinity("low")), (vec![4, 5], vec![1, 2]));
    // The whole pool is near; on a machine of which only the number of processors is known, any.
    for topology in [two_nodes(), Topology::flat(6)] {
        let config = parse_on(&topology, &text("sv0", "[4, 5]")).expect("valid");
        assert_eq!(config.classes[0].params.affinity, None);
    }
    for (slot, pool, message) in [
        ("sv0", "[1, 2]", "no processor of pool `rt` is on a NUMA node of slot `sv0`"),
        ("sv1", "[4, 5]", "there is no slot `sv1`"),
    ] {
        let records = parse_on(&two_nodes(), &text(slot, pool)).expect_err("not near").records();
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!((record.line, record.message.as_str()), (10, message));
    }
}

#[test]
fn threads_of_a_class_have_places_by_role() {
    let text = format!("{RELAY}threads = {{ io = 'near', main-loop = 'host' }}\n");
    let near = Helper { place: ThreadPlace::Near, ..Helper::default() };
    assert_eq!(threads_of(&text), Threads { io: near.clone(), ..Threads::default() });
    let text = format!("{RELAY}helpers = 'near'\nthreads = {{ rcu = {{ nice = 5 }} }}\n");
    let rcu = Helper { policy: HelperPolicy::Other { nice: 5 }, ..Helper::default() };
    assert_eq!(threads_of(&text), Threads { rcu, ..Threads::from(near) });
    let text = format!(
        "[pool.rt]\nprocessors = [1, 2]\npolicy = 'deferrable'\n[slot.rest]\nprocessors = [2, 3]\n{RELAY}\
         best_effort = true\nhelpers = {{ slot = 'rest', policy = 'fifo', priority = 7 }}\n"
    );
    let place = ThreadPlace::Slot { name: "rest".into(), processors: vec![3] };
    let helper = Helper { place, policy: HelperPolicy::Fifo { priority: 7 } };
    assert_eq!(threads_of(&text), Threads::from(helper));
}

fn threads_of(text: &str) -> Threads {
    parse(&[("a", text)]).expect("valid").classes[0].threads.clone()
}

#[test]
fn what_is_wrong_with_helpers_is_said_where_it_is() {
    const POOL: &str =
        "[pool.rt]\nprocessors = [1, 2]\npolicy = 'deferrable'\n[slot.low]\nprocessors = [2]\n";
    for (helpers, message, expected, nearest) in [
        ("'vcpu'", "`helpers` is \"vcpu\"", "expected a table, or one of host, near", None),
        ("{ slot = 'lwo' }", "there is no slot `lwo`", "expected one of low", Some("low")),
        (
            "{ slot = 'low' }",
            "pools have all processors of slot `low`",
            "expected a slot with another processor: helper threads never run on a pool's",
            None,
        ),
        (
            "{ place = 'near', slot = 'low' }",
            "`helpers` has both `slot` and `place`",
            "expected one of them",
            None,
        ),
        (
            "{ priority = 7 }",
            "policy `other` does not read `priority`",
            "expected `nice`, or policy = \"fifo\"",
            None,
        ),
        (
            "{ polcy = 'fifo' }",
            "`helpers` of a class has no key `polcy`",
            "expected one of place, slot, policy, priority, nice",
            Some("policy"),
        ),
    ] {
        let text = format!("{POOL}{RELAY}best_effort = true\nhelpers = {helpers}\n");
        let found = defect(&[("a", &text)]);
        let expected = (message, expected, nearest);
        assert_eq!((found.2.as_str(), found.3.as_str(), found.4.as_deref()), expected, "{helpers}");
        assert_eq!(found.1, 9);
    }
}

/// A class in pool rt that publishes slot relay, and what else is in the files.
fn publishing(pools: &str, more: &str) -> String {
    format!(
        "{pools}{RELAY}pool = 'rt'\nslot = 'relay'\nbest_effort = true\n\
         [class.hmi]\nmatch = [{{ name = 'hmi' }}]\nbest_effort = true\n{more}"
    )
}

const RT: &str = "[pool.rt]\nprocessors = [4]\npolicy = 'deferrable'\n";

#[test]
fn interrupts_of_a_class_go_where_it_says() {
    let text = |own: &str| {
        format!(
            "[slot.net]\nprocessors = [2, 4]\n{RT}[class.nic]\nmatch = [{{ interrupts = 'eno6' }}]\n{own}"
        )
    };
    let place = |own: &str| {
        let config = parse_on(&two_nodes(), &text(own)).expect("valid");
        let class = &config.classes[0];
        assert_eq!(class.devices().collect::<Vec<_>>(), ["eno6"]);
        (class.interrupts.clone(), config.joins.iter().map(|join| join.by.to_string()).collect::<Vec<_>>())
    };
    let net = ThreadPlace::Slot { name: "net".into(), processors: vec![2] };
    assert_eq!(place(""), (ThreadPlace::Host, vec![]));
    assert_eq!(place("helpers = 'near'\n").0, ThreadPlace::Near);
    assert_eq!(place("interrupts = { slot = 'net' }\n"), (net, vec!["interrupts of class nic".to_owned()]));
    let records = parse_on(&two_nodes(), &text("").replace("'eno6'", "'eno7'")).expect_err("none").records();
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.line, record.message.as_str()), (7, "this machine has no device `eno7`"));
    assert_eq!(record.nearest.as_deref(), Some("eno6"));
    let records =
        parse_on(&two_nodes(), &text("interrupts = { slot = 'ent' }\n")).expect_err("none").records();
    assert_eq!((records.len(), records[0].message.as_str()), (1, "there is no slot `ent`"));
}

#[test]
fn others_are_near_a_slot_that_a_class_publishes() {
    // The pool that is near chooses after the one that it is near, wherever it is in the file.
    let bulk = "[pool.bulk]\nprocessors = { count = 1, near = 'relay' }\npolicy = 'deferrable'\n";
    let rest = "[pool.rest]\nprocessors = [0, 1, 5]\npolicy = 'deferrable'\n";
    let chosen = "[pool.rt]\nprocessors = { count = 1, near = 'sv0' }\npolicy = 'deferrable'\n\
                  [slot.sv0]\ninterrupts = 'eno6'\n";
    for (rt, own) in [(RT, 4), (chosen, 3)] {
        let text = publishing(&format!("{bulk}{rt}{rest}"), "pool = 'rest'\nnear = 'relay'\nslot = 'hmi'\n");
        let config = parse_on(&two_nodes(), &text).expect("valid");
        let pool = |name: &str| config.pools.iter().find(|pool| pool.name == name).expect("there");
        assert_eq!(pool("rt").processors, [own]);
        assert!([3, 4].contains(&pool("bulk").processors[0]), "{:?}", pool("bulk"));
        let reason = &pool("bulk").choice.as_ref().expect("chosen").reason;
        assert!(reason.contains("in the cache of slot relay"), "{reason}");
        let near = config.class("hmi").and_then(|class| class.params.affinity.clone()).expect("it is near");
        assert_eq!(near.iter().map(|place| place.index()).collect::<Vec<_>>(), [2], "processor 5");
        let joined = |slot: &str| -> Vec<String> {
            config.joins.iter().filter(|join| join.slot == slot).map(|join| join.by.to_string()).collect()
        };
        assert_eq!(joined("relay"), ["pool bulk", "class hmi"]);
        let published = |name: &str| {
            let slot = config.slots.iter().find(|slot| slot.name == name).expect("there");
            slot_processors(&two_nodes(), slot).into_iter().collect::<Vec<_>>()
        };
        // A class that is near one publishes those of its own processors that are.
        assert_eq!((published("relay"), published("hmi")), (vec![own], vec![5]));
    }
}

#[test]
fn what_is_wrong_with_a_published_slot_is_said_where_it_is() {
    let near = "[pool.rt]\nprocessors = { count = 1, near = 'relay' }\npolicy = 'deferrable'\n";
    let rest = "[pool.rest]\nprocessors = [0, 5]\npolicy = 'deferrable'\n";
    for (pools, more, line, message) in [
        (
            format!("{RT}{rest}"),
            "pool = 'rest'\nslot = 'relay'\n",
            16,
            "slot `relay` is that of [class.relay]",
        ),
        (format!("{RT}[slot.relay]\nprocessors = [1]\n"), "", 9, "slot `relay` is that of [slot.relay]"),
        (
            format!("{near}{rest}"),
            "pool = 'rest'\n",
            2,
            "pool rt is near slot relay, whose place depends on the pool's",
        ),
        (
            format!("{RT}{rest}"),
            "pool = 'rest'\nslot = 'hmi'\nnear = 'hmi'\n",
            17,
            "slot `hmi` is near itself",
        ),
        (
            format!("{RT}{rest}"),
            "pool = 'rest'\nhelpers = { slot = 'relay' }\n",
            16,
            "pools have all processors of slot `relay`",
        ),
    ] {
        let records = parse_on(&two_nodes(), &publishing(&pools, more)).expect_err("a defect").records();
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!((record.line, record.message.as_str()), (line, message));
    }
    let (_, _, message, ..) = defect(&[("a", &format!("{RELAY}slot = 'relay'\n"))]);
    assert_eq!(message, "[class.relay] publishes a slot and has no pool");
}

#[test]
fn a_slot_of_a_device_that_the_machine_does_not_have_is_an_error() {
    let text = "[slot.sv0]\ninterrupts = 'eno7'\n\
                [pool.rt]\nprocessors = { count = 1, near = 'sv0' }\npolicy = 'deferrable'\n";
    let records = parse_on(&two_nodes(), text).expect_err("no such device").records();
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.line, record.message.as_str()), (2, "this machine has no device `eno7`"));
    let expected = "expected one of eno6, or the address of a PCI device";
    assert_eq!((record.expected.as_str(), record.nearest.as_deref()), (expected, Some("eno6")));
    let text = "[pool.rt]\nprocessors = { count = 3, isolated = true }\npolicy = 'deferrable'\n";
    let records = parse_on(&two_nodes(), text).expect_err("too many").records();
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.line, record.text.as_str()), (2, "processors"));
    assert_eq!(record.message, "pool rt wants 3 isolated processors, and 2 are there");
    assert_eq!(record.expected, "expected at most 2: 3-4 free, 0-2, 5 not isolated");
}

#[test]
fn slots_of_several_files_are_merged() {
    let slot = "[slot.sv0]\nprocessors = [1]\n";
    let config = parse(&[("a", slot), ("b", "[slot.sv1]\nprocessors = [2]\n")]).expect("valid");
    assert_eq!(config.slots.len(), 2);
    let (_, _, message, expected, _) = defect(&[("a", slot), ("b", slot)]);
    assert_eq!(message, "[slot.sv0] is there twice");
    assert_eq!(expected, "expected it once; it is in a, line 1 first");
}
