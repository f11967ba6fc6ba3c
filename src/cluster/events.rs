//! Kubernetes events about our objects, written in the background: none is worth waiting for. Warnings go first. The others are
//! written slowly, so that the API server has time for the writes that users wait for.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Duration, sleep};

use crate::api::events::{EventReason, NORMAL, WARNING};
use crate::cluster::clock;
use crate::cluster::objects::{ApiError, timed};
use crate::cluster::vital;
use crate::decide::child::ObjectKey;

/// The longest note that the API server takes, in bytes.
const NOTE_BYTES_MAX: usize = 1024;
/// The longest queue of each type of event; further events are dropped, so that no loop ever waits to report one.
const WAITING_MAX: usize = 1_000;
/// How often an event is tried while the API server is unavailable. The events behind it wait meanwhile.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after each event that is no warning. A large change leaves hundreds of them in the queue; without the pause they
/// delayed the next change.
const PACE: Duration = Duration::from_millis(10);
/// The time limit of each try.
const PATIENCE: Duration = Duration::from_secs(2);
/// An event that repeats within this time only increases the count of the first one.
const SERIES: SignedDuration = SignedDuration::from_mins(6);
/// An object's name may have 253 characters; the event's name adds a suffix to it.
const NAME_CHARS_MAX: usize = 220;

/// Clones are cheap and share one writer task.
#[derive(Clone)]
pub struct Events {
    warnings: Sender<Said>,
    others: Sender<Said>,
    dropped: Family<OfType, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfType {
    r#type: &'static str,
}

/// One event to write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Said {
    about: About,
    reason: EventReason,
    note: String,
}

impl Said {
    /// Equal for equal events: the notes of a large fleet would take more memory than the fleet.
    fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl Events {
    pub fn start(client: kube::Client, instance: Option<String>) -> Self {
        let (events, mut waiting) = lanes();
        let mut recorder = Recorder {
            client,
            instance: instance.unwrap_or_else(|| CONTROLLER.to_owned()),
            said: BTreeMap::new(),
            pruned_at: Timestamp::MIN,
        };
        vital::spawn(async move {
            while let Some(said) = waiting.next().await {
                let now = clock::now();
                for _ in 0..TRIES {
                    let Err(error) = timed(PATIENCE, recorder.write(&said, now)).await else {
                        break;
                    };
                    let reason = said.reason.as_str();
                    tracing::debug!(%error, reason, "an event could not be written");
                    match error {
                        ApiError::Unavailable(_) => sleep(PAUSE).await,
                        _ => break,
                    }
                }
                if said.reason.type_() != WARNING {
                    sleep(PACE).await;
                }
            }
        });
        events
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "lynqgate_events_dropped",
            "Events that were not written, because too many of their type waited for the API server",
            self.dropped.clone(),
        );
        for r#type in [WARNING, NORMAL] {
            // Exports 0 from the start: Prometheus sees no increase in a series that begins at 1.
            drop(self.dropped.get_or_create(&OfType { r#type }));
        }
    }

    pub fn tell(&self, about: &About, reason: EventReason, note: impl Into<String>) {
        let said = Said {
            about: about.clone(),
            reason,
            note: cut(note.into()),
        };
        let r#type = reason.type_();
        let lane = match r#type {
            WARNING => &self.warnings,
            _ => &self.others,
        };
        if lane.try_send(said).is_err() {
            self.dropped.get_or_create(&OfType { r#type }).inc();
            tracing::debug!(
                reason = reason.as_str(),
                "an event was dropped: too many wait"
            );
        }
    }
}

/// Events that wait to be written.
struct Waiting {
    warnings: Receiver<Said>,
    others: Receiver<Said>,
}

fn lanes() -> (Events, Waiting) {
    let (warnings, of_warnings) = channel(WAITING_MAX);
    let (others, of_others) = channel(WAITING_MAX);
    let events = Events {
        warnings,
        others,
        dropped: Family::default(),
    };
    let waiting = Waiting {
        warnings: of_warnings,
        others: of_others,
    };
    (events, waiting)
}

impl Waiting {
    /// Takes warnings first: a burst of other events must neither delay nor displace one.
    async fn next(&mut self) -> Option<Said> {
        tokio::select! {
            biased;
            Some(warning) = self.warnings.recv() => Some(warning),
            Some(other) = self.others.recv() => Some(other),
            else => None,
        }
    }
}

fn cut(mut note: String) -> String {
    const ELLIPSIS: &str = " ...";
    if note.len() > NOTE_BYTES_MAX {
        note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

const CONTROLLER: &str = "lynqgate";

/// Replaces kube's recorder, which treats two events with the same reason as one and loses the second note.
struct Recorder {
    client: kube::Client,
    instance: String,
    /// Recent events by [`Said::key`]: name of the event, how often it occurred, and when last.
    said: BTreeMap<u64, (String, i32, Timestamp)>,
    pruned_at: Timestamp,
}

/// How often entries older than [`SERIES`] are removed.
const PRUNE_EVERY: SignedDuration = SignedDuration::from_mins(1);

impl Recorder {
    async fn write(&mut self, said: &Said, now: Timestamp) -> Result<(), kube::Error> {
        let is_recent = |last: Timestamp| now.duration_since(last) < SERIES;
        if now.duration_since(self.pruned_at).abs() >= PRUNE_EVERY {
            self.said.retain(|_, (_, _, last)| is_recent(*last));
            self.pruned_at = now;
        }
        let key = said.key();
        let namespace = said.about.namespace();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Some((name, count, last)) = self.said.get_mut(&key)
            && is_recent(*last)
        {
            let series = EventSeries {
                count: *count + 1,
                last_observed_time: MicroTime(now),
            };
            let patch = Patch::Merge(serde_json::json!({ "series": series }));
            match events.patch(name, &PatchParams::default(), &patch).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    (*count, *last) = (*count + 1, now);
                    return Ok(());
                }
            }
        }
        let name = format!(
            "{}.{:x}",
            beginning(&said.about.key.name),
            now.as_nanosecond()
        );
        let event = Event {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(said.reason.type_().to_owned()),
            reason: Some(said.reason.as_str().to_owned()),
            action: Some(said.reason.as_str().to_owned()),
            note: Some(said.note.clone()),
            regarding: Some(said.about.reference()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await?;
        self.said.insert(key, (name, 1, now));
        Ok(())
    }
}

/// In an object's name, no dash may precede a dot.
fn beginning(name: &str) -> &str {
    name[..name.len().min(NAME_CHARS_MAX)].trim_end_matches(['-', '.'])
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct About {
    pub key: ObjectKey,
    pub uid: String,
}

impl About {
    /// One of our own objects.
    pub fn new(kind: &str, namespace: &str, name: &str, uid: &str) -> Self {
        About {
            key: ObjectKey::own(kind, namespace, name),
            uid: uid.into(),
        }
    }

    /// The namespace of its events: `default` for a cluster-scoped object.
    fn namespace(&self) -> &str {
        match &*self.key.namespace {
            "" => "default",
            namespace => namespace,
        }
    }

    fn reference(&self) -> ObjectReference {
        let key = &self.key;
        ObjectReference {
            api_version: Some(key.kind.api_version.clone()),
            kind: Some(key.kind.kind.clone()),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.to_string()),
            name: Some(key.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[tokio::test]
    async fn warnings_go_first_and_what_is_dropped_is_counted() {
        let (events, mut waiting) = lanes();
        let mut registry = Registry::default();
        events.register(&mut registry);
        let about = About::new("LynqNode", "shop", "acme-web", "u");
        for _ in 0..WAITING_MAX + 3 {
            events.tell(&about, EventReason::NodeDeleted, "news");
        }
        events.tell(&about, EventReason::ApplyFailed, "a warning");
        let mut told = String::new();
        encode(&mut told, &registry).unwrap();
        for (type_, dropped) in [("Warning", 0), ("Normal", 3)] {
            let line = format!("lynqgate_events_dropped_total{{type=\"{type_}\"}} {dropped}");
            assert!(told.contains(&line), "{told}");
        }
        let first = waiting.next().await.map(|said| said.note);
        assert_eq!(first.as_deref(), Some("a warning"));
        drop(events);
        let mut others = 0;
        while waiting.next().await.is_some() {
            others += 1;
        }
        assert_eq!(others, WAITING_MAX);
    }

    #[test]
    fn a_long_note_is_cut_and_shows_it() {
        let short = "é".repeat(512);
        assert_eq!(cut(short.clone()), short);
        let long = cut("é".repeat(513));
        assert_eq!((long.len(), &long[1014..]), (1024, "ééé ..."));
    }

    #[test]
    fn a_long_name_makes_a_valid_beginning() {
        assert_eq!(beginning("acme-web"), "acme-web");
        let long = format!("{}-{}", "a".repeat(219), "b".repeat(33));
        assert_eq!(beginning(&long), "a".repeat(219));
    }
}
