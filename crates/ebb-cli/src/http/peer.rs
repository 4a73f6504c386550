//! Where a request comes from. Invariant: what a header says about it counts only from a proxy that the configuration
//! trusts; anybody else could write anything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::http::HeaderMap;
use axum::http::request::Parts;
use ebb::config::Network;

use super::Surface;

/// The other end of the connection, as the listener saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connected {
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// Whether the way to the client is encrypted.
    pub(crate) secure: bool,
}

impl Peer {
    pub(crate) fn of(parts: &Parts, surface: &Surface) -> Self {
        Self::new(parts.extensions.get::<Connected>().copied(), &parts.headers, &surface.trusted_proxies)
    }

    pub(crate) fn new(connected: Option<Connected>, headers: &HeaderMap, trusted: &[Network]) -> Self {
        let local = Connected { address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), tls: false };
        let Connected { address, tls } = connected.unwrap_or(local);
        let trusts = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
        let mut peer = Self { address: address.ip().to_canonical(), secure: tls };
        if !trusts(peer.address) {
            return peer;
        }
        // From the nearest proxy outwards, as far as each hop is trusted.
        let hops = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<IpAddr> =
            hops.flat_map(|line| line.split(',')).map_while(|hop| hop.trim().parse().ok()).collect();
        for hop in hops.into_iter().rev() {
            peer.address = hop.to_canonical();
            if !trusts(peer.address) {
                break;
            }
        }
        peer.secure |= headers.get("x-forwarded-proto").is_some_and(|value| value == "https");
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "6.6.6.6, 9.9.9.9, 10.0.0.2".parse().unwrap());
        headers.insert("x-forwarded-proto", "https".parse().unwrap());
        let peer = |from: &str| {
            let connected = Connected { address: format!("{from}:1").parse().unwrap(), tls: false };
            let peer = Peer::new(Some(connected), &headers, &["10.0.0.0/8".parse().unwrap()]);
            (peer.address.to_string(), peer.secure)
        };
        assert_eq!(peer("10.0.0.1"), ("9.9.9.9".into(), true), "what the client wrote itself does not count");
        assert_eq!(peer("192.0.2.1"), ("192.0.2.1".into(), false));
    }
}
