//! The watch of one kind: its events in order, forever, as JSON with apiVersion and kind. Where the operator watches some namespaces
//! only, a namespaced kind has a watch for each, and they are merged into one.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::Api;
use kube::api::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;

use crate::cluster::api_error::unanswered;
use crate::cluster::json_object::JsonObject;
use crate::cluster::objects::Objects;
use crate::decide::child::Scope;

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

/// Follows objects of the kind, in the namespaces that the operator watches; `on_change` sees every event in order.
pub async fn follow(
    objects: Objects,
    (resource, scope): (ApiResource, Scope),
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
    let places = objects.watched().places(scope);
    let open = |place: usize| Watch::open(&objects, &resource, &config, places[place]);
    if places.len() > 1 {
        return merge(places.len(), open, on_change).await;
    }
    let mut changes = open(0);
    while let Some(change) = changes.next().await {
        on_change(change);
    }
}

/// Merges the watches of a kind in several namespaces into one cycle of `Restarted`, `Applied` and `Listed`, which is all that the
/// caches know. If one of them lists again, all are opened again (decision 0049).
async fn merge<Changes: Stream<Item = Change> + Unpin>(
    places: usize,
    open: impl Fn(usize) -> Changes,
    mut on_change: impl FnMut(Change),
) {
    loop {
        let mut cycle = Cycle::new(places);
        on_change(Change::Restarted);
        let watches = (0..places).map(|place| open(place).map(move |change| (place, change)));
        let mut changes = stream::select_all(watches);
        loop {
            let Some((place, change)) = changes.next().await else {
                return;
            };
            match cycle.step(place, change) {
                Step::Pass(change) => on_change(change),
                Step::Nothing => {}
                Step::OpenAgain => break,
            }
        }
    }
}

/// How far the watch of each namespace is since all were opened.
struct Cycle(Vec<Progress>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No object was reported yet.
    Asked,
    Reporting,
    Listed,
}

#[derive(Debug)]
enum Step {
    Pass(Change),
    Nothing,
    OpenAgain,
}

impl Cycle {
    fn new(places: usize) -> Self {
        Cycle(vec![Progress::Asked; places])
    }

    fn step(&mut self, place: usize, change: Change) -> Step {
        let progress = &mut self.0[place];
        match change {
            // The list of a namespace starts, or starts again after it failed at once: the cycle is open already.
            Change::Restarted if *progress == Progress::Asked => Step::Nothing,
            // Objects that it has reported may be gone, and only a new cycle shows that.
            Change::Restarted => Step::OpenAgain,
            Change::Listed => {
                *progress = Progress::Listed;
                match self.0.iter().all(|place| *place == Progress::Listed) {
                    true => Step::Pass(Change::Listed),
                    false => Step::Nothing,
                }
            }
            Change::Refused(_) => Step::Pass(change),
            Change::Applied(_) | Change::Deleted(_) => {
                if *progress == Progress::Asked {
                    *progress = Progress::Reporting;
                }
                Step::Pass(change)
            }
        }
    }
}

/// The watch of one namespace, or of the whole cluster.
struct Watch {
    events: BoxStream<'static, watcher::Result<Event<JsonObject>>>,
    resource: ApiResource,
    /// Failures in a row.
    failed: u32,
    /// The failure that was logged last.
    told: Option<NoList>,
    /// The pause before the next event. The watcher's own backoff restarts with each list.
    pause: Option<Duration>,
}

impl Watch {
    /// An empty namespace stands for the whole cluster.
    fn open(
        objects: &Objects,
        resource: &ApiResource,
        config: &watcher::Config,
        namespace: &str,
    ) -> BoxStream<'static, Change> {
        let client = objects.client.clone();
        let api: Api<JsonObject> = match namespace {
            "" => Api::all_with(client, resource),
            namespace => Api::namespaced_with(client, namespace, resource),
        };
        let events = watcher(api, config.clone()).default_backoff().boxed();
        Watch::of(events, resource.clone()).changes()
    }

    fn of(
        events: BoxStream<'static, watcher::Result<Event<JsonObject>>>,
        resource: ApiResource,
    ) -> Self {
        Watch {
            events,
            resource,
            failed: 0,
            told: None,
            pause: None,
        }
    }

    fn changes(self) -> BoxStream<'static, Change> {
        let next = |mut watch: Watch| async move {
            let change = watch.next_change().await?;
            Some((change, watch))
        };
        stream::unfold(self, next).boxed()
    }

    async fn next_change(&mut self) -> Option<Change> {
        if let Some(pause) = self.pause.take() {
            tokio::time::sleep(pause).await;
        }
        loop {
            let event = self.events.next().await?;
            self.failed = match &event {
                // The watcher says so before each list, and it is the list that may fail.
                Ok(Event::Init) => self.failed,
                Ok(_) => 0,
                Err(_) => self.failed + 1,
            };
            if self.failed == 0 {
                self.told = None;
            }
            let kind = &self.resource.kind;
            match event {
                Ok(Event::Init) => return Some(Change::Restarted),
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    return Some(Change::Applied(json(object, &self.resource)));
                }
                Ok(Event::Delete(object)) => {
                    return Some(Change::Deleted(json(object, &self.resource)));
                }
                Ok(Event::InitDone) => return Some(Change::Listed),
                Err(watcher::Error::InitialListFailed(error))
                    if is_refusal(&error) || self.failed >= LASTING =>
                {
                    let no_list = no_list(error);
                    if self.told.as_ref() != Some(&no_list) {
                        tracing::warn!(%kind, message = no_list.why, "the API server answers no list; it is tried again");
                        self.told = Some(no_list.clone());
                    }
                    let pause = self.failed.min(LIST_PAUSE_MAX);
                    self.pause = Some(Duration::from_secs(pause.into()));
                    return Some(Change::Refused(no_list));
                }
                Err(error) => {
                    let why = match &error {
                        watcher::Error::InitialListFailed(error)
                        | watcher::Error::WatchStartFailed(error)
                        | watcher::Error::WatchFailed(error) => unanswered(error),
                        other => other.to_string(),
                    };
                    tracing::warn!(%kind, error = why, "a watch was interrupted; restarting it")
                }
            }
        }
    }
}

fn no_list(error: kube::Error) -> NoList {
    match error {
        kube::Error::Api(status) => NoList {
            forbidden: status.is_forbidden(),
            why: status.message,
        },
        // The error may quote the whole reply.
        error => NoList {
            forbidden: false,
            why: unanswered(&error).chars().take(300).collect(),
        },
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;

    fn object(name: &str) -> Value {
        json!({"metadata": {"name": name}})
    }

    /// As the cases below write it: an object by its name, with `-` in front of it if it is deleted.
    fn shown(change: &Change) -> String {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        match change {
            Change::Restarted => "restarted".to_owned(),
            Change::Applied(object) => name(object),
            Change::Deleted(object) => format!("-{}", name(object)),
            Change::Listed => "listed".to_owned(),
            Change::Refused(no_list) => format!("refused: {}", no_list.why),
        }
    }

    fn change(text: &str) -> Change {
        match text {
            "restarted" => Change::Restarted,
            "listed" => Change::Listed,
            "refused" => Change::Refused(NoList {
                why: "no".to_owned(),
                forbidden: true,
            }),
            name => match name.strip_prefix('-') {
                Some(name) => Change::Deleted(object(name)),
                None => Change::Applied(object(name)),
            },
        }
    }

    fn changes(texts: &[&str]) -> BoxStream<'static, Change> {
        let all: Vec<Change> = texts.iter().map(|text| change(text)).collect();
        stream::iter(all).boxed()
    }

    #[test]
    fn two_namespaces_are_one_cycle() {
        for (name, told, heard) in [
            (
                "all have listed",
                "a:restarted b:restarted a:x a:listed b:y b:listed b:z",
                "x y listed z",
            ),
            (
                "one has listed and goes on while the other lists",
                "a:restarted a:x a:listed b:restarted a:-x a:z b:listed",
                "x -x z listed",
            ),
            (
                "a list that fails at once is tried again",
                "a:restarted a:listed b:restarted b:refused b:restarted b:refused b:restarted b:listed",
                "refused refused listed",
            ),
            (
                "half of a list was told",
                "a:restarted b:restarted b:y b:restarted",
                "y OPEN AGAIN",
            ),
            (
                "a watch is too old to go on",
                "a:restarted b:restarted a:listed b:listed a:restarted",
                "listed OPEN AGAIN",
            ),
            (
                "a watch is too old while another namespace lists",
                "a:restarted b:restarted a:listed a:restarted",
                "OPEN AGAIN",
            ),
        ] {
            let mut cycle = Cycle::new(2);
            let mut said: Vec<String> = vec![];
            for event in told.split(' ') {
                let (place, text) = event.split_once(':').unwrap();
                match cycle.step(usize::from(place == "b"), change(text)) {
                    Step::Pass(Change::Refused(_)) => said.push("refused".to_owned()),
                    Step::Pass(change) => said.push(shown(&change)),
                    Step::Nothing => {}
                    Step::OpenAgain => said.push("OPEN AGAIN".to_owned()),
                }
            }
            assert_eq!(said.join(" "), heard, "{name}");
        }
    }

    #[tokio::test]
    async fn a_namespace_that_lists_again_has_all_list_again() {
        let opened = RefCell::new([0; 2]);
        let open = |place: usize| {
            opened.borrow_mut()[place] += 1;
            match (place, opened.borrow()[place]) {
                (0, 1) => changes(&["restarted", "a", "gone", "listed", "restarted"]),
                (0, _) => changes(&["restarted", "a", "listed"]),
                _ => changes(&["restarted", "b", "listed"]),
            }
        };
        let mut heard = vec![];
        merge(2, open, |change| heard.push(shown(&change))).await;
        assert_eq!(opened.into_inner(), [2, 2]);
        let mut cycles = heard.split(|change| change == "restarted");
        assert_eq!(cycles.next(), Some(&[][..]), "{heard:?}");
        let first = cycles.next().unwrap();
        assert!(first.contains(&"gone".to_owned()), "{heard:?}");
        let mut last = cycles.next().unwrap().to_vec();
        assert_eq!(last.pop().as_deref(), Some("listed"), "{heard:?}");
        last.sort();
        assert_eq!(last, ["a", "b"], "{heard:?}");
        assert_eq!(cycles.next(), None, "{heard:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_may_not_be_listed_delays_no_events_of_another() {
        let mut heard = vec![];
        let open = |place: usize| match place {
            0 => changes(&["restarted", "a", "listed", "-a"]),
            _ => refused().changes(),
        };
        let all = merge(2, open, |change| heard.push(shown(&change)));
        // Less than the first pause of the refused watch.
        let all = tokio::time::timeout(Duration::from_millis(1), all);
        assert!(all.await.is_err(), "a watch does not end");
        let refused: Vec<&String> = heard.iter().filter(|h| h.starts_with("refused")).collect();
        assert_eq!(refused, ["refused: not in namespace b"], "{heard:?}");
        let rest = heard.iter().filter(|h| !h.starts_with("refused"));
        assert_eq!(Vec::from_iter(rest), ["restarted", "a", "-a"], "no list");
    }

    /// A watch whose list RBAC forbids each time.
    fn refused() -> Watch {
        let status = json!({"code": 403, "reason": "Forbidden", "message": "not in namespace b"});
        let again = move |turn: usize| match turn % 2 {
            0 => Ok(Event::Init),
            _ => {
                let status = serde_json::from_value(status.clone()).unwrap();
                let error = kube::Error::Api(Box::new(status));
                Err(watcher::Error::InitialListFailed(error))
            }
        };
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        Watch::of(stream::iter((0..).map(again)).boxed(), resource)
    }

    #[tokio::test(start_paused = true)]
    async fn a_forbidden_list_is_reported_with_pauses_that_grow() {
        let mut changes = refused().changes();
        let began = tokio::time::Instant::now();
        for (after, text) in [
            (0, "restarted"),
            (0, "refused: not in namespace b"),
            (1, "restarted"),
            (1, "refused: not in namespace b"),
            (3, "restarted"),
        ] {
            let heard = changes.next().await.unwrap();
            assert_eq!(shown(&heard), text);
            assert_eq!(began.elapsed().as_secs(), after, "{text}");
        }
    }
}
