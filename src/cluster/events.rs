//! Kubernetes events about our objects, written in the background: none is worth waiting for.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc::{Sender, channel};

use crate::api::names;
use crate::cluster::vital;
use crate::decide::child::NodeKey;

/// The longest note that the API server takes is 1 KiB.
const NOTE_MAX: usize = 1_000;
/// Events that wait to be written; more than this are dropped, for they must never hold up the work.
const WAITING_MAX: usize = 1_000;

/// Cheap to clone; all clones write through one task.
#[derive(Clone)]
pub struct Events {
    sender: Sender<(Event, ObjectReference)>,
}

impl Events {
    pub fn start(client: kube::Client, instance: Option<String>) -> Self {
        let (sender, mut receiver) = channel::<(Event, ObjectReference)>(WAITING_MAX);
        let recorder = Recorder::new(
            client,
            Reporter {
                controller: "lynqgate".into(),
                instance,
            },
        );
        vital::spawn(async move {
            while let Some((event, reference)) = receiver.recv().await {
                if let Err(error) = recorder.publish(&event, &reference).await {
                    tracing::debug!(%error, reason = event.reason, "an event could not be written");
                }
            }
        });
        Events { sender }
    }

    /// Something that is as it should be.
    pub fn normal(&self, about: &About, reason: &str, note: impl Into<String>) {
        self.send(about, EventType::Normal, reason, note.into());
    }

    /// Something that a person should look at.
    pub fn warning(&self, about: &About, reason: &str, note: impl Into<String>) {
        self.send(about, EventType::Warning, reason, note.into());
    }

    fn send(&self, about: &About, type_: EventType, reason: &str, note: String) {
        let note = note.chars().take(NOTE_MAX).collect();
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note),
            action: reason.into(),
            secondary: None,
        };
        if self.sender.try_send((event, about.reference())).is_err() {
            tracing::debug!(reason, "an event was dropped: too many wait");
        }
    }
}

/// The object that an event is about.
#[derive(Clone, Debug)]
pub struct About {
    pub kind: &'static str,
    pub key: NodeKey,
    pub uid: String,
}

impl About {
    pub fn new(kind: &'static str, namespace: &str, name: &str, uid: &str) -> Self {
        About {
            kind,
            key: NodeKey {
                namespace: namespace.into(),
                name: name.into(),
            },
            uid: uid.into(),
        }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(format!("{}/{}", names::GROUP, names::VERSION)),
            kind: Some(self.kind.into()),
            namespace: Some(self.key.namespace.clone()),
            name: Some(self.key.name.clone()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}
