//! One watch of one kind: its events in order, forever, as JSON with apiVersion and kind.

use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::api::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use crate::cluster::api_error::unanswered;
use crate::cluster::json_object::JsonObject;

/// A page of the first list. It is in memory at once, as text and as JSON: with 500 LynqNodes of 20 KB that were 100 MB.
const PAGE_SIZE: u32 = 100;
/// The API server ends a watch after this long, which also detects a connection that died silently.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(290);

/// After this many failures in a row, the failure is reported.
const LASTING: u32 = 4;
/// The longest pause between two lists that fail, in seconds.
const LIST_PAUSE_MAX: u32 = 30;

/// What happened to the watched objects.
#[derive(Debug)]
pub enum Change {
    /// A list starts: every object that is not applied before `Listed` is gone.
    Restarted,
    Applied(Value),
    Deleted(Value),
    Listed,
    /// The API server forbids the list, or failed to answer it several times; the watch retries.
    Refused(NoList),
}

/// Why the list failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoList {
    pub why: String,
    /// RBAC does not allow the list.
    pub forbidden: bool,
}

/// Which objects of a kind.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    All,
    /// Those with this label.
    Labelled(&'a str),
    /// The object of this name of a cluster-scoped kind.
    One(&'a str),
}

/// Follows objects of the kind; `on_change` sees every event in order.
pub async fn follow(
    client: kube::Client,
    resource: ApiResource,
    which: Which<'_>,
    mut on_change: impl FnMut(Change),
) {
    let mut config = watcher::Config::default()
        .page_size(PAGE_SIZE)
        .timeout(WATCH_TIMEOUT.as_secs() as u32);
    match which {
        Which::All => {}
        Which::Labelled(selector) => config = config.labels(selector),
        Which::One(name) => config = config.fields(&format!("metadata.name={name}")),
    }
    let api: Api<JsonObject> = Api::all_with(client, &resource);
    let mut events = watcher(api, config).default_backoff().boxed();
    let (mut failed, mut told) = (0, None);
    while let Some(event) = events.next().await {
        failed = match &event {
            // The watcher says so before each list, and it is the list that may fail.
            Ok(Event::Init) => failed,
            Ok(_) => 0,
            Err(_) => failed + 1,
        };
        if failed == 0 {
            told = None;
        }
        match event {
            Ok(Event::Init) => on_change(Change::Restarted),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                on_change(Change::Applied(json(object, &resource)))
            }
            Ok(Event::Delete(object)) => on_change(Change::Deleted(json(object, &resource))),
            Ok(Event::InitDone) => on_change(Change::Listed),
            Err(watcher::Error::InitialListFailed(error))
                if is_refusal(&error) || failed >= LASTING =>
            {
                let no_list = match error {
                    kube::Error::Api(status) => NoList {
                        forbidden: status.is_forbidden(),
                        why: status.message,
                    },
                    // The error may quote the whole reply.
                    error => NoList {
                        forbidden: false,
                        why: unanswered(&error).chars().take(300).collect(),
                    },
                };
                if told.as_ref() != Some(&no_list) {
                    tracing::warn!(kind = %resource.kind, message = no_list.why, "the API server answers no list; it is tried again");
                    told = Some(no_list.clone());
                }
                on_change(Change::Refused(no_list));
                // The watcher's own backoff restarts with each list.
                tokio::time::sleep(Duration::from_secs(failed.min(LIST_PAUSE_MAX).into())).await;
            }
            Err(error) => {
                let why = match &error {
                    watcher::Error::InitialListFailed(error)
                    | watcher::Error::WatchStartFailed(error)
                    | watcher::Error::WatchFailed(error) => unanswered(error),
                    other => other.to_string(),
                };
                tracing::warn!(kind = %resource.kind, error = why, "a watch was interrupted; it is taken up again")
            }
        }
    }
}

/// Whether a retry will fail in the same way.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403 | 404 | 405))
}

/// The items of a list come without apiVersion and kind.
fn json(object: JsonObject, resource: &ApiResource) -> Value {
    let mut value = object.value;
    value["apiVersion"] = resource.api_version.as_str().into();
    value["kind"] = resource.kind.as_str().into();
    value
}
