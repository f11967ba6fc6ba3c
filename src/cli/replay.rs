//! `lynqgate replay`: plans again what the release loops saw, says what differs from their plans, and why nodes wait.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::api::names;
use crate::cli::Output;
use crate::cli::file;
use crate::cli::output::print;
use crate::decide::rollout::replay::{self, Recording, Replayed};

/// Where the cases of the release planner are, in a checkout of lynqgate.
const CASES: &str = "tests/cases/snapshots";

#[derive(clap::Args)]
pub struct Arguments {
    /// File with the answer of /debug/state, or a test case. - for standard input.
    file: PathBuf,
    /// Plan only this hub.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    hub: Option<String>,
    /// In a checkout of lynqgate, write the hub's snapshot and this version's plan to tests/cases/snapshots/NAME.json. The
    /// tests plan each of these files.
    #[arg(long, value_name = "NAME", value_parser = case_name)]
    as_case: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
}

fn case_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !text.is_empty() && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("give small letters, digits and hyphens".to_owned()),
    }
}

/// Nothing was planned, or no case was written.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    File(#[from] file::Error),
    #[error("{path}: {reason}")]
    Unreadable {
        path: String,
        reason: replay::Unreadable,
    },
    #[error(
        "{path}: the replica that answered leads no hub and has no passes; ask the holder of the lease {} (with --shards, of the lease of the hub's shard)",
        names::LEADER_LEASE
    )]
    NotLeading { path: String },
    #[error("{path}: there is no pass of hub {hub} in it; hubs in it: {there}")]
    NoHub {
        path: String,
        hub: String,
        there: String,
    },
    #[error(
        "{path}: the leader had planned no LynqHub yet; save the state again once there is one"
    )]
    NoHubs { path: String },
    #[error("a case has one hub; choose one with --hub: {there}")]
    OneHub { there: String },
    #[error("{CASES}/{name}.json: {reason}; {next}")]
    Case {
        name: String,
        reason: std::io::Error,
        next: &'static str,
    },
    #[error(transparent)]
    Other(#[from] serde_json::Error),
}

#[derive(Debug, thiserror::Error)]
#[error("{differ} of {all} plans {} not as recorded", if *.differ == 1 { "is" } else { "are" })]
struct Differs {
    differ: usize,
    all: usize,
}

type AnyError = Box<dyn std::error::Error>;

pub fn replay(arguments: &Arguments) -> Result<(), AnyError> {
    let (recordings, replayed) = plan_again(arguments)?;
    match arguments.output {
        Output::Text => {
            let texts: Vec<String> = replayed.iter().map(Replayed::to_string).collect();
            print(texts.join("\n"))?;
        }
        Output::Json => print(serde_json::to_string_pretty(&replayed)? + "\n")?,
    }
    if let Some(name) = &arguments.as_case {
        return Ok(write_case(name, &recordings)?);
    }
    let all = replayed.len();
    let differ = replayed.iter().filter(|hub| !hub.differences.is_empty());
    match differ.count() {
        0 => Ok(()),
        differ => Err(Differs { differ, all }.into()),
    }
}

fn plan_again(arguments: &Arguments) -> Result<(Vec<Recording>, Vec<Replayed>), Failed> {
    let path = arguments.file.display().to_string();
    let text = file::text_of(&arguments.file)?;
    let mut state = match replay::read(&text) {
        Ok(state) => state,
        Err(reason) => return Err(Failed::Unreadable { path, reason }),
    };
    if !state.leads {
        return Err(Failed::NotLeading { path });
    }
    if state.hubs.is_empty() {
        return Err(Failed::NoHubs { path });
    }
    if let Some(hub) = &arguments.hub {
        let there: Vec<String> = state.hubs.iter().map(|hub| hub.recording.hub()).collect();
        state
            .hubs
            .retain(|recorded| recorded.recording.hub() == *hub);
        if state.hubs.is_empty() {
            let (hub, there) = (hub.clone(), there.join(", "));
            return Err(Failed::NoHub { path, hub, there });
        }
    }
    let replayed = state
        .hubs
        .iter()
        .map(|hub| replay::replay(hub, &state.lynqgate));
    let replayed = replayed.collect::<Result<_, _>>()?;
    let recordings = state.hubs.into_iter().map(|hub| hub.recording).collect();
    Ok((recordings, replayed))
}

fn write_case(name: &str, recordings: &[Recording]) -> Result<(), Failed> {
    let [recording] = recordings else {
        let there: Vec<String> = recordings.iter().map(Recording::hub).collect();
        let there = there.join(", ");
        return Err(Failed::OneHub { there });
    };
    let case = recording.as_case()?;
    let path = Path::new(CASES).join(format!("{name}.json"));
    let new = OpenOptions::new().write(true).create_new(true).open(path);
    let written = new.and_then(|mut file| file.write_all(case.as_bytes()));
    written.map_err(|reason| Failed::Case {
        name: name.to_owned(),
        next: match reason.kind() {
            std::io::ErrorKind::AlreadyExists => "give the case another name, or delete that one",
            _ => "run this in the root of a checkout of lynqgate",
        },
        reason,
    })
}
