//! Replaces JSON that is nested too deep in the API server's replies. The API server stores deeper objects than the parser here
//! accepts; one such object would make every list that contains it unreadable, and so hide all others.

use http::{Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use memchr::memchr2;

/// Far above the limit for a form (`decide::shared::content::DEPTH_MAX`), so that a form that is cut is still rejected; below the
/// parser's own limit of 128.
pub const DEPTH_MAX: usize = 100;

/// The reply with `null` in place of every array and object that is nested deeper.
pub fn shallow<B>(response: Response<B>) -> Response<impl Body<Data = Bytes, Error = B::Error>>
where
    B: Body<Data = Bytes>,
{
    let is_json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|of| of.as_bytes().starts_with(b"application/json"));
    let mut cut = Cut::default();
    response.map(|body| {
        body.map_frame(move |frame| match is_json {
            true => frame.map_data(|data| cut.next(data)),
            false => frame,
        })
    })
}

/// The parser's state between two chunks of the reply. A watch sends one document after another.
#[derive(Default)]
struct Cut {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Cut {
    /// Copies nothing unless something is too deep, which is rare.
    fn next(&mut self, data: Bytes) -> Bytes {
        let mut out = vec![];
        // The start of the part to keep; None inside a part that is cut.
        let mut kept = (self.depth <= DEPTH_MAX).then_some(0);
        let mut at = 0;
        while at < data.len() {
            if self.in_string && !self.escaped {
                // Skip ahead: most of the data is inside strings.
                let Some(skipped) = memchr2(b'"', b'\\', &data[at..]) else {
                    break;
                };
                at += skipped;
            }
            match data[at] {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => {
                    self.depth += 1;
                    if let Some(from) = kept.take_if(|_| self.depth > DEPTH_MAX) {
                        out.extend_from_slice(&data[from..at]);
                        out.extend_from_slice(b"null");
                    }
                }
                b'}' | b']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if kept.is_none() && self.depth <= DEPTH_MAX {
                        kept = Some(at + 1);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        match kept {
            Some(0) => data,
            Some(from) => {
                out.extend_from_slice(&data[from..]);
                Bytes::from(out)
            }
            None => Bytes::from(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<u8> {
        let mut cut = Cut::default();
        let of = |chunk: &&[u8]| cut.next(Bytes::copy_from_slice(chunk)).to_vec();
        chunks.iter().flat_map(of).collect()
    }

    fn nested(depth: usize) -> String {
        format!(
            "{}1{}",
            "{\"a\":[".repeat(depth / 2),
            "]}".repeat(depth / 2)
        )
    }

    #[test]
    fn what_is_not_deep_stays_as_it_is() {
        let text = br#"{"a":"}]\"{[\\","b":[1,{"c":null}]}{"d":"\\"}"#;
        assert_eq!(cut(&[text]), text);
        let deep = nested(DEPTH_MAX);
        assert_eq!(cut(&[deep.as_bytes()]), deep.as_bytes());
    }

    #[test]
    fn what_is_too_deep_is_null_and_the_rest_stays() {
        for depth in [DEPTH_MAX + 2, 128, 200, 100_000] {
            let text = format!("{{\"deep\":{},\"s\":\"[[\"}}\n[2]", nested(depth));
            let bytes = text.as_bytes();
            let whole = cut(&[bytes]);
            let (first, second) = std::str::from_utf8(&whole)
                .unwrap()
                .split_once('\n')
                .unwrap();
            let first: Value = serde_json::from_str(first).expect("it can be parsed now");
            assert_eq!((&first["s"], second), (&Value::from("[["), "[2]"));
            assert!(first["deep"]["a"][0]["a"].is_array());
            // Break the reply at every place. The longest reply is broken at fewer places: 2,000 of them took almost a minute.
            let places = (0..bytes.len().min(2_000)).step_by(bytes.len().div_ceil(10_000));
            for at in places.chain([bytes.len() - 3]) {
                assert_eq!(cut(&[&bytes[..at], &bytes[at..]]), whole, "{depth} {at}");
            }
        }
    }
}
