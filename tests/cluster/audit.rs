//! Reading the API server's audit log: who asked for what. Counts nothing that the log does not say.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;

use super::wait;

/// How the names begin of what the reader asks for itself.
const MARKER: &str = "audit-marker-";

/// One request to the API server.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    pub user: String,
    /// As the API server calls it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    pub group: String,
    /// Empty for a request that is not about a resource, such as `/healthz`.
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    /// The HTTP status of the answer; 0 if there was none.
    pub code: u16,
    pub received: Timestamp,
    /// Set by admission: the decisions of webhooks under `<webhook name>/<key>`, among others.
    pub annotations: Value,
}

impl AuditEvent {
    /// Whether the request asked to change what is stored. A dry run does not.
    pub fn is_write(&self) -> bool {
        let writes = matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        );
        writes && !self.uri.contains("dryRun=")
    }

    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }

    fn parse(event: &Value) -> Result<AuditEvent> {
        let text = |path: &str| {
            event
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Ok(AuditEvent {
            user: text("/user/username"),
            verb: text("/verb"),
            group: text("/objectRef/apiGroup"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            uri: text("/requestURI"),
            code: event
                .pointer("/responseStatus/code")
                .and_then(Value::as_u64)
                .unwrap_or(0)
                .try_into()?,
            received: text("/requestReceivedTimestamp").parse()?,
            annotations: event.get("annotations").cloned().unwrap_or_default(),
        })
    }
}

/// A reader of the log: tells the requests that were received after it was made.
pub struct AuditLog {
    path: PathBuf,
    admin: Client,
    offset: u64,
    since: Timestamp,
    started: BTreeSet<String>,
}

impl AuditLog {
    pub(super) async fn from_here(path: PathBuf, admin: Client) -> Result<AuditLog> {
        let offset = end_of_lines(&path)?;
        let since = Timestamp::MIN;
        let mut log = AuditLog {
            path,
            admin,
            offset,
            since,
            started: BTreeSet::new(),
        };
        let (_, here) = log.read_to_marker().await?;
        log.since = here;
        Ok(log)
    }

    /// The requests since the last call, in the order of the log: all that were answered before this call, maybe more.
    pub async fn read(&mut self) -> Result<Vec<AuditEvent>> {
        let (mut events, _) = self.read_to_marker().await?;
        events.retain(|event| event.received > self.since && !event.name.starts_with(MARKER));
        Ok(events)
    }

    /// The API server writes the log late but in order, so the reader makes a request of its own, which changes
    /// nothing, and reads until it appears. Returns the time of that request, too.
    async fn read_to_marker(&mut self) -> Result<(Vec<AuditEvent>, Timestamp)> {
        static MARKERS: AtomicU64 = AtomicU64::new(0);
        let number = MARKERS.fetch_add(1, Ordering::Relaxed);
        let marker = format!("{MARKER}{}-{number}", std::process::id());
        let configmaps = Api::<ConfigMap>::namespaced(self.admin.clone(), "default");
        match configmaps.delete(&marker, &Default::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("marking the end of the audit log"),
            Ok(_) => bail!("there is a ConfigMap default/{marker}, which nobody should have made"),
        }
        let mut events = Vec::new();
        let marked = wait::until(
            "the audit log's newest event",
            Duration::from_secs(10),
            async || {
                let new = self.read_written()?;
                let marked = new
                    .iter()
                    .find(|event| event.name == marker)
                    .map(|event| event.received);
                events.extend(new);
                marked.with_context(|| format!("{} has no {marker} yet", self.path.display()))
            },
        );
        let marked = marked.await?;
        Ok((events, marked))
    }

    /// What stands in the file by now, up to the last complete line.
    fn read_written(&mut self) -> Result<Vec<AuditEvent>> {
        let mut text = Vec::new();
        let mut file =
            File::open(&self.path).with_context(|| format!("opening {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        file.read_to_end(&mut text)?;
        let complete = text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.offset += complete as u64;
        let mut events = Vec::new();
        for line in text[..complete]
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let event: Value = serde_json::from_slice(line)
                .with_context(|| format!("{} has a line that is no JSON", self.path.display()))?;
            // A watch is logged when it starts and again when it ends.
            let id = event["auditID"].as_str().unwrap_or_default();
            let ends_what_was_seen = event["stage"] != "ResponseStarted" && self.started.remove(id);
            if event["stage"] == "ResponseStarted" {
                self.started.insert(id.to_owned());
            }
            if !ends_what_was_seen {
                events.push(AuditEvent::parse(&event)?);
            }
        }
        Ok(events)
    }
}

/// The position after the last complete line.
fn end_of_lines(path: &Path) -> Result<u64> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut end = file.metadata()?.len();
    let mut byte = [0];
    while end > 0 {
        file.seek(SeekFrom::Start(end - 1))?;
        file.read_exact(&mut byte)?;
        if byte == *b"\n" {
            break;
        }
        end -= 1;
    }
    Ok(end)
}
