//! What the tables of networks say about the live switch: planes, VLANs, MTU.

use std::collections::BTreeMap;

use punctual_sched::registry::{self, Options, PolicyInfo};
use punctual_sched::{Instant, ParamError, UnitParams};

use super::draft::{InterfaceDraft, PlaneDraft};
use super::keys::{GROUPS_MAX, PCP, PLANES_MAX, VLAN_MAX, VLANS_MAX};
use super::names::{Name, own_name};
use crate::file::entry::shorten;
use crate::file::error::Errors;
use crate::file::key::KeyInfo;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::network::{DEFAULT_VLAN, Endpoint, Groups, Network, OutsideHost, Plane, PlaneBudget, Vlans};

pub(super) fn planes(network: Section<'_>, errors: &mut Errors) -> Vec<PlaneDraft> {
    let sections = network.named("plane", errors);
    if sections.len() > PLANES_MAX {
        let message = format!("{} planes", sections.len());
        errors.add(network.place_of("plane"), message, format!("expected at most {PLANES_MAX}"));
    }
    let mut planes: Vec<_> = sections.into_iter().map(|section| plane(section, errors)).collect();
    // Most urgent first, and the rest last.
    planes.sort_by_key(|draft| draft.plane.up_to.map_or(u64::MAX, u64::from));
    for pair in planes.windows(2) {
        if pair[0].plane.up_to == pair[1].plane.up_to {
            let [first, second] = [&pair[0].name.text, &pair[1].name.text];
            let message = format!("planes `{first}` and `{second}` have the same `up_to`");
            errors.add(pair[1].up_to, message, "expected a different one for each, and none for the last");
        }
    }
    if let Some(last) = planes.last()
        && last.plane.up_to.is_some()
    {
        let message = "no plane takes what is less urgent";
        errors.add(last.up_to, message, "expected one plane without `up_to`, for all other interfaces");
    }
    planes
}

fn plane(section: Section<'_>, errors: &mut Errors) -> PlaneDraft {
    let processors = section.get("processors").and_then(|entry| {
        let most = crate::file::limits::PROCESSORS_MAX as usize;
        entry.indices(most, "processors of the machine", errors)
    });
    let processors = processors.unwrap_or_default();
    PlaneDraft {
        plane: Plane {
            name: section.name.into(),
            up_to: section.count("up_to", errors).map(|n| n as u32),
            processors: processors.iter().map(|(n, _)| *n).collect(),
            fifo: section.count("fifo", errors).map(|n| n as u32),
            poll: section.duration_or_default("poll", errors),
            budget: budget(section, errors),
        },
        name: own_name(section),
        up_to: section.place_of("up_to"),
        processors,
    }
}

/// The plane's budget, which its policy takes.
fn budget(section: Section<'_>, errors: &mut Errors) -> Option<PlaneBudget> {
    let (budget, period) = (section.duration("budget", errors), section.duration("period", errors));
    let policy = match section.get("policy") {
        Some(entry) => entry.policy(errors),
        None => registry::find(section.default("policy")),
    };
    let given = |key| section.get(key).is_some();
    for (key, other) in [("budget", "period"), ("period", "budget"), ("policy", "budget")] {
        if given(key) && !given(other) {
            let message = format!("{} has `{key}` and no `{other}`", section.header());
            errors.add(section.place_of(key), message, "expected both `budget` and `period`");
        }
    }
    let (budget, period, policy) = (budget?, period?, policy?);
    let params = UnitParams {
        budget: Some(budget),
        period: Some(period),
        // No one else wants the time, and the plane must not have it.
        extratime: Some(false),
        ..UnitParams::default()
    };
    if let Err((key, expected)) = accepts(policy, &params) {
        let message = match key {
            "policy" => format!("policy `{}` cannot keep a plane's budget", policy.name),
            key => format!("policy `{}` refuses the plane's `{key}`", policy.name),
        };
        let place = section.table.get(key).map_or(section.place, |entry| entry.node.place);
        errors.add(place, message, format!("expected {expected}"));
        return None;
    }
    Some(PlaneBudget { policy, params })
}

/// Does the policy keep a budget with these parameters? Else which key it refuses, and what it expects.
fn accepts(policy: &PolicyInfo, params: &UnitParams) -> Result<(), (&'static str, String)> {
    if policy.budgets.min().is_none() {
        let example = punctual_sched::servers::deferrable::NAME;
        return Err(("policy", format!("a policy that keeps budgets, for example \"{example}\"")));
    }
    let built = policy.build(1, &Options::new());
    let mut built = built.map_err(|error| ("policy", error.expected.to_string()))?;
    match built.insert(Instant::ZERO, params) {
        Ok(_) => Ok(()),
        Err(ParamError::OutOfRange { field, expected }) => Err((field, expected.to_string())),
        Err(ParamError::Missing { field }) => Err(("policy", format!("a policy that needs no `{field}`"))),
    }
}

/// The VLANs of an interface or of a host outside.
pub(super) fn vlans(section: Section<'_>, errors: &mut Errors) -> Vlans {
    let untagged = section.count("vlan", errors).map(|n| n as u16);
    let Some(entry) = section.get("trunk") else { return Vlans { untagged, tagged: Vec::new() } };
    let numbers = entry.numbers(1..=VLAN_MAX, "VLANs", errors).unwrap_or_default();
    let mut tagged = Vec::new();
    for (number, place) in numbers {
        let number = number as u16;
        if untagged == Some(number) || tagged.contains(&number) {
            let message = format!("VLAN {number} is there twice");
            errors.add(place, message, "expected each VLAN once: without a tag as `vlan`, or in `trunk`");
        }
        tagged.push(number);
    }
    Vlans { untagged, tagged }
}

/// The priorities of an interface's frames by the PCP of their VLAN tag.
pub(super) fn classes(section: Section<'_>, errors: &mut Errors) -> BTreeMap<u8, u32> {
    let Some(pcp) = section.table("pcp", errors) else { return BTreeMap::new() };
    if section.get("credit_bytes").is_some() {
        let message = "an interface with `pcp` has no rate limit";
        let expected = "expected `pcp` or `credit_bytes`: frames that wait for credit would hold up the \
                        urgent ones behind them in the guest's ring";
        errors.add(section.place_of("credit_bytes"), message, expected);
    }
    let mut class = |(number, key): (u8, &KeyInfo)| Some((number, pcp.count(key.name, errors)? as u32));
    (0..).zip(PCP.keys).filter_map(&mut class).collect()
}

/// The group addresses of an interface.
pub(super) fn groups(section: Section<'_>, errors: &mut Errors) -> Vec<Groups> {
    let expected = "expected group addresses, for example [\"01:0c:cd:04:00:00-01:0c:cd:04:01:ff\"]";
    let Some(entry) = section.get("groups") else { return Vec::new() };
    let texts = entry.texts(expected, errors).unwrap_or_default();
    if texts.len() > GROUPS_MAX {
        let message = format!("`groups` has {} entries", texts.len());
        errors.add(entry.key_place, message, format!("expected at most {GROUPS_MAX}"));
        return Vec::new();
    }
    let mut groups = Vec::new();
    for (text, place) in texts {
        match Groups::parse(text) {
            Some(of) => groups.push(of),
            None => errors.add(place, format!("`groups` has \"{}\"", shorten(text)), expected),
        }
    }
    groups
}

/// Planes must be on processors of the machine.
pub(super) fn check_processors(planes: &[PlaneDraft], machine: usize, errors: &mut Errors) {
    for (number, place) in planes.iter().flat_map(|draft| &draft.processors) {
        if *number >= machine {
            let message = format!("`processors` has {number}, and the machine has {machine}");
            errors.add(*place, message, "expected processors of the machine");
        }
    }
}

/// The switch tells VLANs of a network apart by a number of few bits.
pub(super) fn check_vlans(
    name: &Name,
    interfaces: &[InterfaceDraft],
    outside: &[(OutsideHost, Place)],
    errors: &mut Errors,
) {
    let all = interfaces.iter().map(|one| &one.vlans).chain(outside.iter().map(|(one, _)| &one.vlans));
    let all = all.flat_map(|vlans| vlans.untagged.iter().chain(&vlans.tagged));
    let count = all.collect::<std::collections::BTreeSet<_>>().len();
    if count > VLANS_MAX {
        errors.add(name.place, format!("{count} VLANs"), format!("expected at most {VLANS_MAX}"));
    }
}

/// What goes over a network from one end to another: frames without a tag, of `bytes` at most.
pub(super) fn check_way(network: &Network, ends: [(Endpoint, &Name); 2], bytes: u32, errors: &mut Errors) {
    let untagged = |end: Endpoint| {
        let vlans = match end {
            Endpoint::Outside(host) => Some(&network.outside[host].vlans),
            Endpoint::Guest(domain) => {
                network.interfaces.iter().find(|one| one.domain == domain).map(|one| &one.vlans)
            }
        };
        vlans.filter(|vlans| vlans.are_given()).map_or(Some(DEFAULT_VLAN), |vlans| vlans.untagged)
    };
    let [(from, _), (to, name)] = ends;
    let (first, second) = (untagged(from), untagged(to));
    if network.has_vlans() && (first.is_none() || first != second) {
        let said = |vlan: Option<u16>| vlan.map_or("no VLAN without a tag".into(), |n| format!("VLAN {n}"));
        let message = format!("`{}` is in {}, the other end in {}", name.text, said(second), said(first));
        errors.add(name.place, message, "expected both ends in the same `vlan`");
    }
    if let Some(mtu) = network.mtu
        && bytes > mtu + ETHERNET_BYTES
    {
        let message = format!("frames of {bytes} bytes on a network whose `mtu` is {mtu}");
        let expected = format!("expected at most {} bytes", mtu + ETHERNET_BYTES);
        errors.add(name.place, message, expected);
    }
}

/// Bytes of the two addresses and the type of a frame, which the MTU does not count.
const ETHERNET_BYTES: u32 = 14;
