//! The hosts to which hubs may connect: those in `--allow-datasource-hosts`, or without it, any host except link-local addresses
//! and the API server. Checks names and addresses, but resolves none.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// In lower case; `*` stands for any text.
    Glob(String),
    Network {
        address: IpAddr,
        bits: u32,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Empty if the flag is not set.
    pub listed: Vec<Listed>,
    /// The addresses of the API server.
    pub api_server: Vec<SocketAddr>,
}

/// Why a hub may not connect there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    NotListed,
    LinkLocal,
    ApiServer,
}

impl Listed {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const WANTED: &str =
            "give a host name (* stands for any text), an address, or a network such as 10.0.0.0/8";
        if let Ok(address) = text.parse::<IpAddr>() {
            let bits = bits_of(address);
            return Ok(Self::Network { address, bits });
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address = address.parse().map_err(|_| WANTED)?;
            let bits = bits.parse().map_err(|_| WANTED)?;
            return match bits <= bits_of(address) {
                true => Ok(Self::Network { address, bits }),
                false => Err(WANTED),
            };
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-._*".contains(c);
        match !text.is_empty() && text.chars().all(is_of_name) {
            true => Ok(Self::Glob(normal(text))),
            false => Err(WANTED),
        }
    }
}

impl Hosts {
    /// Checks what is known before the name is resolved.
    pub fn forbids_name(&self, host: &str, port: u16) -> Option<Forbidden> {
        if let Ok(address) = host.parse() {
            return self.forbids(host, SocketAddr::new(address, port));
        }
        let may_be = |listed: &Listed| match listed {
            Listed::Glob(glob) => matches(glob, &normal(host)),
            Listed::Network { .. } => true,
        };
        let allowed = self.listed.is_empty() || self.listed.iter().any(may_be);
        (!allowed).then_some(Forbidden::NotListed)
    }

    /// Of an address that the host's name was found to have. One that is listed itself is always allowed.
    pub fn forbids(&self, host: &str, address: SocketAddr) -> Option<Forbidden> {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let host = normal(host);
        let has = |listed: &Listed| match listed {
            Listed::Glob(_) => false,
            Listed::Network { address: of, bits } => contains(*of, *bits, address.ip()),
        };
        if self.listed.iter().any(has) {
            return None;
        }
        if is_link_local(address.ip()) {
            return Some(Forbidden::LinkLocal);
        }
        if self.api_server.contains(&address) {
            return Some(Forbidden::ApiServer);
        }
        let named = |listed: &Listed| matches!(listed, Listed::Glob(glob) if matches(glob, &host));
        let allowed = self.listed.is_empty() || self.listed.iter().any(named);
        (!allowed).then_some(Forbidden::NotListed)
    }
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotListed => {
                "--allow-datasource-hosts does not list this host; name another one, or ask the administrator of lynqgate to list it"
            }
            Self::LinkLocal => {
                "it is a link-local address; name another host, or ask the administrator of lynqgate to list the address in \
                 --allow-datasource-hosts"
            }
            Self::ApiServer => {
                "it is the API server; name the host of a database"
            }
        })
    }
}

fn normal(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn bits_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn contains(network: IpAddr, bits: u32, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let differ = network.to_bits() ^ address.to_bits();
            differ.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let differ = network.to_bits() ^ address.to_bits();
            differ.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn matches(glob: &str, text: &str) -> bool {
    let Some((start, rest)) = glob.split_once('*') else {
        return glob == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    let ends = text.char_indices().map(|(end, _)| end);
    ends.chain([text.len()])
        .any(|end| matches(rest, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(listed: &[&str]) -> Hosts {
        let listed = listed.iter().map(|text| Listed::parse(text).unwrap());
        Hosts {
            listed: listed.collect(),
            api_server: vec!["10.96.0.1:443".parse().unwrap()],
        }
    }

    #[test]
    fn a_host_is_judged_by_its_name_and_by_each_address_of_it() {
        use Forbidden::*;
        let listed = ["*.db.example.com", "mysql-*", "10.1.0.0/16", "fd00::/8"];
        type Case<'a> = (&'a [&'a str], &'a str, &'a str, Option<Forbidden>);
        let cases: &[Case] = &[
            (&[], "db", "10.0.0.7:3306", None),
            (&[], "db", "127.0.0.1:3306", None),
            (&[], "metadata", "169.254.169.254:80", Some(LinkLocal)),
            (&[], "db", "[fe80::1]:3306", Some(LinkLocal)),
            (&[], "db", "[::ffff:169.254.169.254]:80", Some(LinkLocal)),
            (&[], "kubernetes.default", "10.96.0.1:443", Some(ApiServer)),
            (&[], "x", "[::ffff:10.96.0.1]:443", Some(ApiServer)),
            (&[], "db", "10.96.0.1:3306", None),
            (&listed, "a.db.example.com", "192.0.2.1:3306", None),
            (&listed, "A.DB.example.com.", "192.0.2.1:3306", None),
            (&listed, "db.example.com", "192.0.2.1:3306", Some(NotListed)),
            (
                &listed,
                "a.db.example.com.evil",
                "192.0.2.1:1",
                Some(NotListed),
            ),
            (&listed, "mysql-", "192.0.2.1:3306", None),
            (&listed, "other", "10.1.255.255:3306", None),
            (&listed, "other", "[::ffff:10.1.2.3]:3306", None),
            (&listed, "other", "10.2.0.0:3306", Some(NotListed)),
            (&listed, "other", "[fd12::1]:3306", None),
            (&listed, "other", "[2001:db8::1]:3306", Some(NotListed)),
            // A name may resolve to anything.
            (
                &listed,
                "a.db.example.com",
                "169.254.169.254:80",
                Some(LinkLocal),
            ),
            (&["*"], "kubernetes", "10.96.0.1:443", Some(ApiServer)),
            (&["169.254.0.0/16"], "x", "169.254.1.1:3306", None),
            (&["0.0.0.0/0"], "x", "10.96.0.1:443", None),
            (&["192.0.2.1"], "x", "192.0.2.1:3306", None),
            (&["192.0.2.1"], "x", "192.0.2.2:3306", Some(NotListed)),
        ];
        for (listed, host, address, expected) in cases {
            let found = hosts(listed).forbids(host, address.parse().unwrap());
            assert_eq!(found, *expected, "{listed:?} {host} {address}");
        }
    }

    /// Before the lookup, only a name is rejected that no listed address could allow.
    #[test]
    fn a_name_is_refused_where_no_address_could_be_listed() {
        use Forbidden::*;
        for (listed, host, expected) in [
            (&[][..], "db", None),
            (&[], "169.254.169.254", Some(LinkLocal)),
            (&[], "10.96.0.1", Some(ApiServer)),
            (&["*.example.com"], "db", Some(NotListed)),
            (&["*.example.com"], "db.example.com", None),
            (&["*.example.com", "10.0.0.0/8"], "db", None),
            (&["10.0.0.0/8"], "192.0.2.1", Some(NotListed)),
            (&["10.0.0.0/8"], "10.9.9.9", None),
        ] {
            assert_eq!(
                hosts(listed).forbids_name(host, 443),
                expected,
                "{listed:?} {host}"
            );
        }
    }

    #[test]
    fn what_lists_nothing_is_refused() {
        for text in [
            "",
            " ",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/129",
            "a/8",
            "db:3306",
            "https://db",
            "a b",
            "10.0.0.0/-1",
            "[::1]",
        ] {
            assert!(Listed::parse(text).is_err(), "{text:?}");
        }
        for text in ["*", "db", "db.svc", "10.0.0.0/0", "::/0", "::1", "a_b-c.*"] {
            assert!(Listed::parse(text).is_ok(), "{text:?}");
        }
    }
}
