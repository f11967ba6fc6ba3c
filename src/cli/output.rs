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

/// Rows under a head, each column as wide as its widest cell.
pub fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = [head.map(str::to_owned)].into_iter().chain(rows).collect();
    let wide: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.max().unwrap_or_default()
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(wide);
        let cells: Vec<String> = cells.map(|(cell, wide)| format!("{cell:<wide$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
