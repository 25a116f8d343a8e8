//! What a host file says of a network: which one is meant, and the addresses in it.

use punctual_model::Host;
use punctual_model::network::Network;
use punctual_switch::frame::Address;

use crate::error::ServeError;

/// The network of this name, or the only one.
///
/// # Errors
/// There is none, there are several, or it has no interfaces.
pub fn network<'a>(host: &'a Host, name: Option<&str>) -> Result<&'a Network, ServeError> {
    let names = || host.networks.iter().map(|network| network.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (name, &host.networks[..]) {
        (Some(name), networks) => networks.iter().find(|network| network.name == name),
        (None, [network]) => Some(network),
        (None, []) => return Err(ServeError::Refused("the host file has no network".into())),
        (None, _) => return Err(ServeError::Refused(format!("say which --network: {}", names()))),
    };
    let network =
        found.ok_or_else(|| ServeError::Refused(format!("no such network; there are: {}", names())))?;
    if network.interfaces.is_empty() {
        Err(ServeError::Refused(format!("network {} has no interfaces of guests", network.name)))
    } else {
        Ok(network)
    }
}

/// The addresses of a network's interfaces, then of its hosts outside, in the range that QEMU uses. An
/// address belongs to its name: it is the same in every run, whatever comes and goes beside it.
pub(crate) fn addresses(host: &Host, network: &Network) -> Vec<Address> {
    let of_guests = network.interfaces.iter().map(|interface| host.domains[interface.domain.0].name.as_str());
    let names = of_guests.chain(network.outside.iter().map(|outside| outside.name.as_str()));
    let mut all: Vec<Address> = Vec::new();
    for name in names {
        // FNV-1a.
        let bytes = network.name.bytes().chain([0]).chain(name.bytes());
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let mut hash = bytes.fold(0x811c_9dc5_u32, step);
        loop {
            let [_, a, b, c] = hash.to_be_bytes();
            let address = Address([0x52, 0x54, 0, a, b, c]);
            // Two names of three thousand meet so.
            if !all.contains(&address) {
                all.push(address);
                break;
            }
            hash = hash.wrapping_add(1);
        }
    }
    all
}
