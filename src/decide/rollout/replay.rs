//! Replay: passes of the release loop as a document, and what this program plans for them. `/debug/state` serves the document,
//! `lynqgate replay` reads it, and so is each case in `tests/cases/snapshots`.
//!
//! A plan follows from the snapshot and the time alone. So a recording has no plan: the program that recorded it plans again
//! when somebody asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::catch_unwind;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::decide::rollout::reason::Reason;
use crate::decide::rollout::{Snapshot, plan};

const KIND: &str = "LynqgateState";
/// It grows when a field is renamed or gets another meaning. A field that is new needs no new format: an older program names
/// it, and reads the document no further.
const FORMAT: u64 = 1;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One pass of one hub's release loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    pub namespace: String,
    pub name: String,
    pub now: Timestamp,
    pub snapshot: Snapshot,
}

impl Recording {
    /// As people name the hub.
    pub fn hub(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The document of a case, with the plan that this program makes.
    pub fn as_case(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(&document(true, [self]))? + "\n")
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<Hub> {
    kind: String,
    format: u64,
    /// The version of the program that wrote it.
    lynqgate: String,
    /// Whether that program led: others have no passes.
    leads: bool,
    hubs: Vec<Hub>,
}

fn document<'a>(
    leads: bool,
    recordings: impl IntoIterator<Item = &'a Recording>,
) -> Document<Planned<'a>> {
    Document {
        kind: KIND.to_owned(),
        format: FORMAT,
        lynqgate: VERSION.to_owned(),
        leads,
        hubs: recordings.into_iter().map(Planned).collect(),
    }
}

/// The recordings with their plans, in JSON; None in a replica that does not lead.
pub fn to_json(recordings: Option<&[Arc<Recording>]>) -> serde_json::Result<Vec<u8>> {
    let all = recordings.into_iter().flatten().map(Arc::as_ref);
    serde_json::to_vec(&document(recordings.is_some(), all))
}

/// A recording that is planned while it is written, so that no two plans are in memory.
struct Planned<'a>(&'a Recording);

impl Serialize for Planned<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct WithPlan<'a, Plan> {
            #[serde(flatten)]
            recording: &'a Recording,
            plan: Plan,
        }
        let Planned(recording) = self;
        // Where the planner panics, the snapshot is worth most.
        let plan = catch_unwind(|| plan(&recording.snapshot, recording.now)).ok();
        WithPlan { recording, plan }.serialize(serializer)
    }
}

/// A document that was read.
#[derive(Clone, Debug)]
pub struct State {
    /// The version of the program that wrote it.
    pub lynqgate: String,
    pub leads: bool,
    pub hubs: Vec<Recorded>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Recorded {
    #[serde(flatten)]
    pub recording: Recording,
    /// As the program wrote it that made it.
    plan: Value,
}

#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("it is not JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("it is not an answer of /debug/state: its kind is {0}, and not {KIND:?}")]
    OtherKind(Value),
    #[error(
        "lynqgate {by} wrote it in format {found}, and this is lynqgate {VERSION}, which reads format {FORMAT}. Replay it with \
         lynqgate {by}"
    )]
    OtherFormat { by: String, found: Value },
    #[error(
        "lynqgate {by} wrote it, and this is lynqgate {VERSION}, which cannot read it: {reason}. Replay it with lynqgate {by}"
    )]
    OtherShape {
        by: String,
        reason: serde_json::Error,
    },
}

pub fn read(text: &str) -> Result<State, Unreadable> {
    let value: Value = serde_json::from_str(text).map_err(Unreadable::NotJson)?;
    if value["kind"] != KIND {
        return Err(Unreadable::OtherKind(value["kind"].clone()));
    }
    let by = value["lynqgate"].as_str().unwrap_or("?").to_owned();
    if value["format"] != FORMAT {
        let found = value["format"].clone();
        return Err(Unreadable::OtherFormat { by, found });
    }
    match serde_json::from_value::<Document<Recorded>>(value) {
        Ok(document) => Ok(State {
            lynqgate: document.lynqgate,
            leads: document.leads,
            hubs: document.hubs,
        }),
        Err(reason) => Err(Unreadable::OtherShape { by, reason }),
    }
}

/// A recording, planned again.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// As namespace/name.
    pub hub: String,
    pub now: Timestamp,
    /// The version of the program that recorded it.
    pub lynqgate: String,
    /// Between the recorded plan and the one made now.
    pub differences: Vec<Difference>,
    /// Why nodes wait, as planned now.
    pub waiting: BTreeMap<Arc<str>, Arc<Reason>>,
}

/// `null` where there is nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Where in the plan, with a dot between the names of fields.
    pub path: String,
    pub recorded: Value,
    pub planned: Value,
}

pub fn replay(recorded: &Recorded, lynqgate: &str) -> serde_json::Result<Replayed> {
    let Recorded {
        recording,
        plan: before,
    } = recorded;
    let plan = plan(&recording.snapshot, recording.now);
    let mut differences = vec![];
    compare("", before, &serde_json::to_value(&plan)?, &mut differences);
    Ok(Replayed {
        hub: recording.hub(),
        now: recording.now,
        lynqgate: lynqgate.to_owned(),
        differences,
        waiting: plan.waiting,
    })
}

fn compare(path: &str, recorded: &Value, planned: &Value, found: &mut Vec<Difference>) {
    let mut differ = |recorded: &Value, planned: &Value| {
        found.push(Difference {
            path: path.to_owned(),
            recorded: recorded.clone(),
            planned: planned.clone(),
        });
    };
    match (recorded, planned) {
        _ if recorded == planned => {}
        (Value::Object(before), Value::Object(now)) => {
            let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
            for name in names {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                let [before, now] = [before, now].map(|all| all.get(name).unwrap_or(&Value::Null));
                compare(&path, before, now, found);
            }
        }
        (Value::Array(before), Value::Array(now)) => {
            let texts = |all: &[Value]| all.iter().map(Value::to_string).collect();
            let (of_before, of_now): (BTreeSet<_>, BTreeSet<_>) = (texts(before), texts(now));
            if of_before == of_now {
                // In another order.
                return differ(recorded, planned);
            }
            let gone = before
                .iter()
                .filter(|each| !of_now.contains(&each.to_string()));
            gone.for_each(|gone| differ(gone, &Value::Null));
            let new = now
                .iter()
                .filter(|each| !of_before.contains(&each.to_string()));
            new.for_each(|new| differ(&Value::Null, new));
        }
        _ => differ(recorded, planned),
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replayed {
            hub, now, lynqgate, ..
        } = self;
        let result = match self.differences.len() {
            0 => "the same plan".to_owned(),
            1 => "1 difference in the plan".to_owned(),
            n => format!("{n} differences in the plan"),
        };
        writeln!(
            f,
            "hub {hub} at {now}, recorded by lynqgate {lynqgate}: {result}"
        )?;
        for Difference {
            path,
            recorded,
            planned,
        } in &self.differences
        {
            writeln!(f, "  {path}")?;
            writeln!(f, "    recorded  {recorded}")?;
            writeln!(f, "    planned   {planned}")?;
        }
        for (node, reason) in &self.waiting {
            writeln!(f, "  {node} waits: {}: {reason}", reason.code())?;
        }
        Ok(())
    }
}
