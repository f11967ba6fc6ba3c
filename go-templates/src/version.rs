//! Semantic versions, parsed and ordered leniently as by Masterminds/semver, with an optional `v` and missing parts. Knows no
//! constraints.

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

/// One version. Equality is that of all its parts, not that of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) prerelease: String,
    pub(crate) metadata: String,
    /// As it was written.
    pub(crate) original: String,
    /// Made of another one, and so a value to Go where a parsed one is a pointer.
    pub(crate) derived: bool,
}

/// Why a text is no version, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VersionError {
    #[error("Invalid Semantic Version")]
    Invalid,
    #[error(
        "Error parsing version segment: strconv.ParseUint: parsing \"{0}\": value out of range"
    )]
    TooLarge(String),
    #[error("Version segment starts with 0")]
    LeadingZero,
    #[error("Invalid Prerelease string")]
    InvalidPrerelease,
    #[error("Invalid Metadata string")]
    InvalidMetadata,
}

impl Version {
    pub(crate) fn parse(text: &str) -> Result<Version, VersionError> {
        let (rest, metadata) = suffix(text, '+');
        let (numbers, prerelease) = suffix(rest, '-');
        let parts: Vec<&str> = numbers
            .strip_prefix('v')
            .unwrap_or(numbers)
            .split('.')
            .collect();
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
        let suffixes = [prerelease, metadata];
        if parts.len() > 3
            || !parts.iter().all(is_number)
            || !suffixes.into_iter().flatten().all(are_identifiers)
        {
            return Err(VersionError::Invalid);
        }
        let number = |index: usize| {
            let part = parts.get(index).copied().unwrap_or("0");
            part.parse()
                .map_err(|_| VersionError::TooLarge(part.to_owned()))
        };
        let version = Version {
            major: number(0)?,
            minor: number(1)?,
            patch: number(2)?,
            prerelease: prerelease.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
            derived: false,
        };
        let has_leading_zero = |part: &str| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|c| c.is_ascii_digit())
        };
        if version.prerelease.split('.').any(has_leading_zero) {
            return Err(VersionError::LeadingZero);
        }
        Ok(version)
    }

    /// Which one comes first; metadata does not count.
    pub(crate) fn precedence(&self, other: &Version) -> Ordering {
        let numbers = |version: &Version| (version.major, version.minor, version.patch);
        numbers(self)
            .cmp(&numbers(other))
            .then_with(|| prerelease_order(&self.prerelease, &other.prerelease))
    }

    /// The next version at that place of the three, without prerelease and metadata.
    pub(crate) fn incremented(&self, place: usize) -> Version {
        let mut numbers = [self.major, self.minor, self.patch];
        // The release of a prerelease is its next patch.
        if place < 2 || self.prerelease.is_empty() {
            numbers[place] = numbers[place].wrapping_add(1);
        }
        numbers[place + 1..].fill(0);
        let [major, minor, patch] = numbers;
        self.with_original(Version {
            major,
            minor,
            patch,
            prerelease: String::new(),
            metadata: String::new(),
            original: String::new(),
            derived: true,
        })
    }

    /// The same with another prerelease, which upstream does not check as strictly as one that it parses.
    pub(crate) fn with_prerelease(&self, prerelease: &str) -> Result<Version, VersionError> {
        for part in prerelease.split('.') {
            if part.bytes().all(|c| c.is_ascii_digit()) {
                if part.len() > 1 && part.starts_with('0') {
                    return Err(VersionError::LeadingZero);
                }
            } else if !part.bytes().all(is_allowed) {
                return Err(VersionError::InvalidPrerelease);
            }
        }
        Ok(self.with_original(Version {
            prerelease: prerelease.to_owned(),
            derived: true,
            ..self.clone()
        }))
    }

    /// The same with other metadata.
    pub(crate) fn with_metadata(&self, metadata: &str) -> Result<Version, VersionError> {
        if !metadata.bytes().all(|c| is_allowed(c) || c == b'.') {
            return Err(VersionError::InvalidMetadata);
        }
        Ok(self.with_original(Version {
            metadata: metadata.to_owned(),
            derived: true,
            ..self.clone()
        }))
    }

    /// A version made of this one, as it would have been written.
    fn with_original(&self, next: Version) -> Version {
        let v = if self.original.starts_with('v') {
            "v"
        } else {
            ""
        };
        Version {
            original: format!("{v}{next}"),
            ..next
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

/// The text before the first `sign`, and the text after it.
fn suffix(text: &str, sign: char) -> (&str, Option<&str>) {
    match text.split_once(sign) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

/// Words of letters, digits and hyphens with points between them.
fn are_identifiers(text: &str) -> bool {
    let mut parts = text.split('.');
    parts.all(|part| !part.is_empty() && part.bytes().all(is_allowed))
}

fn is_allowed(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'-'
}

/// A version without a prerelease is behind all those with one.
pub fn prerelease_order(left: &str, right: &str) -> Ordering {
    match (left.is_empty(), right.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (left.split('.'), right.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => part_order(left, right),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Numbers by their size and before words, words as text.
fn part_order(left: &str, right: &str) -> Ordering {
    match (left.parse::<u64>(), right.parse::<u64>()) {
        (Ok(left), Ok(right)) => left.cmp(&right),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => left.cmp(right),
    }
}
