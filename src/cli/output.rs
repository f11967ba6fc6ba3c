//! What the programs say. Whoever reads it may have seen enough (`| head -1`), and that is no failure.

use std::fmt::Display;
use std::io::{Error, ErrorKind, Write, stderr, stdout};

/// To standard output.
pub fn print(text: impl Display) -> Result<(), Error> {
    let mut out = stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::new(
            error.kind(),
            format!("standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

/// A line to standard error.
pub fn tell(line: impl Display) {
    // There is nobody left to be told.
    let _ = writeln!(stderr(), "{line}");
}
