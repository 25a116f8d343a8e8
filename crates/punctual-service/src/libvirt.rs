//! What libvirt's QEMU driver writes about running VMs: `/run/libvirt/qemu/NAME.xml`, a `domstatus` element
//! with the process, around the `domain` element (libvirt `src/qemu/qemu_domain.c`).

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use punctual_model::file::parse_duration;
use punctual_sched::UnitParams;

use crate::actor::Libvirt;

/// The namespace of Punctual's element in a domain's `metadata`:
/// `<punctual:actor xmlns:punctual="urn:punctual:actor:1" class="relay" budget="450us"/>`.
pub const NAMESPACE: &str = "urn:punctual:actor:1";

/// A file is at most this long. Those of VMs with many devices have about 100 KiB.
const BYTES_MAX: u64 = 4 << 20;

/// A VM that libvirt runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub process: u32,
    pub name: String,
    /// In lower case.
    pub uuid: Option<String>,
    pub libvirt: Libvirt,
}

/// The directory of these files below `run` (normally `/run`).
pub fn directory(run: &Path) -> PathBuf {
    run.join("libvirt/qemu")
}

/// Reads the status of a running VM; `None` when the text is not one.
pub fn parse(text: &str) -> Option<Running> {
    let document = roxmltree::Document::parse(text).ok()?;
    let status = document.root_element();
    if !status.has_tag_name("domstatus") {
        return None;
    }
    let child = |of: roxmltree::Node<'_, '_>, name: &str| -> Option<String> {
        let found = of.children().find(|node| node.has_tag_name(name))?;
        Some(found.text().unwrap_or_default().trim().to_owned())
    };
    let domain = status.children().find(|node| node.has_tag_name("domain"))?;
    let metadata = domain.children().find(|node| node.has_tag_name("metadata"));
    let actor = metadata
        .and_then(|metadata| metadata.children().find(|node| node.has_tag_name((NAMESPACE, "actor"))));
    let mut libvirt = Libvirt::default();
    for attribute in actor.iter().flat_map(|actor| actor.attributes()) {
        match attribute.name() {
            "class" => libvirt.class = Some(attribute.value().to_owned()),
            UnitParams::BUDGET => libvirt.adjustment.budget_ns = time(attribute, &mut libvirt.wrong),
            UnitParams::PERIOD => libvirt.adjustment.period_ns = time(attribute, &mut libvirt.wrong),
            UnitParams::PRIORITY => match attribute.value().parse() {
                Ok(priority) => libvirt.adjustment.priority = Some(priority),
                Err(_) => libvirt.wrong.push(format!(
                    "priority=\"{}\": expected a number from 0 to {}",
                    attribute.value(),
                    u32::MAX
                )),
            },
            other => libvirt.wrong.push(format!(
                "{other}=...: expected one of class, {}, {}, {}",
                UnitParams::BUDGET,
                UnitParams::PERIOD,
                UnitParams::PRIORITY
            )),
        }
    }
    Some(Running {
        process: status.attribute("pid")?.parse().ok()?,
        name: child(domain, "name")?,
        uuid: child(domain, "uuid").map(|uuid| uuid.to_ascii_lowercase()),
        libvirt,
    })
}

/// The time of an attribute in ns; says what is wrong with it.
fn time(attribute: roxmltree::Attribute<'_, '_>, wrong: &mut Vec<String>) -> Option<u64> {
    match parse_duration(attribute.value()) {
        Ok(time) => Some(time.as_ns()),
        Err(expected) => {
            wrong.push(format!("{}=\"{}\": expected {expected}", attribute.name(), attribute.value()));
            None
        }
    }
}

/// Reads a file of the directory. It counts when it is a plain file of one of `owners`.
pub fn read(path: &Path, owners: &[u32]) -> Option<Running> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if !metadata.is_file() || !owners.contains(&metadata.uid()) {
        return None;
    }
    let mut text = String::new();
    fs::File::open(path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    parse(&text)
}

/// The VMs in the directory.
pub fn read_all(directory: &Path, owners: &[u32]) -> Vec<Running> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| is_status(path)).filter_map(|path| read(&path, owners)).collect()
}

/// Is it the name of a status file?
pub fn is_status(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "xml")
}

#[cfg(test)]
mod tests {
    use punctual_model::service::Adjustment;

    use super::*;

    const STATUS: &str = "<!-- WARNING: THIS IS AN AUTO-GENERATED FILE. -->
<domstatus state='running' reason='booted' pid='4711'>
  <monitor path='/var/lib/libvirt/qemu/domain-1-relay/monitor.sock' type='unix'/>
  <vcpus><vcpu id='0' pid='4715'/></vcpus>
  <domain type='kvm' id='1'>
    <name>relay &amp; more</name>
    <uuid>C7A5FDBD-cdaf-9455-926a-d65c16db1809</uuid>
    <metadata>
      <other:actor xmlns:other='urn:other' class='wrong'/>
      <punctual:actor xmlns:punctual='urn:punctual:actor:1' class='relay' budget='450us'/>
    </metadata>
  </domain>
</domstatus>";

    #[test]
    fn a_status_file_tells_process_name_uuid_and_class() {
        let running = parse(STATUS).expect("a status");
        assert_eq!((running.process, running.name.as_str()), (4711, "relay & more"));
        assert_eq!(running.uuid.as_deref(), Some("c7a5fdbd-cdaf-9455-926a-d65c16db1809"));
        let adjustment = Adjustment { budget_ns: Some(450_000), ..Adjustment::default() };
        assert_eq!(running.libvirt, Libvirt { class: Some("relay".into()), adjustment, wrong: Vec::new() });
        let wrong = STATUS.replace("budget='450us'", "budget='450' period='1ms' priority='-1' cpus='3'");
        let libvirt = parse(&wrong).expect("a status").libvirt;
        assert_eq!(libvirt.adjustment, Adjustment { period_ns: Some(1_000_000), ..Adjustment::default() });
        assert_eq!(
            libvirt.wrong,
            [
                "budget=\"450\": expected a duration with its unit, for example \"450ms\"",
                "priority=\"-1\": expected a number from 0 to 4294967295",
                "cpus=...: expected one of class, budget, period, priority"
            ]
        );
        let plain = STATUS.replace("urn:punctual:actor:1", "urn:somebody");
        assert_eq!(parse(&plain).expect("a status").libvirt, Libvirt::default());
    }

    #[test]
    fn what_is_no_status_of_a_running_vm_is_none() {
        let entities =
            "<!DOCTYPE a [<!ENTITY b 'c'>]><domstatus pid='1'><domain><name>&b;</name></domain></domstatus>";
        let nested = "<a>".repeat(100_000);
        let none = ["", "<domain><name>a</name></domain>", "<domstatus pid='1'/>", entities, &nested];
        for text in none {
            assert_eq!(parse(text), None, "{}", &text[..text.len().min(40)]);
        }
        assert_eq!(parse(&STATUS.replace("pid='4711'", "pid='-1'")), None);
    }

    #[test]
    fn files_of_others_and_links_do_not_count() {
        let run = tempfile::tempdir().expect("a directory");
        let directory = directory(run.path());
        fs::create_dir_all(&directory).expect("made");
        fs::write(directory.join("relay.xml"), STATUS).expect("written");
        fs::write(directory.join("relay.pid"), "4711").expect("written");
        let elsewhere = run.path().join("elsewhere");
        fs::write(&elsewhere, STATUS.replace("4711", "4712")).expect("written");
        std::os::unix::fs::symlink(&elsewhere, directory.join("link.xml")).expect("linked");
        let owner = rustix::process::geteuid().as_raw();
        let found: Vec<u32> = read_all(&directory, &[owner]).iter().map(|vm| vm.process).collect();
        assert_eq!(found, [4711]);
        assert_eq!(read_all(&directory, &[owner + 1]), []);
        assert_eq!(read_all(&run.path().join("none"), &[owner]), []);
    }
}
