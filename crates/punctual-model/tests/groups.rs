//! Group addresses of interfaces, and priorities by PCP.

use punctual_model::file::{Overrides, parse, to_toml};
use punctual_model::network::Groups;

#[test]
fn groups_are_addresses_or_ranges_and_come_back_as_they_were() {
    let text = "machine.processors = 2\npool.cpu = { policy = 'fixed-priority' }\n\
                domain.driver = {}\ndomain.relay = {}\nnetwork.bus.driver = 'driver'\n\
                network.bus.interface.relay.groups = ['01:0C:cd:01:00:03',
                '01:0c:cd:04:00:00-01:0c:cd:04:01:ff']\n";
    let host = parse(text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let groups = &host.networks[0].interfaces[0].groups;
    assert!(groups[0].contains([1, 0x0c, 0xcd, 1, 0, 3]) && !groups[0].contains([1, 0x0c, 0xcd, 1, 0, 4]));
    assert!(groups[1].contains([1, 0x0c, 0xcd, 4, 1, 0]) && !groups[1].contains([1, 0x0c, 0xcd, 4, 2, 0]));
    let again = parse(&to_toml(&host), "host.toml", &Overrides::default());
    assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), host);
}

#[test]
fn priorities_by_pcp_and_the_tags_of_flows_come_back_as_they_were() {
    let text = "machine.processors = 2\npool.cpu = { policy = 'fixed-priority' }\n\
                domain.driver = {}\ndomain.relay = { priority = 7 }\ndomain.hmi = {}\n\
                network.bus.driver = 'driver'\nnetwork.bus.discipline = 'rtca'\n\
                network.bus.interface.relay.pcp = { 4 = 1, 6 = 0 }\n\
                flow.goose = { kind = 'goose', from = 'relay', to = 'hmi', pcp = 4 }\n\
                flow.mms = { kind = 'ping', from = 'hmi', to = 'relay' }\n";
    let host = parse(text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let relay = &host.networks[0].interfaces[0];
    let priorities = [None, Some(0), Some(4), Some(6)].map(|pcp| relay.priority_of(pcp));
    assert_eq!(priorities, [Some(7), Some(7), Some(1), Some(0)]);
    assert_eq!(host.flows.iter().map(|flow| flow.pcp).collect::<Vec<_>>(), [Some(4), None]);
    let again = parse(&to_toml(&host), "host.toml", &Overrides::default());
    assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), host);
}

#[test]
fn what_is_no_group_address_is_none() {
    for text in [
        "",
        "01:0c:cd:04:00",
        "01:0c:cd:04:00:00:00",
        "02:0c:cd:04:00:00",
        "1:c:cd:4:0:0",
        "01-0c-cd-04-00-00",
        "01:0c:cd:04:00:01-01:0c:cd:04:00:00",
        "01:0c:cd:04:00:01-",
        "01:0c:cd:04:00:0g",
        "01:0c:cd:04:00:+1",
    ] {
        assert_eq!(Groups::parse(text), None, "{text}");
    }
}
