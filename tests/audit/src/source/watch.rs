//! A live watch through the API server, with the user's own rights: get, list and watch on the kinds that are followed.
//!
//! Each kind has a watch of its own, so revisions of different kinds arrive out of order: they are held back for a moment
//! and sorted. The API server may leave out revisions only by a new list, and that is a gap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Sink, SourceError, send};
use crate::core::{Change, Input};
use crate::kinds::{Key, Kind};

#[derive(Clone, Debug)]
pub struct Watch {
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// One namespace only.
    pub namespace: Option<String>,
    /// How long a revision waits for earlier ones of other kinds.
    pub hold_back: Duration,
}

const RETRY: Duration = Duration::from_millis(500);
const PAGE: u32 = 500;
/// The API server ends a watch at the latest then; it must be less than 295 for kube.
const WATCH_SECONDS: u32 = 290;

impl Watch {
    pub async fn follow(self, sink: Sink) -> Result<(), SourceError> {
        let client = self.client().await?;
        let mut newest = 0;
        let mut from = BTreeMap::new();
        let mut objects = vec![];
        for kind in Kind::all() {
            let listed = list(&self.api(&client, kind), kind).await;
            if kind.is_optional() && listed.as_ref().is_err_and(is_forbidden) {
                continue;
            }
            let (version, found) = listed.map_err(|e| SourceError::List {
                kind: kind.name(),
                reason: e.to_string(),
            })?;
            newest = newest.max(version.parse().unwrap_or(0));
            from.insert(kind, version);
            objects.extend(found);
        }
        let at = Timestamp::now();
        let kinds = from.keys().copied().collect();
        send(
            &sink,
            Input::Baseline {
                revision: newest,
                at,
                kinds,
                objects,
            },
        )
        .await?;
        let (arrivals, arrived) = mpsc::channel(10_000);
        let mut tasks = tokio::task::JoinSet::new();
        for (kind, version) in from {
            tasks.spawn(follow_kind(
                self.api(&client, kind),
                kind,
                version,
                arrivals.clone(),
            ));
        }
        drop(arrivals);
        in_order(arrived, sink, self.hold_back, newest).await
    }

    async fn client(&self) -> Result<Client, SourceError> {
        let failed = |e: &dyn std::fmt::Display| SourceError::Kubeconfig(e.to_string());
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..Default::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path).map_err(|e| failed(&e))?;
                Config::from_custom_kubeconfig(read, &options)
                    .await
                    .map_err(|e| failed(&e))?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options)
                .await
                .map_err(|e| failed(&e))?,
            None => Config::infer().await.map_err(|e| failed(&e))?,
        };
        Client::try_from(config).map_err(|e| failed(&e))
    }

    fn api(&self, client: &Client, kind: Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.name());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        match &self.namespace {
            Some(namespace) if kind != Kind::Namespace => {
                Api::namespaced_with(client.clone(), namespace, &resource)
            }
            _ => Api::all_with(client.clone(), &resource),
        }
    }
}

type Listed = Vec<(Key, u64, Value)>;

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

async fn list(api: &Api<DynamicObject>, kind: Kind) -> Result<(String, Listed), kube::Error> {
    let mut parameters = ListParams::default().limit(PAGE);
    let (mut version, mut objects) = (String::new(), vec![]);
    loop {
        let page = api.list(&parameters).await?;
        if version.is_empty() {
            version = page.metadata.resource_version.clone().unwrap_or_default();
        }
        objects.extend(
            page.items
                .into_iter()
                .filter_map(|object| read(kind, object)),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok((version, objects)),
        }
    }
}

fn read(kind: Kind, object: DynamicObject) -> Option<(Key, u64, Value)> {
    let metadata = &object.metadata;
    let namespace = metadata.namespace.as_deref();
    let namespace = namespace.or((kind == Kind::Namespace).then_some(""))?;
    let key = Key::new(kind, namespace, metadata.name.as_deref()?);
    let revision = metadata.resource_version.as_deref()?.parse().ok()?;
    Some((key, revision, serde_json::to_value(&object).ok()?))
}

/// What a watch brings: sorted by revision, once its time has come.
struct Arrival {
    input: Input,
    revision: u64,
    at: Instant,
}

async fn follow_kind(
    api: Api<DynamicObject>,
    kind: Kind,
    mut version: String,
    out: mpsc::Sender<Arrival>,
) {
    let parameters = WatchParams::default().timeout(WATCH_SECONDS);
    loop {
        let expired = match watch_kind(&api, kind, &parameters, &mut version, &out).await {
            Ok(expired) => expired,
            Err(()) => return,
        };
        if !expired {
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let Ok((now, objects)) = list(&api, kind).await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let revision = now.parse().unwrap_or(0);
        let why = format!(
            "the watch of {}s lost its place at revision {version} and began again at {now}",
            kind.name()
        );
        let baseline = Input::Baseline {
            revision,
            at: Timestamp::now(),
            kinds: vec![kind],
            objects,
        };
        for input in [Input::Gap { why }, baseline] {
            let at = Instant::now();
            if out
                .send(Arrival {
                    input,
                    revision,
                    at,
                })
                .await
                .is_err()
            {
                return;
            }
        }
        version = now;
    }
}

/// One watch. True when its revision is too old; an error when nobody listens any more.
async fn watch_kind(
    api: &Api<DynamicObject>,
    kind: Kind,
    parameters: &WatchParams,
    version: &mut String,
    out: &mpsc::Sender<Arrival>,
) -> Result<bool, ()> {
    let Ok(stream) = api.watch(parameters, version).await else {
        return Ok(false);
    };
    let mut stream = stream.boxed();
    while let Ok(Some(event)) = stream.try_next().await {
        let (object, created, gone) = match event {
            WatchEvent::Added(object) => (object, true, false),
            WatchEvent::Modified(object) => (object, false, false),
            WatchEvent::Deleted(object) => (object, false, true),
            WatchEvent::Bookmark(bookmark) => {
                *version = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) => return Ok(status.code == 410),
        };
        let Some((key, revision, value)) = read(kind, object) else {
            continue;
        };
        *version = revision.to_string();
        let change = Change {
            revision,
            at: Timestamp::now(),
            key,
            created,
            object: (!gone).then_some(value),
        };
        let (input, at) = (Input::Change(change), Instant::now());
        out.send(Arrival {
            input,
            revision,
            at,
        })
        .await
        .map_err(drop)?;
    }
    Ok(false)
}

/// Passes arrivals on in the order of their revisions, each after it has waited.
async fn in_order(
    mut arrived: mpsc::Receiver<Arrival>,
    sink: Sink,
    hold_back: Duration,
    mut passed: u64,
) -> Result<(), SourceError> {
    let mut waiting: Vec<Arrival> = vec![];
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            arrival = arrived.recv() => match arrival {
                Some(arrival) => waiting.push(arrival),
                None => return Ok(()),
            },
            _ = tick.tick() => {
                waiting.sort_by_key(|arrival| arrival.revision);
                // Nothing overtakes what is still waiting for its time.
                let due = waiting.iter().rposition(|arrival| arrival.at.elapsed() >= hold_back).map_or(0, |at| at + 1);
                for arrival in waiting.drain(..due) {
                    if arrival.revision < passed && matches!(arrival.input, Input::Change(_)) {
                        let why = format!("revision {} came after {passed}; raise --hold-back", arrival.revision);
                        send(&sink, Input::Gap { why }).await?;
                    }
                    passed = passed.max(arrival.revision);
                    send(&sink, arrival.input).await?;
                }
            }
            () = sink.closed() => return Ok(()),
        }
    }
}
