//! Which kernel modules a guest needs, in the order in which they can be loaded.
//!
//! A package has no `modules.dep`, which only its installation would write. But each module names the modules
//! that it needs in its section `.modinfo`, as strings of the form `key=value` that end with a zero byte.
//! That one string is found without reading the ELF format.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A kernel module and the modules that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// Its file.
    pub file: PathBuf,
    /// The names of the modules that it needs.
    pub needs: Vec<String>,
}

/// The name by which others need a module, from the name of its file: `net_failover` of `net-failover.ko.xz`.
pub(super) fn name_of(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let stem = name.strip_suffix(".xz").unwrap_or(name).strip_suffix(".ko")?;
    Some(stem.replace('-', "_"))
}

/// The names in the `depends` string of a module's contents.
pub(super) fn needs(contents: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = contents.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = contents[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// The name of a module that another one needs, and that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kernel module {0}")]
pub(super) struct MissingModule(pub String);

/// The wanted modules and all that they need, each after what it needs.
///
/// # Errors
/// When one of them is neither in `modules` nor among the names `builtin`.
pub(super) fn load_order<'a>(
    wanted: &[&str],
    modules: &'a HashMap<String, Module>,
    builtin: &[String],
) -> Result<Vec<&'a Module>, MissingModule> {
    let mut order: Vec<&Module> = Vec::new();
    let mut entered: Vec<String> = Vec::new();
    // Names to visit. A module goes onto the stack below what it needs, and into the order when its name
    // comes up again.
    let mut stack: Vec<String> = wanted.iter().rev().map(|&name| name.to_owned()).collect();
    while let Some(name) = stack.pop() {
        let Some(module) = modules.get(&name) else {
            if builtin.contains(&name) {
                continue;
            }
            return Err(MissingModule(name));
        };
        if order.contains(&module) {
            continue;
        }
        if entered.contains(&name) {
            order.push(module);
            continue;
        }
        entered.push(name.clone());
        stack.push(name);
        stack.extend(module.needs.iter().rev().cloned());
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(list: &[(&str, &[&str])]) -> HashMap<String, Module> {
        let module = |&(name, needs): &(&str, &[&str])| {
            let needs = needs.iter().map(|need| (*need).to_owned()).collect();
            (name.to_owned(), Module { file: format!("/{name}.ko").into(), needs })
        };
        list.iter().map(module).collect()
    }

    fn names(wanted: &[&str], modules: &HashMap<String, Module>) -> Result<Vec<String>, MissingModule> {
        let order = load_order(wanted, modules, &["built_in".to_owned()])?;
        Ok(order.iter().filter_map(|module| name_of(&module.file)).collect())
    }

    #[test]
    fn what_is_needed_is_loaded_first_and_once() {
        let all = modules(&[
            ("net", &["virtio", "failover"]),
            ("pci", &["virtio", "ring", "built_in"]),
            ("virtio", &["ring"]),
            ("ring", &[]),
            ("failover", &[]),
            ("unwanted", &[]),
        ]);
        let order = names(&["net", "pci", "ring"], &all).expect("an order");
        assert_eq!(order, ["ring", "virtio", "failover", "net", "pci"]);
    }

    #[test]
    fn a_circle_ends_and_a_missing_module_is_named() {
        let circle = modules(&[("a", &["b"]), ("b", &["a"])]);
        let mut order = names(&["a"], &circle).expect("an order");
        order.sort();
        assert_eq!(order, ["a", "b"]);
        assert_eq!(names(&["a", "absent"], &circle), Err(MissingModule("absent".into())));
    }

    #[test]
    fn needs_are_read_from_the_modinfo_strings() {
        let contents = b"\x7fELF..license=GPL\0depends=virtio-ring,virtio\0retpoline=Y\0";
        assert_eq!(needs(contents), ["virtio_ring", "virtio"]);
        assert_eq!(needs(b"\0depends=\0"), [""; 0]);
        assert_eq!(needs(b"nothing"), [""; 0]);
        assert_eq!(needs(b"\0depends=cut"), ["cut"]);
        assert_eq!(name_of(Path::new("/lib/net-failover.ko.xz")), Some("net_failover".into()));
        assert_eq!(name_of(Path::new("/lib/modules.dep")), None);
    }
}
