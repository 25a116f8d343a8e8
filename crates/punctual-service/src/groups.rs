//! Finds the cgroups that classes name: systemd units, and others by their path.
//!
//! Only what a class names is looked for, and only outside `user.slice`. A unit is found where systemd puts
//! it, in slices alone, so that a program which may make cgroups in its own cannot pretend to be one. The
//! outermost cgroup that matches counts; those in it belong to it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use punctual_linux::os::cgroup;
use punctual_model::service::{INIT_SCOPE, Match, Pattern, ServiceConfig, USER_SLICE};

/// Bytes of a list of processes that are read.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// Groups in a group that are looked through at most, and how deep.
const ENTRIES_MAX: usize = 10_000;
const DEPTH_MAX: usize = 32;

/// A cgroup that a class names, with processes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundGroup {
    /// Its path below the root of version 2.
    pub path: String,
    /// Its name, if it is a systemd unit.
    pub unit: Option<String>,
    /// The user that owns its directory, who may make cgroups in it.
    pub owner: u32,
    /// The processes in it and in the groups below, ascending.
    pub processes: Vec<u32>,
}

/// Where cgroups are looked for.
#[derive(Debug)]
pub struct Groups {
    /// The root of version 2; `None` where that is not mounted.
    mount: Option<PathBuf>,
}

impl Groups {
    /// Below this root.
    pub fn below(mount: Option<PathBuf>) -> Groups {
        Groups { mount }
    }

    /// Those of this machine.
    pub fn of_machine() -> Groups {
        Groups::below(cgroup::mount().ok())
    }

    /// The cgroups that classes name, by ascending path. One with a process that `is_left_out` is none, but
    /// one in it may be. Without such classes nothing is read.
    pub fn look(&self, config: &ServiceConfig, is_left_out: impl Fn(u32) -> bool) -> Vec<FoundGroup> {
        let matches = || config.classes.iter().flat_map(|class| &class.matches);
        let Some(mount) = &self.mount else { return Vec::new() };
        let mut paths = Vec::new();
        let units: Vec<Pattern> = matches().filter_map(Match::unit_pattern).collect();
        if !units.is_empty() {
            units_in(mount, "", &units, DEPTH_MAX, &mut paths);
        }
        for one in matches() {
            if let Match::Cgroup(pattern) = one {
                matching(mount, "", pattern.names(), &mut paths);
            }
        }
        // A group comes before those in it.
        paths.sort();
        paths.dedup();
        let mut found: Vec<FoundGroup> = Vec::new();
        for path in paths {
            if found.iter().any(|outer| is_in(&path, &outer.path)) {
                continue;
            }
            let directory = cgroup::below(mount, &path);
            let processes = processes_in(&directory);
            let Ok(metadata) = fs::metadata(&directory) else { continue };
            if processes.is_empty() || processes.iter().copied().any(&is_left_out) {
                continue;
            }
            let unit = unit_at(&path).map(str::to_owned);
            found.push(FoundGroup { path, unit, owner: metadata.uid(), processes });
        }
        found
    }
}

/// Is the group with this path in the other one?
fn is_in(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

/// The unit whose cgroup this is: a service or scope in slices alone.
pub fn unit_at(path: &str) -> Option<&str> {
    let (above, name) = path.strip_prefix('/')?.rsplit_once('/').unwrap_or(("", path.strip_prefix('/')?));
    let is_slice = |name: &str| name.ends_with(".slice") && name != USER_SLICE;
    (is_unit(name) && above.split('/').all(|name| name.is_empty() || is_slice(name))).then_some(name)
}

fn is_unit(name: &str) -> bool {
    name.ends_with(".service") || name.ends_with(".scope")
}

/// The path of a group without those that enforcement makes in it.
pub fn home(path: &str) -> &str {
    let mut end = 0;
    for name in path.split('/').skip(1) {
        if is_of_enforcement(name) {
            break;
        }
        end += 1 + name.len();
    }
    if end == 0 { "/" } else { &path[..end] }
}

/// Is it a name that enforcement gives to groups?
fn is_of_enforcement(name: &str) -> bool {
    name.strip_prefix("punctual-").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Collects units below a slice that one of the patterns matches.
fn units_in(mount: &Path, above: &str, units: &[Pattern], depth: usize, found: &mut Vec<String>) {
    for name in groups_in(&cgroup::below(mount, above)) {
        if is_unit(&name) && units.iter().any(|unit| unit.matches(&name)) && name != INIT_SCOPE {
            found.push(format!("{above}/{name}"));
        } else if name.ends_with(".slice") && name != USER_SLICE && depth > 0 {
            units_in(mount, &format!("{above}/{name}"), units, depth - 1, found);
        }
    }
}

/// Collects the groups below another one that these names match.
fn matching(mount: &Path, above: &str, names: &[Pattern], found: &mut Vec<String>) {
    let Some((first, rest)) = names.split_first() else { return };
    let mut take = |name: &str| {
        let is_reserved = above.is_empty() && (name == USER_SLICE || name == INIT_SCOPE);
        if is_reserved || is_of_enforcement(name) {
            return;
        }
        let path = format!("{above}/{name}");
        if rest.is_empty() { found.push(path) } else { matching(mount, &path, rest, found) }
    };
    match first.literal() {
        Some(name) if cgroup::below(mount, above).join(name).is_dir() => take(name),
        Some(_) => {}
        None => {
            let names = groups_in(&cgroup::below(mount, above)).into_iter();
            names.filter(|name| first.matches(name)).for_each(|name| take(&name));
        }
    }
}

/// The names of the groups in a group.
fn groups_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.filter_map(|entry| entry.file_name().into_string().ok()).take(ENTRIES_MAX).collect()
}

/// The processes in a group and in those below it, ascending.
fn processes_in(directory: &Path) -> Vec<u32> {
    let mut all = Vec::new();
    let events = fs::read_to_string(directory.join("cgroup.events")).unwrap_or_default();
    if events.lines().any(|line| line == "populated 0") {
        return all;
    }
    collect(directory, DEPTH_MAX, &mut all);
    all.sort_unstable();
    all.dedup();
    all
}

fn collect(directory: &Path, depth: usize, all: &mut Vec<u32>) {
    let mut text = String::new();
    // A threaded group lists none: its domain does.
    let _ = fs::File::open(directory.join("cgroup.procs"))
        .and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text));
    // Processes of another namespace of ids are 0.
    all.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|process| *process > 0));
    if depth > 0 {
        groups_in(directory).iter().for_each(|name| collect(&directory.join(name), depth - 1, all));
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{ConfigFile, parse_service};
    use punctual_model::topology::Topology;

    use super::*;

    struct Root(tempfile::TempDir);

    impl Root {
        fn group(&self, path: &str, processes: &[u32]) {
            let directory = self.0.path().join(path);
            fs::create_dir_all(&directory).expect("made");
            let list: String = processes.iter().map(|process| format!("{process}\n")).collect();
            fs::write(directory.join("cgroup.procs"), list).expect("written");
        }

        fn look(&self, matches: &str, is_left_out: impl Fn(u32) -> bool) -> Vec<(String, Vec<u32>)> {
            let text = format!("[class.a]\nmatch = [{matches}]\n");
            let file = ConfigFile { name: "host.toml".into(), bytes: text.into() };
            let config = parse_service(&[file], &Topology::flat(4)).expect("valid");
            let found = Groups::below(Some(self.0.path().to_owned())).look(&config, is_left_out);
            found.into_iter().map(|group| (group.path, group.processes)).collect()
        }
    }

    fn root() -> Root {
        let root = Root(tempfile::tempdir().expect("a directory"));
        root.group("init.scope", &[1]);
        root.group("system.slice/ssh.service", &[50, 51]);
        root.group("system.slice/empty.service", &[]);
        root.group("system.slice/system-getty.slice/getty@tty1.service", &[52]);
        root.group("system.slice/docker.service/pretends/ssh.service", &[60]);
        root.group("user.slice/user-1.slice/user@1.service/app.slice/ssh.service", &[61]);
        root.group("kubepods.slice/kubepods-pod1.slice/a.scope", &[71]);
        root.group("kubepods.slice/kubepods-pod1.slice/b.scope/punctual-7-attached/unit0", &[72]);
        root
    }

    fn all(found: &[(&str, &[u32])]) -> Vec<(String, Vec<u32>)> {
        found.iter().map(|(path, processes)| ((*path).to_owned(), processes.to_vec())).collect()
    }

    #[test]
    fn units_are_found_where_systemd_puts_them_and_nowhere_else() {
        let root = root();
        let none = |_| false;
        let ssh = ("/system.slice/ssh.service", &[50, 51][..]);
        assert_eq!(root.look("{ unit = 'ssh.service' }", none), all(&[ssh]));
        let getty = ("/system.slice/system-getty.slice/getty@tty1.service", &[52][..]);
        assert_eq!(root.look("{ unit = 'getty@*' }", none), all(&[getty]));
        assert_eq!(root.look("{ unit = 'empty.service' }", none), []);
        assert_eq!(root.look("{ name = 'ssh.service' }", none), [], "no class names a unit");
        let everything = root.look("{ unit = '*' }", none);
        assert!(everything.iter().all(|(path, _)| path != "/init.scope"), "{everything:?}");
    }

    #[test]
    fn the_outermost_group_counts_unless_it_has_a_process_that_is_left_out() {
        let root = root();
        let pod = ("/kubepods.slice/kubepods-pod1.slice", &[71, 72][..]);
        let parts = "{ cgroup = '/kubepods.slice/*pod1*' }, { unit = '*.scope' }";
        assert_eq!(root.look(parts, |_| false), all(&[pod]));
        let a = ("/kubepods.slice/kubepods-pod1.slice/a.scope", &[71][..]);
        assert_eq!(root.look(parts, |process| process == 72), all(&[a]));
        assert_eq!(root.look("{ cgroup = '/*' }", |process| process == 1).len(), 2, "system and kubepods");
        assert_eq!(root.look("{ cgroup = '/system.slice/*/*/*' }", |_| false).len(), 1);
        assert_eq!(root.look("{ cgroup = '/kubepods.slice/*/b.scope/*' }", |_| false), []);
    }

    #[test]
    fn the_home_of_a_group_is_without_those_of_enforcement() {
        for (path, expected) in [
            ("/a.slice/b.scope/punctual-7-attached/unit0", "/a.slice/b.scope"),
            ("/a.slice/b.scope", "/a.slice/b.scope"),
            ("/punctual-7-attached-0", "/"),
            ("/a.slice/punctual-enforce.service", "/a.slice/punctual-enforce.service"),
            ("/", "/"),
        ] {
            assert_eq!(home(path), expected);
        }
        assert_eq!(unit_at("/a.slice/b.scope"), Some("b.scope"));
        assert_eq!(unit_at("/b.service"), Some("b.service"));
        for path in ["/a.slice", "/x/b.scope", "/user.slice/b.scope", "/a.service/b.scope"] {
            assert_eq!(unit_at(path), None);
        }
    }
}
