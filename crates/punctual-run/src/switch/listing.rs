//! How QEMU and libvirt connect VMs to the ports of a switch, as text for people.

use std::fmt::Write as _;

use punctual_model::export::{VhostUserPort, vhost_user};
use punctual_model::network::Network;
use punctual_model::text::printable;

use super::lines::Line;

/// QEMU takes a comma in a value as two.
pub fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// The sockets, and how QEMU connects to each.
pub(super) fn listing(network: &Network, ports: &[Line]) -> String {
    let mut text = format!(
        "{}: {}, {} ports. QEMU connects a VM of SIZE memory with\n  -object \
         memory-backend-memfd,id=memory,size=SIZE,share=on -machine memory-backend=memory\nand\n",
        printable(&network.name),
        network.discipline.info.name,
        ports.len()
    );
    let id = "net0";
    let mtu = network.mtu.map_or_else(String::new, |bytes| format!(",host_mtu={bytes}"));
    for port in ports {
        let Some(socket) = &port.socket else {
            let what = match port.pcp {
                Some(pcp) => format!("has the VM's frames with PCP {pcp}"),
                None => "is an uplink".into(),
            };
            let _ = writeln!(text, "{} {what}", printable(&port.name));
            continue;
        };
        let path = escaped(socket);
        let address = port.address.as_ref().map_or_else(String::new, |address| format!(",mac={address}"));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{}:\n  -chardev socket,id={id},path={path},reconnect=1 -netdev \
             vhost-user,id={id},chardev={id} -device virtio-net-pci,netdev={id}{address}{mtu}",
            printable(&port.name)
        );
    }
    text
}

/// The sockets, and how libvirt connects to each.
pub(super) fn libvirt_listing(ports: &[Line]) -> String {
    let mut text = String::new();
    for port in ports {
        let Some(socket) = &port.socket else { continue };
        if text.is_empty() {
            text += "<!-- Merge memoryBacking and interface into each domain's own XML: virsh edit. -->\n";
        }
        // Libvirt has another working directory.
        let path = std::path::absolute(socket).map(|path| path.display().to_string());
        let socket = path.as_ref().unwrap_or(socket);
        text += &vhost_user(&VhostUserPort { domain: &port.name, socket, address: port.address.clone() });
    }
    text
}
