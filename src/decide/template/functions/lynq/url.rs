//! The host of a URL where Go's net/url finds one. Takes no other part of the URL apart.

use std::net::Ipv6Addr;

/// The host without port and brackets; `None` if the text is no URL to Go, or one without a host.
pub fn hostname(text: &[u8]) -> Option<Vec<u8>> {
    if text.iter().any(u8::is_ascii_control) {
        return None;
    }
    let (text, fragment) = cut(text, b'#');
    is_escaped_well(fragment.unwrap_or_default()).then_some(())?;
    let (scheme, rest) = scheme(text)?;
    let (rest, _) = cut(rest, b'?');
    if scheme.is_empty() && rest.starts_with(b"///") {
        return None;
    }
    let rest = rest.strip_prefix(b"//")?;
    let end = rest.iter().position(|byte| *byte == b'/');
    let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
    is_escaped_well(path).then_some(())?;
    let host = host(scheme, authority)?;
    let host = without_port(&host);
    let bare = host
        .strip_prefix(b"[")
        .and_then(|host| host.strip_suffix(b"]"));
    let host = bare.unwrap_or(host);
    Some(host.to_vec())
}

fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// The scheme, empty if there is none, and the rest; `None` for a colon at the very beginning.
fn scheme(text: &[u8]) -> Option<(&[u8], &[u8])> {
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some((&text[..0], text))
}

/// The host and port of an authority, unescaped; `None` where it is malformed or empty.
fn host(scheme: &[u8], authority: &[u8]) -> Option<Vec<u8>> {
    let (user, host) = match authority.iter().rposition(|byte| *byte == b'@') {
        Some(at) => (&authority[..at], &authority[at + 1..]),
        None => (&authority[..0], authority),
    };
    let user_is_valid = user
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte));
    (user_is_valid && is_escaped_well(user)).then_some(())?;
    let host = match host.iter().rposition(|byte| *byte == b'[') {
        Some(0) => bracketed(host)?,
        Some(_) => return None,
        None => {
            let is_web = [&b"http"[..], b"https"].contains(&&scheme.to_ascii_lowercase()[..]);
            let port = if is_web {
                host.iter().position(|byte| *byte == b':')
            } else {
                host.iter().rposition(|byte| *byte == b':')
            };
            is_port(&host[port.unwrap_or(host.len())..]).then_some(())?;
            unescape(host)?
        }
    };
    (!host.is_empty()).then_some(host)
}

/// `[::1]:80`, possibly with a zone behind `%25`.
fn bracketed(host: &[u8]) -> Option<Vec<u8>> {
    let close = host.iter().rposition(|byte| *byte == b']')?;
    let (address, port) = (&host[1..close], &host[close + 1..]);
    is_port(port).then_some(())?;
    let zone = address.windows(3).position(|window| window == b"%25");
    let (plain, zone) = address.split_at(zone.unwrap_or(address.len()));
    std::str::from_utf8(plain).ok()?.parse::<Ipv6Addr>().ok()?;
    let zone = decode(zone)?;
    // A zone is a percent sign and a name.
    (zone.len() != 1).then_some(())?;
    Some([b"[", plain, &zone, b"]", port].concat())
}

fn without_port(host: &[u8]) -> &[u8] {
    match host.iter().rposition(|byte| *byte == b':') {
        Some(at) if is_port(&host[at..]) => &host[..at],
        _ => host,
    }
}

fn is_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}

/// A host may escape only what is not ASCII, and must not hold what would need an escape.
fn unescape(host: &[u8]) -> Option<Vec<u8>> {
    let allowed = |byte: &u8| {
        !byte.is_ascii()
            || byte.is_ascii_alphanumeric()
            || b"!$&'()*+,;=:[]<>\"-_.~%".contains(byte)
    };
    let escapes_ascii = host.windows(3).any(|window| {
        window[0] == b'%' && window[1].is_ascii_digit() && window[1] < b'8' && window != b"%25"
    });
    (host.iter().all(allowed) && !escapes_ascii).then_some(())?;
    decode(host)
}

fn is_escaped_well(text: &[u8]) -> bool {
    decode(text).is_some()
}

/// Replaces escapes; `None` if a percent sign is followed by anything but two digits.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if *byte == b'%' {
            let digits = std::str::from_utf8(text.get(at + 1..at + 3)?).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            out.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    Some(out)
}
