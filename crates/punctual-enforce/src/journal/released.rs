//! Letting go of one process while the run goes on: its part of a journal is undone and counts no longer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::restore::{Restored, Undo};
use super::threads::AttachedGroup;
use super::{Change, Contents, Identity, Resource};
use punctual_linux::os::cgroup;

/// The part of a journal that concerns one process.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// What concerns the process alone, and what the whole journal needs to be read.
    pub contents: Contents,
    /// The groups of its units that are in a group which units of other processes share, with its home.
    pub groups: Vec<AttachedGroup>,
}

impl Contents {
    /// The part that concerns a process.
    pub(super) fn part_of(&self, mount: &Path, process: i32) -> Part {
        let members = self.members_of(process);
        let threads = self.threads_of(&members);
        let own: HashSet<&Path> = self.unit_groups(|thread| threads.contains(&thread)).collect();
        let others: HashSet<&Path> = self.unit_groups(|thread| !threads.contains(&thread)).collect();
        let mut part = Part::default();
        for change in &self.changes {
            match change {
                Change::AttachedGroup { directory, home } => {
                    let inside = |group: &&&Path| is_inside(group, directory);
                    let below = own.iter().filter(inside);
                    if others.iter().any(|group| inside(&group)) {
                        part.groups.extend(below.map(|group| AttachedGroup {
                            directory: cgroup::below(mount, &group.to_string_lossy()),
                            home: home.clone(),
                        }));
                    } else if below.count() > 0 {
                        part.contents.changes.push(change.clone());
                    }
                }
                Change::Run { .. } | Change::Given { .. } => part.contents.changes.push(change.clone()),
                _ if concerns(change, process, &members, &threads) => {
                    part.contents.changes.push(change.clone());
                }
                _ => {}
            }
        }
        part
    }

    /// Leaves out what concerned processes that the run has let go of.
    pub(super) fn without_released(mut self) -> Contents {
        let mut at = 0;
        while at < self.changes.len() {
            let Change::Released { process } = self.changes[at] else {
                at += 1;
                continue;
            };
            let later = self.changes.split_off(at + 1);
            let members = self.members_of(process);
            let threads = self.threads_of(&members);
            self.changes.pop();
            self.changes.retain(|change| !concerns(change, process, &members, &threads));
            at = self.changes.len();
            self.changes.extend(later);
        }
        self
    }

    /// The process, and those that were moved to the group of its unit. One that was attached to itself is
    /// another process, which got the id of one that has ended.
    fn members_of(&self, process: i32) -> HashSet<i32> {
        let is_own = |id: i32| {
            let is_claim = |change: &Change| match change {
                Change::Claim { resource: Resource::Process(of) } => of.id == id,
                _ => false,
            };
            self.changes.iter().any(is_claim)
        };
        let members = self.changes.iter().filter_map(|change| match change {
            Change::Member { process: member, of } if *of == process && !is_own(*member) => Some(*member),
            _ => None,
        });
        members.chain([process]).collect()
    }

    fn threads_of(&self, members: &HashSet<i32>) -> HashSet<Identity> {
        let of_members = self.changes.iter().filter_map(|change| match change {
            Change::Thread { thread, process, .. } if members.contains(process) => Some(*thread),
            _ => None,
        });
        of_members.collect()
    }

    fn unit_groups(&self, is_of: impl Fn(Identity) -> bool) -> impl Iterator<Item = &Path> {
        self.changes.iter().filter_map(move |change| match change {
            Change::Unit { thread, group } if is_of(*thread) => Some(Path::new(group.as_str())),
            _ => None,
        })
    }
}

/// Does a change concern a process with these members of its unit and these threads, and no other?
fn concerns(change: &Change, process: i32, members: &HashSet<i32>, threads: &HashSet<Identity>) -> bool {
    match change {
        Change::Thread { process: of, .. } | Change::Helpers { process: of } => members.contains(of),
        Change::Member { of, .. } => *of == process,
        Change::Unit { thread, .. } => threads.contains(thread),
        Change::Claim { resource: Resource::Process(of) } => of.id == process,
        _ => false,
    }
}

/// Is a version 2 group, or one above it, the one with this directory?
fn is_inside(group: &Path, directory: &Path) -> bool {
    let mut above = group.ancestors().filter_map(|above| above.strip_prefix("/").ok());
    above.any(|above| above.file_name().is_some() && directory.ends_with(above))
}

impl Part {
    /// Undoes it. Nothing that the whole machine shares is in it.
    pub(super) fn undo(&self) -> Restored {
        let mut undo = Undo::of(&self.contents);
        undo.attached.extend(self.groups.iter().cloned());
        undo.let_go();
        undo.restored
    }

    /// The directories of groups that are gone afterwards.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let of_changes = self.contents.changes.iter().filter_map(|change| match change {
            Change::AttachedGroup { directory, .. } => Some(directory.clone()),
            _ => None,
        });
        of_changes.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_linux::os::sched::Attributes;

    const MOUNT: &str = "/sys/fs/cgroup";

    fn id(id: i32) -> Identity {
        Identity { id, start_ticks: 7 }
    }

    fn thread(tid: i32, process: i32, group: &str) -> Change {
        Change::Thread {
            thread: id(tid),
            process,
            attributes: Attributes::other(),
            affinity: vec![0],
            group: group.into(),
        }
    }

    fn unit(tid: i32, group: &str) -> Change {
        Change::Unit { thread: id(tid), group: group.into() }
    }

    fn attached(home: &str) -> Change {
        let directory = format!("{MOUNT}{home}/punctual-9-attached").into();
        Change::AttachedGroup { directory, home: home.into() }
    }

    fn claim(process: i32) -> Change {
        Change::Claim { resource: Resource::Process(id(process)) }
    }

    /// Two processes in one home, and a third in another.
    fn contents() -> Contents {
        let changes = vec![
            Change::Run { enforcer: id(9), name: "host".into(), boot: String::new() },
            Change::Claim { resource: Resource::Processor(1) },
            Change::Given { attributes: vec![Attributes::fifo(70)], affinities: vec![vec![1]] },
            claim(20),
            thread(20, 20, "/a"),
            thread(21, 20, "/a"),
            attached("/a"),
            unit(21, "/a/punctual-9-attached/unit0"),
            claim(30),
            thread(30, 30, "/a"),
            unit(30, "/a/punctual-9-attached/unit1"),
            claim(40),
            thread(40, 40, "/b"),
            attached("/b"),
            unit(40, "/b/punctual-9-attached/unit2"),
            Change::Helpers { process: 40 },
            Change::File { path: "/proc/irq/1/smp_affinity".into(), before: "0".into(), during: "1".into() },
        ];
        Contents { changes, unreadable: Vec::new() }
    }

    #[test]
    fn the_part_of_a_process_has_its_groups_unless_another_process_shares_them() {
        let all = contents();
        let part = all.part_of(Path::new(MOUNT), 20);
        let expected = [0, 2, 3, 4, 5, 7].map(|index| all.changes[index].clone());
        assert_eq!(part.contents.changes, expected);
        let groups: Vec<_> = part.groups.iter().map(|group| (&*group.directory, &*group.home)).collect();
        assert_eq!(groups, [(Path::new("/sys/fs/cgroup/a/punctual-9-attached/unit0"), "/a")]);
        assert!(part.directories().is_empty());
        let part = all.part_of(Path::new(MOUNT), 40);
        let expected = [0, 2, 11, 12, 13, 14, 15].map(|index| all.changes[index].clone());
        assert_eq!((part.contents.changes, part.groups.len()), (expected.to_vec(), 0));
    }

    #[test]
    fn the_part_of_a_whole_cgroup_has_the_processes_that_joined_it() {
        let mut all = contents();
        let unit = unit(50, "/c/punctual-9-attached/unit3");
        let member = |process| Change::Member { process, of: 50 };
        let own = [
            claim(50),
            thread(50, 50, "/c"),
            attached("/c"),
            unit,
            thread(51, 51, "/c"),
            thread(52, 51, "/c"),
            member(51),
        ];
        all.changes.extend(own.clone());
        // A process that had ended, whose id is that of another one by now.
        all.changes.push(member(40));
        let part = all.part_of(Path::new(MOUNT), 50);
        let shared = [0, 2].map(|index| contents().changes[index].clone());
        let expected = [&shared[..], &own[..], &[member(40)]].concat();
        assert_eq!((part.contents.changes, part.groups.len()), (expected, 0));
        all.changes.push(Change::Released { process: 50 });
        // A group may be there for others.
        assert_eq!(all.without_released().changes, [contents().changes, vec![attached("/c")]].concat());
    }

    #[test]
    fn what_was_let_go_of_counts_no_longer_until_it_comes_again() {
        let all = contents();
        let mut changes = all.changes.clone();
        changes.extend([Change::Released { process: 20 }, claim(20), Change::Released { process: 40 }]);
        changes.push(thread(20, 20, "/c"));
        let left = Contents { changes, unreadable: Vec::new() }.without_released();
        let kept = [0, 1, 2, 6, 8, 9, 10, 13, 16].map(|index| all.changes[index].clone());
        let expected = [&kept[..], &[claim(20), thread(20, 20, "/c")]].concat();
        assert_eq!(left.changes, expected);
        // The last one in a group takes the group with it.
        let part = left.part_of(Path::new(MOUNT), 30);
        assert_eq!(part.directories(), [Path::new("/sys/fs/cgroup/a/punctual-9-attached")]);
    }
}
