//! Which class a VM or a cgroup belongs to.

use punctual_model::service::{Class, Match, ServiceConfig};

use crate::actor::Actor;

/// The classes that fit an actor, in the order of the files: it belongs to the first. None fits a VM or
/// cgroup of a user who runs no VMs for the machine: such a user could give it any name.
pub fn fitting<'c>(config: &'c ServiceConfig, actor: &Actor) -> impl Iterator<Item = &'c Class> {
    let classes = if actor.is_trusted { &config.classes[..] } else { &[] };
    classes.iter().filter(|class| class.matches.iter().any(|one| fits(one, actor)))
}

fn fits(one: &Match, actor: &Actor) -> bool {
    match one {
        Match::Name(pattern) => !actor.is_group() && pattern.matches(&actor.name),
        Match::Libvirt(pattern) => actor.libvirt.is_some() && pattern.matches(&actor.name),
        Match::Uuid(uuid) => actor.uuid.as_ref() == Some(uuid),
        Match::Metadata(class) => {
            actor.libvirt.as_ref().and_then(|libvirt| libvirt.class.as_ref()) == Some(class)
        }
        // Of a device, see `crate::interrupts`.
        Match::Interrupts(_) => false,
        Match::Unit(_) | Match::Exec(_) => {
            one.unit_pattern().zip(actor.unit.as_deref()).is_some_and(|(pattern, unit)| pattern.matches(unit))
        }
        Match::Cgroup(pattern) => actor.cgroup.as_deref().is_some_and(|cgroup| {
            if actor.is_group() { pattern.matches(cgroup) } else { pattern.covers(cgroup) }
        }),
    }
}
