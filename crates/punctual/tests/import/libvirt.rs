//! libvirt's domain XML.

use std::fmt::Write;

use punctual_model::Host;
use punctual_model::live::{Attach, Backend};
use punctual_sched::{Duration, UnitParams};

use super::{answer, import, punctual};

/// A domain with these elements.
fn domain(name: &str, elements: &str) -> String {
    format!("<domain type='kvm'>\n<name>{name}</name>\n{elements}\n</domain>")
}

fn params<'a>(host: &'a Host, vcpu: &str) -> &'a UnitParams {
    let found = host.vcpus.iter().find(|v| v.name == vcpu);
    &found.unwrap_or_else(|| panic!("{vcpu}")).params
}

fn policies(host: &Host) -> Vec<(&str, Vec<usize>)> {
    host.pools.iter().map(|pool| (pool.policy.info.name, pool.processors.clone())).collect()
}

/// Writes the host file and exports it.
fn exported(toml: &str, to: &str) -> String {
    let directory = tempfile::TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    std::fs::write(&file, toml).expect("written");
    let made = answer(punctual().arg("export").arg(&file).args(["--to", to]));
    assert_eq!(made.code, Some(0), "{}", made.messages);
    made.toml + &made.messages
}

/// Shares are those of a domain. Linux gives each vCPU of the first 1024 of 3072.
#[test]
fn shares_are_divided_among_the_vcpus() {
    let two = domain("two", "<vcpu cpuset='0'>2</vcpu><cputune><shares>2048</shares></cputune>");
    let one = domain("one", "<vcpu cpuset='0'>1</vcpu><cputune><shares>1024</shares></cputune>");
    let imported = import("libvirt", &[&two, &one], &[]);
    let host = imported.host();
    let weights = ["two.0", "two.1", "one.0"].map(|name| params(&host, name).weight);
    assert_eq!(weights, [Some(1024); 3], "67 : 33");
    let back = exported(&imported.toml, "libvirt");
    assert!(back.contains("<shares>2048</shares>") && back.contains("<shares>1024</shares>"), "{back}");
}

#[test]
fn domains_without_shares_have_equal_ones_and_the_default_beside_others() {
    let three = domain("three", "<vcpu cpuset='0-3'>3</vcpu>");
    let one = domain("one", "<vcpu cpuset='0-3'>1</vcpu>");
    let host = import("libvirt", &[&three, &one], &[]).host();
    let (a, b) = (params(&host, "three.0").weight.expect("a weight"), params(&host, "one.0").weight);
    assert_eq!(Some(3 * a), b, "50 : 50");
    let given = domain("given", "<vcpu cpuset='0-3'>1</vcpu><cputune><shares>200</shares></cputune>");
    let imported = import("libvirt", &[&one, &given], &[]);
    imported.must_say(&["one: without <shares>, taken as 100", "1024"]);
    let host = imported.host();
    assert_eq!([params(&host, "one.0").weight, params(&host, "given.0").weight], [Some(100), Some(200)]);
}

#[test]
fn a_weight_of_each_vcpu_becomes_shares_of_the_domain() {
    let host = "[machine]\nprocessors = 2\n[pool.p]\nprocessors = [0]\npolicy = 'credit'\n\
                credit = { refill = 'period' }\n[domain.a]\nvcpus = 2\nweight = 512\n[domain.b]\n";
    let xml = exported(host, "libvirt");
    assert!(xml.contains("<shares>1024</shares>") && xml.contains("<shares>256</shares>"), "{xml}");
    let virsh = exported(host, "virsh");
    assert!(virsh.contains("--domain a --live --config --set cpu_shares=1024"), "{virsh}");
    let units = exported(host, "systemd");
    assert!(units.contains("CPUWeight=1024") && units.contains("CPUWeight=256"), "{units}");
}

const FIFO: &str = "<vcpu cpuset='1-4'>4</vcpu><cputune>\
    <vcpupin vcpu='0' cpuset='1'/><vcpupin vcpu='1' cpuset='2'/>\
    <vcpupin vcpu='2' cpuset='3'/><vcpupin vcpu='3' cpuset='4'/>\
    <emulatorpin cpuset='0'/><vcpusched vcpus='2,3' scheduler='fifo' priority='1'/></cputune>";

/// As KubeVirt's `realtime.mask` makes them: vCPUs 0 and 1 do the housekeeping.
#[test]
fn vcpus_of_the_fair_class_stay_below_the_real_time_ones() {
    let imported = import("libvirt", &[&domain("rt", FIFO)], &[]);
    let host = imported.host();
    let class = |n| {
        let params = params(&host, &format!("rt.{n}"));
        (params.best_effort, params.priority)
    };
    assert_eq!([0, 1, 2, 3].map(class), [(true, None), (true, None), (false, Some(1)), (false, Some(1))]);
    imported.must_say(&["rt: vCPUs of the fair class are best effort"]);
    let back = exported(&imported.toml, "libvirt");
    for (vcpu, is_realtime) in [(0, false), (1, false), (2, true), (3, true)] {
        assert_eq!(back.contains(&format!("<vcpusched vcpus='{vcpu}' scheduler='fifo'")), is_realtime);
    }
}

#[test]
fn a_fair_domain_beside_a_real_time_one_is_best_effort() {
    let fifo = "<vcpusched scheduler='fifo' priority='9'/>";
    let tuned = domain("rt", &format!("<vcpu cpuset='1'>1</vcpu><cputune>{fifo}</cputune>"));
    let fair = domain("fair", "<vcpu cpuset='1'>1</vcpu><cputune><shares>512</shares></cputune>");
    let idle = format!("<vcpu cpuset='1'>1</vcpu><cputune>{fifo}</cputune>")
        .replace("'fifo' priority='9'", "'idle'");
    let imported = import("libvirt", &[&tuned, &fair, &domain("idle", &idle)], &[]);
    let host = imported.host();
    assert_eq!(policies(&host), [("fixed-priority", vec![1])]);
    let below = ["rt.0", "fair.0", "idle.0"].map(|name| params(&host, name).best_effort);
    assert_eq!(below, [false, true, true]);
    imported.must_say(&["best-effort units have no weight"]);
    imported.must_say(&["scheduler idle is taken as best effort"]);
}

/// Quotas limit. What is promised to nobody must not be guaranteed, in whichever order the files are.
#[test]
fn quotas_are_limits_and_no_reservations() {
    let limit = |name: &str, quota: u32| {
        let tune = format!("<cputune><period>10000</period><quota>{quota}</quota></cputune>");
        domain(name, &format!("<vcpu cpuset='0'>1</vcpu>{tune}"))
    };
    let (a, b) = (limit("a", 6_000), limit("b", 7_000));
    for files in [[a.as_str(), b.as_str()], [b.as_str(), a.as_str()]] {
        let imported = import("libvirt", &files, &[]);
        let host = imported.host();
        assert_eq!(policies(&host), [("credit", vec![0])]);
        let caps = ["a.0", "b.0"].map(|name| params(&host, name).cap_percent);
        assert_eq!(caps, [Some(60), Some(70)]);
        imported.must_say(&["a quota of Linux's fair class limits, and reserves nothing"]);
    }
    let chosen = import("libvirt", &[&a, &b], &["--policy", "credit"]).host();
    assert_eq!(params(&chosen, "a.0").cap_percent, Some(60), "as without --policy");
    let free = domain("free", "<vcpu cpuset='0'>1</vcpu>");
    let imported = import("libvirt", &[&a, &free], &["--policy", "deferrable"]);
    let host = imported.host();
    let reserved = params(&host, "a.0");
    let (budget, period) = (Some(Duration::from_ms(6)), Some(Duration::from_ms(10)));
    assert_eq!((reserved.budget, reserved.period, reserved.best_effort), (budget, period, false));
    assert!(params(&host, "free.0").best_effort);
    imported.must_say(&["free: without a budget under policy deferrable: best effort"]);
    imported.must_say(&["policy deferrable does not read cap_percent"]);
}

#[test]
fn a_quota_of_the_whole_domain_limits_its_only_vcpu() {
    let tune = "<cputune><global_period>10000</global_period><global_quota>5000</global_quota></cputune>";
    let one = import("libvirt", &[&domain("one", &format!("<vcpu cpuset='0'>1</vcpu>{tune}"))], &[]);
    assert_eq!(params(&one.host(), "one.0").cap_percent, Some(50));
    one.must_say(&["<global_quota> limits the vCPU and the helper threads together"]);
    let two = import("libvirt", &[&domain("two", &format!("<vcpu cpuset='0'>2</vcpu>{tune}"))], &[]);
    assert_eq!(params(&two.host(), "two.0").cap_percent, None);
    two.must_say(&["<global_quota> is not carried over"]);
}

#[test]
fn vcpus_without_a_pin_get_all_processors_of_the_machine() {
    let big = domain("big", "<vcpu>8</vcpu>");
    let host = import("libvirt", &[&big], &["--processors", "8"]).host();
    assert_eq!(policies(&host), [("credit", (0..8).collect())]);
    assert!(!params(&host, "big.0").best_effort, "nothing is pinned");
    let guessed = import("libvirt", &[&big], &[]);
    assert_eq!(guessed.host().processors, 8);
    guessed.must_say(&["nothing says how many processors the machine has; taken as 8", "--processors"]);
}

/// Neither the emulator's processors nor those of pinned vCPUs are for the one without a pin.
#[test]
fn a_domain_without_a_pin_stays_out_of_the_pools_of_others() {
    let office = domain("office", "<vcpu>2</vcpu><cputune><shares>512</shares></cputune>");
    let imported = import("libvirt", &[&domain("rt", FIFO), &office], &["--processors", "8"]);
    let host = imported.host();
    assert_eq!(policies(&host), [("fixed-priority", vec![1, 2, 3, 4]), ("credit", vec![5, 6, 7])]);
    assert!(params(&host, "office.0").best_effort && params(&host, "office.1").best_effort);
    imported.must_say(&["office: without a pin, best effort", "nothing is pinned to"]);
    let full = import("libvirt", &[&domain("rt", FIFO), &office], &["--processors", "5"]);
    let host = full.host();
    assert_eq!(policies(&host), [("fixed-priority", vec![1, 2, 3, 4])]);
    assert!(params(&host, "office.0").best_effort);
}

#[test]
fn what_was_imported_can_be_attached_by_its_name() {
    let spaced = domain("plc 01", "<vcpu cpuset='1'>1</vcpu>");
    let xen = domain("pv", "<vcpu cpuset='2'>1</vcpu>").replace("'kvm'", "'xen'");
    let imported = import("libvirt", &[&spaced, &xen], &[]);
    imported.must_say(&["\"plc 01\" becomes plc_01"]);
    imported.must_say(&["pv: domains of type xen cannot be attached"]);
    let host = imported.host();
    let backend = |name: &str| {
        let domain = host.domains.iter().find(|domain| domain.name == name);
        domain.map(|domain| domain.live.backend.clone())
    };
    assert_eq!(backend("plc_01"), Some(Backend::Attach(Attach::Libvirt("plc 01".into()))));
    assert_eq!(backend("pv"), Some(Backend::Default));
    assert!(exported(&imported.toml, "libvirt").contains("<name>plc 01</name>"), "the name in libvirt");
    assert!(exported(&imported.toml, "virsh").contains("--domain 'plc 01'"));
}

#[test]
fn helpers_without_a_pin_are_where_libvirt_puts_them() {
    let fifo = "<cputune><vcpusched scheduler='fifo' priority='1'/></cputune>";
    let pinned = domain("pinned", &format!("<vcpu cpuset='2-3'>2</vcpu>{fifo}"));
    let imported = import("libvirt", &[&pinned], &["--processors", "4"]);
    imported.must_say(&["pinned: without <emulatorpin>, the helper threads run on the processors of <vcpu"]);
    assert_eq!(imported.host().domains[0].live.helpers.processors, Some(vec![2, 3]));
    let checked = super::check(&imported.toml);
    assert!(checked.contains("helper"), "they may keep its vCPUs from running: {checked}");
    let free = domain("free", &format!("<vcpu>2</vcpu>{fifo}"));
    let imported = import("libvirt", &[&free], &["--processors", "4"]);
    imported.must_say(&["free: without <emulatorpin>, libvirt lets the helper threads run anywhere"]);
}

#[test]
fn export_says_when_helpers_share_the_vcpus_processors() {
    let host = "[machine]\nprocessors = 1\n[pool.p]\npolicy = 'fixed-priority'\n[domain.a]\npriority = 1\n";
    for target in ["libvirt", "virsh", "qemu"] {
        let made = exported(host, target);
        assert!(made.contains("a: helpers: every processor is in a pool"), "{made}");
    }
    let text = "[machine]\nprocessors = 2\n[pool.p]\nprocessors = [1]\npolicy = 'deferrable'\n[domain.a]\n\
                budget = '400us'\nperiod = '1ms'\n";
    let made = exported(text, "libvirt");
    assert!(made.contains("a unit waits for 1800 us, longer than 600us before"), "{made}");
}

#[test]
fn single_vcpus_are_plugged_in_or_not() {
    let mut vcpus = String::from("<vcpu current='2' cpuset='0-3'>4</vcpu><vcpus>");
    for (id, enabled) in [(0, "yes"), (1, "no"), (2, "no"), (3, "yes")] {
        let _ = write!(vcpus, "<vcpu id='{id}' enabled='{enabled}' hotpluggable='no'/>");
    }
    vcpus += "</vcpus><cputune><vcpupin vcpu='3' cpuset='2'/></cputune>";
    let imported = import("libvirt", &[&domain("some", &vcpus)], &[]);
    let host = imported.host();
    assert_eq!(host.vcpus.len(), 2);
    assert_eq!(params(&host, "some.1").affinity.as_ref().map(|set| set.len()), Some(1), "vCPU 3");
    imported
        .must_say(&["some: 2 of 4 vCPUs are plugged in at start; only they are imported, numbered from 0"]);
}

#[test]
fn elements_that_are_not_known_and_ranges_that_descend_are_said() {
    let misspelt =
        "<vcpu cpuset='0'>1</vcpu><cputunes/><cputune><vcpupins/><shares x='1'>5</shares></cputune>";
    let imported = import("libvirt", &[&domain("a", misspelt)], &[]);
    imported.must_say(&["<cputunes> is not known"]);
    imported.must_say(&["<vcpupins> is not carried over"]);
    imported.must_say(&["attribute `x` of <shares> is not known"]);
    let back = import("libvirt", &[&domain("a", "<vcpu cpuset='3-1'>1</vcpu>")], &[]);
    back.must_say(&["expected 1-3: ranges ascend"]);
    assert_eq!(back.code, Some(2));
}

/// Real-time vCPUs, quotas, weights, pins: what comes back from libvirt's XML is what went there.
#[test]
fn an_import_of_an_export_is_the_same_host() {
    let files = [
        domain("rt", FIFO),
        domain(
            "a",
            "<vcpu cpuset='5-6'>2</vcpu><cputune><shares>2048</shares><emulatorpin cpuset='0'/></cputune>",
        ),
        domain(
            "b",
            "<vcpu cpuset='5-6'>1</vcpu><cputune><shares>512</shares><period>100000</period>\
             <quota>40000</quota><emulatorpin cpuset='0'/></cputune>",
        ),
    ];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let first = import("libvirt", &files, &[]);
    let directory = tempfile::TempDir::new().expect("a directory");
    let (file, out) = (directory.path().join("host.toml"), directory.path().join("xml"));
    std::fs::write(&file, &first.toml).expect("written");
    let made = answer(punctual().arg("export").arg(&file).args(["--to", "libvirt", "--output"]).arg(&out));
    assert_eq!(made.code, Some(0), "{}", made.messages);
    let text = |name: &str| std::fs::read_to_string(out.join(name)).expect("exported");
    let again = [text("rt.xml"), text("a.xml"), text("b.xml")];
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    let second = import("libvirt", &again, &[]);
    let (first, second) = (first.host(), second.host());
    assert_eq!((first.pools, first.domains, first.vcpus), (second.pools, second.domains, second.vcpus));
}
