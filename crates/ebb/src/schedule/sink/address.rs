//! Which addresses a webhook may go to. Whoever can schedule an event must not reach, through the node, what only the
//! node can reach: its own services, its network, its cloud's metadata. Invariant: the addresses that are checked are
//! the ones that are connected to, so that a name cannot answer twice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Why an address is not for webhooks; `None` when it is public.
pub(super) fn private(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => private_v4(address),
        IpAddr::V6(address) => private_v6(address),
    }
}

fn private_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("unspecified"),
        [127, ..] => Some("loopback"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("private"),
        [100, 64..=127, ..] => Some("shared (carrier-grade NAT)"),
        [169, 254, ..] => Some("link-local"),
        [192, 0, 0, _] | [192, 0, 2, _] | [198, 18..=19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => Some("reserved"),
        [224..=239, ..] => Some("multicast"),
        [240..=255, ..] => Some("reserved"),
        _ => None,
    }
}

fn private_v6(address: Ipv6Addr) -> Option<&'static str> {
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        private_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("loopback"),
        // IPv4 in other clothes: mapped, compatible, translated (NAT64), 6to4.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => Some("private"),
        [0xfc00..=0xfdff, ..] => Some("private (unique local)"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfec0..=0xfeff, ..] => Some("private (site local)"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        [0x100, 0, 0, 0, ..] | [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x5f00, ..] => {
            Some("reserved")
        }
        _ => None,
    }
}

/// A target that is refused.
#[derive(Debug)]
pub(super) struct Refused {
    host: String,
    address: IpAddr,
    what: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, what } = self;
        match address.to_string() == *host {
            true => write!(f, "{address} is a {what} address")?,
            false => write!(f, "{host} is at {address}, a {what} address")?,
        }
        f.write_str("; set allow_private = true to allow it")
    }
}

impl std::error::Error for Refused {}

/// Checks a host that is an address by itself: no resolver is asked about those.
pub(super) fn check_literal(url: &reqwest::Url) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default();
    let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() else { return Ok(()) };
    match private(address) {
        Some(what) => Err(Refused { host: address.to_string(), address, what }),
        None => Ok(()),
    }
}

/// Resolves names as the system does and hands out public addresses alone.
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let (refused, public): (Vec<_>, Vec<_>) = found.into_iter().partition(|at| private(at.ip()).is_some());
            if let (Some(first), true) = (refused.first(), public.is_empty()) {
                let what = private(first.ip()).unwrap_or("private");
                return Err(Refused { host: name.as_str().to_owned(), address: first.ip(), what }.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<&'static str> {
        private(text.parse().unwrap())
    }

    #[test]
    fn what_only_the_node_can_reach_is_private() {
        for address in [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "fc00::1",
            "fd12:3456::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(of(address).is_some(), "{address}");
        }
    }

    #[test]
    fn what_everybody_can_reach_is_not() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert_eq!(of(address), None, "{address}");
        }
    }

    #[test]
    fn an_address_is_found_in_any_spelling() {
        let check = |url: &str| check_literal(&url.parse().unwrap());
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:7f00:1]/",
            "http://127.1:8080/",
        ] {
            let refused = check(url).unwrap_err().to_string();
            assert!(refused.contains("loopback") && refused.contains("allow_private"), "{url}: {refused}");
        }
        assert!(check("http://8.8.8.8/").is_ok());
        assert!(check("https://example.test/").is_ok());
    }

    #[tokio::test]
    async fn a_name_that_answers_with_a_private_address_is_refused() {
        let Err(refused) = PublicOnly.resolve("localhost".parse().unwrap()).await else { panic!("localhost is here") };
        assert!(refused.to_string().contains("localhost is at "), "{refused}");
    }
}
