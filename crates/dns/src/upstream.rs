//! Who answers for all other names: the node's own name servers.

use std::net::{IpAddr, SocketAddr};

/// The port of name servers.
const PORT: u16 = 53;
/// As many as a resolver of the C library asks.
const MOST: usize = 3;

/// The name servers of a `resolv.conf`, in its order; `own` is this server, which would ask itself for ever.
#[must_use]
pub fn servers(resolv_conf: &str, own: SocketAddr) -> Vec<SocketAddr> {
    let lines = resolv_conf.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()).flatten()
    });
    let found = lines.filter_map(|text| {
        // A zone behind the address is a link's name, which a socket address does not take.
        let address: IpAddr = text.split('%').next()?.parse().ok()?;
        Some(SocketAddr::new(address, PORT)).filter(|server| *server != own)
    });
    found.take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_servers_count_and_never_this_one() {
        let text = "# nameserver 9.9.9.9\nnameserver 10.0.0.1\nsearch a b\nnameserver\nnameserver x\n\
                    nameserver 192.0.2.1\nnameserver fe80::1%eth0\n nameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        let shown = |own: &str| -> Vec<String> {
            servers(text, own.parse().unwrap()).iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown("10.0.0.1:53"), ["192.0.2.1:53", "[fe80::1]:53", "192.0.2.2:53"]);
        assert_eq!(shown("10.0.0.1:10053"), ["10.0.0.1:53", "192.0.2.1:53", "[fe80::1]:53"]);
    }
}
