//! The value of `lynq.sh/release`: which content goes live, from which version of the node, and what its slot is for. The last
//! tells what was in flight, should the ledger be lost.

use std::fmt;

/// `HASH/VERSION`, and `/repair`, `/watched` behind it where they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseMarker {
    pub hash: String,
    /// The version of the node that the release was decided on.
    pub resource_version: String,
    /// The node was not ready when its slot was taken.
    pub repair: bool,
    /// Its slot is kept for some time after it is ready (`minReadySeconds`).
    pub watched: bool,
}

const REPAIR: &str = "repair";
const WATCHED: &str = "watched";

impl ReleaseMarker {
    pub fn parse(text: &str) -> Option<ReleaseMarker> {
        let mut parts = text.split('/');
        let (hash, resource_version) = (parts.next()?, parts.next()?);
        let (mut repair, mut watched) = (false, false);
        for word in parts {
            match word {
                REPAIR => repair = true,
                WATCHED => watched = true,
                _ => return None,
            }
        }
        Some(ReleaseMarker {
            hash: hash.to_owned(),
            resource_version: resource_version.to_owned(),
            repair,
            watched,
        })
    }
}

impl fmt::Display for ReleaseMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hash, self.resource_version)?;
        for (word, holds) in [(REPAIR, self.repair), (WATCHED, self.watched)] {
            if holds {
                write!(f, "/{word}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "1:abc/12",
            "1:abc/12/repair",
            "1:abc/12/watched",
            "1:abc/12/repair/watched",
        ] {
            assert_eq!(ReleaseMarker::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "1:abc", "1:abc/12/forever", "1:abc/12/"] {
            assert_eq!(ReleaseMarker::parse(bad), None, "{bad:?}");
        }
    }
}
