//! A replica's own clock, by libfaketime where it is installed: the wall clock jumps, the monotonic one goes on.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Of Debian's package `libfaketime`, for programs with threads.
fn library() -> PathBuf {
    let arch = std::env::consts::ARCH;
    PathBuf::from(format!(
        "/usr/lib/{arch}-linux-gnu/faketime/libfaketimeMT.so.1"
    ))
}

pub struct Clock {
    file: PathBuf,
}

impl Clock {
    pub fn new(file: PathBuf) -> Result<Clock> {
        let clock = Clock { file };
        clock.set(0)?;
        Ok(clock)
    }

    pub fn can_be_set() -> bool {
        library().is_file()
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        if !Clock::can_be_set() {
            return Vec::new();
        }
        let on = || "1".to_owned();
        vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("DONT_FAKE_MONOTONIC", on()),
            ("FAKETIME_NO_CACHE", on()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
        ]
    }

    /// So far from the true time from now on.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // A reader must not see half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}\n"))?;
        std::fs::rename(&new, &self.file).with_context(|| format!("{}", self.file.display()))
    }
}
