//! What xl prints and reads.

use punctual_model::Host;
use punctual_sched::{Duration, UnitParams};

use super::import;

fn params<'a>(host: &'a Host, vcpu: &str) -> &'a UnitParams {
    let found = host.vcpus.iter().find(|v| v.name == vcpu);
    &found.unwrap_or_else(|| panic!("{vcpu}")).params
}

fn pools(host: &Host) -> Vec<(&str, &str, Vec<usize>)> {
    let pool = |pool: &'_ punctual_model::host::Pool| pool.processors.clone();
    host.pools.iter().map(|p| (p.name.as_str(), p.policy.info.name, pool(p))).collect()
}

fn pool_of<'a>(host: &'a Host, domain: &str) -> &'a str {
    let domain = host.domains.iter().find(|d| d.name == domain).unwrap_or_else(|| panic!("{domain}"));
    &host.pools[host.pool_of(domain.parent).0].name
}

/// As `xl cpupool-list` prints with this option: `-c` for the processors.
fn cpupools(rows: &[(&str, &str, &str, usize)], with_processors: bool) -> String {
    let mut out = format!("{:<19}", "Name");
    out += if with_processors { "CPU list\n" } else { "CPUs   Sched     Active   Domain count\n" };
    for (name, list, scheduler, domains) in rows {
        let count = list.split(',').count();
        out += &if with_processors {
            format!("{name:<19}{list}\n")
        } else {
            format!("{name:<19}{count:>3} {scheduler:>9}       y       {domains:>4}\n")
        };
    }
    out
}

const TWO: [(&str, &str, &str, usize); 2] = [("Pool-0", "0,1", "credit2", 1), ("rt", "2,3", "rtds", 1)];

fn rtds(name: &str, vcpu: u32, period_us: u32, budget_us: u32, extratime: &str) -> String {
    format!("{name:<33} {:>4} {vcpu:>4} {period_us:>9} {budget_us:>9} {extratime:>10}\n", 3)
}

fn rtds_head() -> String {
    let (a, b, c, d, e, f) = ("Name", "ID", "VCPU", "Period", "Budget", "Extratime");
    format!("{a:<33} {b:>4} {c:>4} {d:>9} {e:>9} {f:>10}\n")
}

fn vcpus_head() -> String {
    let (a, b, c, d, e, f) = ("Name", "ID", "VCPU", "CPU", "State", "Time(s)");
    format!("{a:<32} {b:>5} {c:>5} {d:>5} {e:>5} {f:>9} Affinity (Hard / Soft)\n")
}

fn vcpu(name: &str, vcpu: u32, state: &str, hard: &str) -> String {
    format!("{name:<32} {:>5} {vcpu:>5} {:>5} {state:>5} {:>9.1}  {hard} / all\n", 3, 0, 1.5)
}

/// `(xl cpupool-list -c; xl sched-rtds -v all; xl vcpu-list)` where Pool-0 has Xen's default, Credit2.
#[test]
fn a_pool_whose_scheduler_nothing_says_has_no_budgets() {
    let printed = cpupools(&TWO, true)
        + "Cpupool rt: sched=RTDS\n"
        + &rtds_head()
        + &rtds("video", 0, 10_000, 4_000, "yes")
        + &vcpus_head()
        + &vcpu("Domain-0", 0, "r--", "all")
        + &vcpu("video", 0, "-b-", "2-3");
    let imported = import("xl", &[&printed], &[]);
    let host = imported.host();
    assert_eq!(pools(&host), [("Pool-0", "credit", vec![0, 1]), ("rt", "rtds", vec![2, 3])]);
    imported.must_say(&["Pool-0: nothing says which scheduler it has", "Credit2", "`xl cpupool-list`"]);
    assert_eq!(params(&host, "Domain-0.0").budget, None);
    assert_eq!(params(&host, "video.0").budget, Some(Duration::from_ms(4)));
    assert_eq!(pool_of(&host, "video"), "rt");
    let said = import("xl", &[&(cpupools(&TWO, false) + &printed)], &[]);
    assert!(!said.says(&["nothing says which scheduler"]), "{}", said.messages);
    said.must_say(&["Pool-0: credit2 is taken as credit"]);
}

/// First in the file, and behind another table.
#[test]
fn the_table_of_pools_is_read_wherever_it_stands() {
    let (list, processors) = (cpupools(&TWO, false), cpupools(&TWO, true));
    let rows = vcpus_head() + &vcpu("Domain-0", 0, "r--", "all");
    for text in [format!("{list}{processors}{rows}"), format!("{rows}{processors}{list}")] {
        let imported = import("xl", &[&text], &[]);
        let host = imported.host();
        let policies: Vec<_> = pools(&host).iter().map(|(name, policy, _)| (*name, *policy)).collect();
        assert_eq!(policies, [("Pool-0", "credit"), ("rt", "rtds")]);
        assert!(!imported.says(&["not understood"]), "{}", imported.messages);
    }
}

#[test]
fn the_tables_of_xen_4_5_to_4_9_are_read() {
    let pools = cpupools(&[("Pool-0", "0,1", "", 1), ("rt", "2", "", 1), ("old", "3", "", 1)], true);
    let printed = pools
        + "Cpupool rt: sched=RTDS\nName                                ID VCPU    Period    Budget\n"
        + "video                                3    0     10000      4000\n"
        + "Cpupool Pool-0:\nName                                ID Weight\n"
        + "Domain-0                             0    512\n"
        + "Name                                ID Period Slice  Latency Extra Weight\n";
    let imported = import("xl", &[&printed], &[]);
    let host = imported.host();
    let video = params(&host, "video.0");
    assert_eq!((video.budget, video.extratime), (Some(Duration::from_ms(4)), Some(false)));
    assert_eq!(params(&host, "Domain-0.0").weight, Some(512));
    imported.must_say(&["Pool-0: credit2 is taken as credit"]);
    let sedf = "Name                                ID Period Slice  Latency Extra Weight\n\
                web                                  1     20      5        0     1      0\n";
    let host = import("xl", &[sedf], &[]).host();
    assert_eq!(host.pools[0].policy.info.name, "sedf");
    let web = params(&host, "web.0");
    assert_eq!((web.period, web.budget), (Some(Duration::from_ms(20)), Some(Duration::from_ms(5))));
}

#[test]
fn other_schedulers_are_said_to_become_credit() {
    for (scheduler, words) in
        [("null", "a processor of its own"), ("arinc653", "its schedule"), ("x9", "not known")]
    {
        let printed = cpupools(&[("Pool-0", "0,1", scheduler, 1)], false) + &vcpus_head();
        let imported = import("xl", &[&(printed + &vcpu("a", 0, "r--", "all"))], &[]);
        assert_eq!(imported.host().pools[0].policy.info.name, "credit");
        imported.must_say(&["Pool-0: ", scheduler, words]);
    }
}

#[test]
fn prompts_nameless_domains_and_vcpus_that_are_offline_are_no_vcpus() {
    let printed = "[root@xen ~]# xl vcpu-list\n".to_string()
        + &vcpus_head()
        + &vcpu("a b", 0, "r--", "0")
        + &vcpu("a b", 1, "--p", "0")
        + &vcpu("(null)", 0, "--p", "none")
        + &vcpu("odd", 0, "-b-", "none")
        + "[root@xen ~]# xl sched-credit\n[root@xen ~]# exit\n";
    let imported = import("xl", &[&printed], &[]);
    let host = imported.host();
    let names: Vec<&str> = host.vcpus.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["a_b.0", "odd.0"]);
    imported.must_say(&["a domain without a name", "(null)"]);
    imported.must_say(&["a b: vCPUs that are not online are left out"]);
    imported.must_say(&["a hard affinity without processors is taken as all"]);
    imported.must_say(&["not understood: [root@xen ~]# exit"]);
}

#[test]
fn a_table_that_is_not_known_ends_the_one_before() {
    let printed = vcpus_head()
        + &vcpu("a", 0, "r--", "all")
        + "Name                                ID Uptime\na                                    3 0:01:00\n";
    let imported = import("xl", &[&printed], &[]);
    assert_eq!(imported.host().vcpus.len(), 1);
    imported.must_say(&["a table that import does not read: Name ID Uptime"]);
}

/// `xl list -v -c`: the pool stands behind UUID, reason and label.
#[test]
fn xl_list_says_which_pool_a_domain_is_in() {
    let printed = cpupools(&TWO, true)
        + &cpupools(&TWO, false)
        + "Name                                        ID   Mem VCPUs\tState\tTime(s)"
        + "   UUID                            Reason-Code\tSecurity Label         Cpupool\n"
        + "a b                                          3  1024     2     -b----       1.5"
        + " 00000000-0000-0000-0000-000000000000        -                -              rt\n";
    let host = import("xl", &[&printed], &[]).host();
    assert_eq!((pool_of(&host, "a_b"), host.vcpus.len()), ("rt", 2));
    let guess = cpupools(&TWO, true) + &cpupools(&TWO, false) + &vcpus_head() + &vcpu("c", 0, "r--", "all");
    let guess = import("xl", &[&guess], &[]);
    assert_eq!(pool_of(&guess.host(), "c"), "Pool-0");
    guess.must_say(&["c: nothing says in which pool it is; taken as Pool-0", "`xl list -c`"]);
}

const CONFIG: &str = r#"# As tools/examples/xlexample.hvm begins.
type = "hvm"
name = "example.hvm"
kernel = "/boot/vmlinuz"; extra = 'root=/dev/xvda1 # no comment'
memory = 0x80
vcpus = 3
maxvcpus = 4
pool = "rt"
cpu_weight = 512
cap = 150
cpus = [ "2", "2-3,^3",
         "all" ]  # of the third vCPU
cpus_soft = "all"
disk = [ '/dev/vg/guest,raw,xvda,rw' ]
cpu_wieght = 5
"#;

#[test]
fn a_configuration_of_a_domain_is_read() {
    let pool = "name = \"rt\"\nsched = \"credit\"\ncpus = [\"2\", \"3\"]\n";
    let imported = import("xl", &[CONFIG, pool], &[]);
    let host = imported.host();
    assert_eq!(pools(&host), [("rt", "credit", vec![2, 3])]);
    assert_eq!((pool_of(&host, "example_hvm"), host.vcpus.len()), ("rt", 3));
    let affinity = |n: usize| host.vcpus[n].params.affinity.as_ref().map(|set| set.len());
    assert_eq!([0, 1, 2].map(affinity), [Some(1), Some(1), None]);
    assert_eq!((host.vcpus[0].params.weight, host.vcpus[0].params.cap_percent), (Some(512), Some(50)));
    imported.must_say(&["3 of 4 vCPUs are plugged in at start"]);
    imported.must_say(&["`cpus_soft` is not carried over"]);
    imported.must_say(&["`cpu_wieght` is not known"]);
    assert!(!imported.says(&["disk"]) && !imported.says(&["kernel"]), "{}", imported.messages);
}

#[test]
fn exclusions_are_of_all_processors() {
    let all_but = "name = 'a'\nmemory = 128\ncpus = \"all,^0\"\n";
    let host = import("xl", &[all_but], &["--processors", "4"]).host();
    let set: Vec<usize> =
        params(&host, "a.0").affinity.as_ref().expect("a set").iter().map(|cpu| cpu.index()).collect();
    assert_eq!(set, [1, 2, 3]);
    let nodes = import("xl", &["name = 'a'\nmemory = 128\ncpus = \"node:0\"\n"], &["--processors", "4"]);
    nodes.must_say(&["NUMA nodes are not known"]);
}

#[test]
fn a_configuration_with_a_fault_is_shown() {
    for (text, words) in [
        ("name = \"a\nvcpus = 2\n", "a string that does not end"),
        ("name = 'a'\nvcpus = many\n", "expected a number, a string in quotes"),
        ("name = 'a'\nvcpus = 'many'\n", "`vcpus` is \"many\""),
        ("vcpus = 2\nmemory = 12\n", "the domain has no name"),
        ("name = 'a' 'b'\n", "text behind a value"),
        ("name = 'a'\ncpus = [ '1'\n", "a list that does not end"),
    ] {
        let imported = import("xl", &[text], &[]);
        imported.must_say(&[words]);
        assert_eq!(imported.code, Some(2));
    }
}

#[test]
fn what_xl_does_not_print_is_told_what_is_expected() {
    let imported = import("xl", &["<domain/>\n"], &[]);
    imported.must_say(&["xl vcpu-list", "xl.cfg"]);
    assert_eq!(imported.code, Some(2));
}
