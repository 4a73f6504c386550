//! An address or a range of them: `10.0.0.0/8`, `::1`. For saying whose word about a client's address is taken.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::policy::Invalid;

/// Addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is in it; one that was mapped into IPv6 counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                self.bits == 0 || differ >> (32 - u32::from(self.bits.min(32))) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                self.bits == 0 || differ >> (128 - u32::from(self.bits)) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || {
            Invalid::new(format!("{text:?} is no address")).hint("an IP address, or a network such as \"10.0.0.0/8\"")
        };
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).ok().filter(|bits| *bits <= most).ok_or_else(invalid)?;
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_its_network() {
        let within =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(within("10.0.0.0/8", "10.255.0.1") && !within("10.0.0.0/8", "11.0.0.1"));
        assert!(within("127.0.0.1", "127.0.0.1") && within("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(within("::/0", "2001:db8::1") && !within("::/0", "10.0.0.1") && within("0.0.0.0/0", "1.2.3.4"));
        assert!(within("2001:db8::/32", "2001:db8:1::") && !within("2001:db8::/32", "2001:db9::"));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "example.test", "::1/129", "1.2.3.4/-1"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
