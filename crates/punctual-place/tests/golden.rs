//! One fleet's plan in full, and the reasons of refusals.

use punctual_model::file::parse_fleet;
use punctual_place::{Method, Plan, Standing, place};

const HOSTS: &str = "\
    [host.rack]\ncopies = 2\nmachine = { processors = 3 }\nmemory_mib = 8192\n\
    pool.rt = { processors = [1, 2], policy = 'deferrable' }\n";

fn plan(vms: &str) -> Plan {
    let text = format!("{HOSTS}{vms}");
    place(&parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}")), Method::Auto)
}

#[test]
fn vms_share_processors_as_far_as_all_budgets_are_guaranteed() {
    let plan = plan(
        "[vm.plc]\ncopies = 4\nbudget = '2ms'\nperiod = '10ms'\npriority = 1\nmemory_mib = 1024\n\
         [vm.hmi]\nbudget = '6ms'\nperiod = '20ms'\npriority = 2\nmemory_mib = 2048\ntoday = ['rack-2']\n",
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&plan).expect("plain data"));
}

#[test]
fn a_vm_that_fits_nowhere_has_a_reason_for_each_host() {
    let plan = plan(
        "[vm.big]\ncopies = 2\nhosts = ['rack-1']\nbudget = '6ms'\nperiod = '10ms'\npriority = 1\n\
         memory_mib = 7168\n[vm.late]\nbudget = '9ms'\nperiod = '10ms'\npriority = 2\nmemory_mib = 1024\n\
         vcpus = 3\n",
    );
    let why = |vm: &punctual_place::RefusedVm| {
        let why: Vec<String> =
            vm.why.iter().map(|why| format!("{}: {}", why.hosts.join(", "), why.reason)).collect();
        format!("{}. {}", vm.name, why.join("; "))
    };
    insta::assert_snapshot!(plan.refused.iter().map(why).collect::<Vec<_>>().join("\n"));
}

#[test]
fn one_vm_moves_to_the_fullest_host_that_keeps_all_guarantees() {
    let text = format!(
        "{HOSTS}[vm.a]\ncopies = 3\nbudget = '4ms'\nperiod = '10ms'\npriority = 1\n\
         today = ['rack-1', 'rack-1', 'rack-2']\n[vm.b]\nbudget = '5ms'\nperiod = '10ms'\npriority = 2\n"
    );
    let fleet = parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}"));
    let mut standing = Standing::new(&fleet);
    let answer = standing.ask("b").expect("a VM");
    // Beside one of 4 ms every 10 ms that may come late, 5 ms are not guaranteed.
    assert_eq!((answer.host.as_deref(), &answer.vms[0].processors[..]), (Some("rack-2"), &[2][..]));
    let answer = standing.ask("a-3").expect("a VM");
    assert_eq!((answer.today.as_deref(), answer.host.as_deref()), (Some("rack-2"), None));
    assert!(answer.why[0].reason.contains("would not be guaranteed"), "{:?}", answer.why);
}
