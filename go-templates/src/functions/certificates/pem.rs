//! The first block of a PEM text, as Go's encoding/pem finds it: what cannot be read is passed over.

use crate::functions::encoding::decode64;

/// Between `-----BEGIN kind-----` and `-----END kind-----`.
#[derive(Debug)]
pub struct Block {
    pub kind: Vec<u8>,
    pub bytes: Vec<u8>,
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

pub fn decode(mut rest: &[u8]) -> Option<Block> {
    loop {
        // The last beginning before an end: of those before it none has an end.
        let end = find(rest, END)?;
        let after = &rest[end + END.len()..];
        let begin = rest[..end]
            .windows(BEGIN.len())
            .rposition(|window| window == BEGIN);
        let is_line = |at: usize| at == 0 || rest[at - 1] == b'\n';
        if let Some(begin) = begin.filter(|at| is_line(*at))
            && let Some(block) = block(&rest[begin + BEGIN.len()..], end - begin - BEGIN.len())
        {
            return Some(block);
        }
        rest = after;
    }
}

/// A block that begins with its kind, with `END` at `end`.
fn block(text: &[u8], end: usize) -> Option<Block> {
    let (first, mut content) = line(text);
    let kind = first.strip_suffix(DASHES)?;
    while let (header, after) = line(content)
        && header.contains(&b':')
    {
        content = after;
        if text.len() - content.len() > end {
            return None;
        }
    }
    if content.is_empty() {
        return None;
    }
    // Where an empty block ends, the newline before the end is that of its first line.
    let start = text.len() - content.len();
    let encoded = match end.checked_sub(start) {
        Some(length) => &content[..length],
        None => &[],
    };
    let trailer = text[end + END.len()..]
        .strip_prefix(kind)?
        .strip_prefix(DASHES)?;
    if !line(trailer).0.is_empty() {
        return None;
    }
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let encoded: Vec<u8> = encoded
        .iter()
        .copied()
        .filter(|byte| !is_blank(byte))
        .collect();
    Some(Block {
        kind: kind.to_vec(),
        bytes: decode64(&encoded).ok()?,
    })
}

/// A line without the white space at its end, and what follows.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&text[..end], &text[end + 1..]),
        None => (text, &text[text.len()..]),
    };
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t'));
    (&line[..end.map_or(0, |end| end + 1)], rest)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
