//! `lynqgate generate`: writes the manifests, or tells which are stale.

use std::fs;
use std::path::PathBuf;

use crate::cli::manifests;

#[derive(clap::Args)]
pub struct Arguments {
    /// Directory for the files.
    #[arg(long, default_value = "manifests")]
    to: PathBuf,
    /// Write nothing, and fail if a file differs.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {reason}")]
    File {
        path: String,
        reason: std::io::Error,
    },
    #[error("these files are stale; run `make generate`: {0}")]
    Stale(String),
}

pub fn generate(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut stale = vec![];
    for (name, text) in manifests::files() {
        let path = arguments.to.join(name);
        let shown = path.display().to_string();
        if arguments.check {
            if fs::read_to_string(&path).unwrap_or_default() != text {
                stale.push(shown);
            }
        } else {
            fs::write(&path, text).map_err(|reason| Error::File {
                path: shown,
                reason,
            })?;
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Error::Stale(stale.join(", ")).into())
    }
}
