//! Parses a URL as Go does, with Go's errors.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::functions::url::escape::{Part, escape, unescape};
use crate::quote::quote;

/// The parts of a URL, without escapes but for the query and what is opaque.
#[derive(Debug, Default)]
pub struct Url {
    pub scheme: Vec<u8>,
    /// The part after a scheme without a slash.
    pub opaque: Vec<u8>,
    pub user: Option<User>,
    /// Including the port.
    pub host: Vec<u8>,
    pub path: Vec<u8>,
    pub query: Vec<u8>,
    pub fragment: Vec<u8>,
}

#[derive(Debug)]
pub struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

/// The host of a URL without port and brackets; `None` if the text is no URL to Go, or one without a host.
pub fn hostname(text: &[u8]) -> Option<Vec<u8>> {
    let url = Url::parse(text).ok()?;
    (!url.host.is_empty()).then(|| url.hostname().to_vec())
}

impl Url {
    pub fn parse(text: &[u8]) -> Result<Url, String> {
        let (before, fragment) = cut(text, b'#');
        let refused = |text: &[u8], error: String| format!("parse {}: {error}", quote(text));
        let mut url = without_fragment(before).map_err(|error| refused(before, error))?;
        url.fragment = unescape(fragment.unwrap_or_default(), Part::Fragment)
            .map_err(|error| refused(text, error))?;
        Ok(url)
    }

    pub fn hostname(&self) -> &[u8] {
        let host = match self.host.iter().rposition(|byte| *byte == b':') {
            Some(at) if is_port(&self.host[at..]) => &self.host[..at],
            _ => &self.host,
        };
        let bare = host
            .strip_prefix(b"[")
            .and_then(|host| host.strip_suffix(b"]"));
        bare.unwrap_or(host)
    }

    /// Name and password with escapes and a colon between them.
    pub fn userinfo(&self) -> Vec<u8> {
        let Some(user) = &self.user else {
            return Vec::new();
        };
        let mut info = escape(&user.name, Part::User);
        if let Some(password) = &user.password {
            info.push(b':');
            info.extend(escape(password, Part::User));
        }
        info
    }

    /// The URL as it is written, made of its parts.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if !self.scheme.is_empty() {
            text.extend(&self.scheme);
            text.push(b':');
        }
        if !self.opaque.is_empty() {
            text.extend(&self.opaque);
        } else {
            self.write_hierarchy(&mut text);
        }
        if !self.query.is_empty() {
            text.push(b'?');
            text.extend(&self.query);
        }
        if !self.fragment.is_empty() {
            text.push(b'#');
            text.extend(escape(&self.fragment, Part::Fragment));
        }
        text
    }

    fn write_hierarchy(&self, text: &mut Vec<u8>) {
        let has_user = self.user.is_some();
        let has_host = !self.host.is_empty();
        if has_host || has_user || !(self.scheme.is_empty() || self.path.is_empty()) {
            text.extend(b"//");
        }
        if has_user {
            text.extend(self.userinfo());
            text.push(b'@');
        }
        text.extend(escape(&self.host, Part::Host));
        let path = match &self.path[..] {
            b"*" => b"*".to_vec(),
            path => escape(path, Part::Path),
        };
        if has_host && !path.is_empty() && !path.starts_with(b"/") {
            text.push(b'/');
        }
        // Or else the colon would end a scheme.
        if text.is_empty() && cut(&path, b'/').0.contains(&b':') {
            text.extend(b"./");
        }
        text.extend(path);
    }
}

fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

fn without_fragment(text: &[u8]) -> Result<Url, String> {
    if text.iter().any(u8::is_ascii_control) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let mut url = Url::default();
    if text == b"*" {
        url.path = text.to_vec();
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = cut(rest, b'?');
    url.query = query.unwrap_or_default().to_vec();
    if !rest.starts_with(b"/") {
        if !scheme.is_empty() {
            url.opaque = rest.to_vec();
            return Ok(url);
        }
        if cut(rest, b'/').0.contains(&b':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    let has_authority = !scheme.is_empty() || !rest.starts_with(b"///");
    if let Some(rest) = rest.strip_prefix(b"//").filter(|_| has_authority) {
        let end = rest.iter().position(|byte| *byte == b'/');
        let (authority, after) = rest.split_at(end.unwrap_or(rest.len()));
        path = after;
        let user = authority.iter().rposition(|byte| *byte == b'@');
        let host = user.map_or(authority, |at| &authority[at + 1..]);
        url.host = parsed_host(&url.scheme, host)?;
        url.user = user.map(|at| parsed_user(&authority[..at])).transpose()?;
    }
    url.path = unescape(path, Part::Path)?;
    Ok(url)
}

/// The scheme, empty if there is none, and the rest.
fn scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok((&text[..0], text))
}

fn parsed_user(info: &[u8]) -> Result<User, String> {
    let is_allowed =
        |byte: &u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte);
    if !info.iter().all(is_allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = cut(info, b':');
    let password = password.map(|password| unescape(password, Part::User));
    Ok(User {
        name: unescape(name, Part::User)?,
        password: password.transpose()?,
    })
}

/// The host and port, unescaped.
fn parsed_host(scheme: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => return bracketed(host),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    // Only of the web it is known that a host has no colons: databases list several hosts with their ports.
    let is_web = matches!(scheme, b"http" | b"https");
    let mut colons = (0..host.len()).filter(|at| host[*at] == b':');
    let colon = if is_web {
        colons.next()
    } else {
        colons.next_back()
    };
    check_port(&host[colon.unwrap_or(host.len())..])?;
    unescape(host, Part::Host)
}

/// `[::1]:80`, possibly with a zone behind `%25`.
fn bracketed(host: &[u8]) -> Result<Vec<u8>, String> {
    let Some(close) = host.iter().rposition(|byte| *byte == b']') else {
        return Err("missing ']' in host".to_owned());
    };
    let (address, port) = (&host[1..close], &host[close + 1..]);
    check_port(port)?;
    let zone = address.windows(3).position(|window| window == b"%25");
    let (plain, zone) = address.split_at(zone.unwrap_or(address.len()));
    let plain = unescape(plain, Part::Host)?;
    let zone = unescape(zone, Part::Zone)?;
    let text = String::from_utf8_lossy(&plain);
    // A zone is a percent sign and a name.
    if text.parse::<Ipv6Addr>().is_err() || zone.len() == 1 {
        if zone.is_empty() && text.parse::<Ipv4Addr>().is_ok() {
            return Err("invalid IP-literal".to_owned());
        }
        let whole = quote(&[&plain[..], &zone].concat());
        return Err(format!(
            "invalid host: ParseAddr({whole}): unable to parse IP"
        ));
    }
    Ok([b"[", &plain[..], &zone, b"]", port].concat())
}

fn check_port(text: &[u8]) -> Result<(), String> {
    match is_port(text) {
        true => Ok(()),
        false => Err(format!("invalid port {} after host", quote(text))),
    }
}

/// A colon and digits, or nothing.
fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}
