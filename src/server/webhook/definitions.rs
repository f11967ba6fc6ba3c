//! The admission webhooks for forms and hubs. What the object itself tells is judged first; a changed form is then tried on
//! the rows there are, and its author asked for, both within a short time: who edits at night does not wait for a database.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use axum::routing::post;
use futures::future::{BoxFuture, OptionFuture};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::api::form::FormSpec;
use crate::api::names;
use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::Objects;
use crate::cluster::process;
use crate::cluster::vital::Mutex;
use crate::decide::admission::form::{self, Change};
use crate::decide::admission::review::{self, Answer, DenialStatus, Malformed};
use crate::decide::admission::rights;
use crate::decide::admission::trial::live::{LiveNodes, runs_everywhere};
use crate::decide::admission::trial::{self, FormSays, HubSays, On, Trial, deletions};
use crate::decide::admission::{Doubt, Verdict};
use crate::decide::hub::rows::Rows;
use crate::server::webhook::allowed::{self, Allowed};
use crate::server::webhook::authors::Authors;
use crate::server::webhook::bodies::Bodies;
use crate::server::webhook::reach::RowsAs;
use crate::server::webhook::{MALFORMED, Metrics, refuse, reply, unread_body};

/// For the rows, for rendering, and for what the API server is asked; three times as much for all of the trial. The API server
/// waits 10 s.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// What the answer itself takes.
const ANSWER: Duration = Duration::from_millis(100);

/// The rows of a hub, by namespace and name, and its window; or why there are none.
pub type RowsOf = Arc<
    dyn Fn(String, String) -> BoxFuture<'static, Result<(Rows, HubSays), String>> + Send + Sync,
>;

/// The nodes of a hub, by namespace and name; or why nobody knows them.
pub type NodesOf =
    Arc<dyn Fn(String, String) -> BoxFuture<'static, Result<LiveNodes, String>> + Send + Sync>;

/// The trial of a form with what the API server says of it, within a time.
pub type TryOnServer =
    Arc<dyn Fn(Arc<FormSpec>, Trial, Duration) -> BoxFuture<'static, Trial> + Send + Sync>;
/// Whether the database of a hub has what it maps.
pub type CheckHub = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<(), Doubt>> + Send + Sync>;

#[derive(Clone)]
pub struct Definitions {
    pub objects: Objects,
    pub rows_of: RowsOf,
    pub nodes_of: NodesOf,
    pub try_on_server: TryOnServer,
    pub rows_as: RowsAs,
    pub check_hub: CheckHub,
    /// None asks nothing of whoever writes a form.
    pub authors: Option<Authors>,
    pub metrics: Metrics,
    /// The operator's own.
    pub namespace: String,
    /// A form that could not be tried on all of its rows is refused; else there is a warning.
    pub deny_untried: bool,
    pub turns: Turns,
    pub allowed: Allowed,
}

/// A hub has one trial at a time, so that its rows are in memory once; what one hub waits for keeps no other waiting. Of all
/// trials one at a time renders: that takes a processor, and the gate needs one, too.
#[derive(Clone)]
pub struct Turns {
    of_hubs: Arc<Mutex<BTreeMap<HubKey, Weak<Semaphore>>>>,
    renders: Arc<Semaphore>,
}

/// Namespace and name.
type HubKey = (String, String);

impl Default for Turns {
    fn default() -> Self {
        Turns {
            of_hubs: Arc::default(),
            renders: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Turns {
    async fn of_hub(&self, hub: HubKey) -> OwnedSemaphorePermit {
        let turn = {
            let mut all = self.of_hubs.lock();
            all.retain(|_, turn| turn.strong_count() > 0);
            let known = all.get(&hub).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::new(Semaphore::new(1));
                all.insert(hub, Arc::downgrade(&turn));
                turn
            })
        };
        acquire(turn).await
    }

    pub async fn render(&self) -> OwnedSemaphorePermit {
        acquire(self.renders.clone()).await
    }
}

async fn acquire(turn: Arc<Semaphore>) -> OwnedSemaphorePermit {
    let turn = turn.acquire_owned().await;
    turn.expect("the semaphore is never closed")
}

pub fn router(definitions: Definitions) -> Router {
    Router::new()
        .route(names::VALIDATE_FORM_PATH, post(validate_form))
        .route(names::VALIDATE_HUB_PATH, post(validate_hub))
        // The defaults that Lynq's webhooks filled in stand in the schemas. Its configurations may still name these.
        .route(names::MUTATE_FORM_PATH, post(nothing_to_add))
        .route(names::MUTATE_HUB_PATH, post(nothing_to_add))
        .with_state(Arc::new((definitions, Bodies::of_definitions())))
}

type Served = Arc<(Definitions, Bodies)>;

async fn validate_form(State(all): State<Served>, request: Request<Body>) -> Response {
    answer(&all, request, "form", async |request| {
        all.0.form(request).await
    })
    .await
}

async fn validate_hub(State(all): State<Served>, request: Request<Body>) -> Response {
    answer(&all, request, "hub", async |request| {
        all.0.hub(request).await
    })
    .await
}

async fn nothing_to_add(State(all): State<Served>, request: Request<Body>) -> Response {
    answer(&all, request, "defaults", async |_| Verdict::default()).await
}

async fn answer(
    (all, bodies): &(Definitions, Bodies),
    request: Request<Body>,
    label: &'static str,
    judge: impl AsyncFnOnce(&review::Request) -> Verdict,
) -> Response {
    let (body, _room) = match bodies.read(request).await {
        Ok(read) => read,
        Err(unread) => return unread_body(&all.metrics, label, &unread),
    };
    let read = review::read(&body);
    drop(body);
    let request = match read {
        Ok(request) => request,
        Err(ref malformed @ Malformed::Request { ref uid, .. }) => {
            all.metrics.decided(label, MALFORMED);
            let denied = Answer::deny(DenialStatus::BadRequest, malformed.to_string());
            return reply(&denied, uid);
        }
        Err(malformed) => {
            let status = axum::http::StatusCode::BAD_REQUEST;
            return refuse(&all.metrics, label, status, malformed.to_string());
        }
    };
    let start = clock::instant();
    let concerned = match request.operation.as_str() {
        "CREATE" | "UPDATE" => request.sub_resource.is_empty(),
        "DELETE" => label == "hub",
        _ => false,
    };
    let question = allowed::question(&request).filter(|_| concerned);
    let known = question.as_ref().and_then(|same| all.allowed.get(same));
    let verdict = match known {
        Some(known) => known,
        None if concerned => {
            let verdict = judge(&request).await;
            if let Some(question) = question {
                all.allowed.note(question, &verdict);
            }
            verdict
        }
        None => Verdict::default(),
    };
    let outcome = if verdict.denied.is_some() {
        "denied"
    } else {
        "good"
    };
    all.metrics.decided(label, outcome);
    all.metrics.took(start.elapsed());
    let answer = match verdict.denied {
        Some(why) => Answer::deny(DenialStatus::Forbidden, why),
        None => Answer {
            warnings: verdict.warnings,
            ..Answer::allow()
        },
    };
    reply(&answer, &request.uid)
}

impl Definitions {
    /// By what the API server has, for only the leader knows the nodes. In a namespace that goes, everything goes.
    async fn form(&self, request: &review::Request) -> Verdict {
        let new = request.object.as_deref().unwrap_or(&Value::Null);
        let before = request.old_object.as_deref();
        let judged = process::compute(|| form::judge(before, new, clock::now()));
        let mut verdict = judged.verdict;
        let Some(change) = judged.change.filter(|_| verdict.denied.is_none()) else {
            return verdict;
        };
        let change = change.sparing(&self.namespace);
        let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
        // First the author: what rows make of a form is not for everybody.
        if let Some(authors) = &self.authors {
            let needed = rights::of_form(&change.spec);
            let home = text("namespace");
            let missing = authors.missing(&request.user_info, needed, home, "form");
            authors.judge(missing.await, &mut verdict);
        }
        if verdict.denied.is_some() {
            return verdict;
        }
        let is_known = before.is_some_and(runs_everywhere) && change.taken_away.is_empty();
        let deadline = clock::instant() + 3 * PATIENCE;
        let tried = self.tried(
            &change,
            text("namespace"),
            text("name"),
            !is_known,
            deadline,
        );
        let tried = timeout(3 * PATIENCE, tried).await;
        let too_late = || Err(format!("it took more than {} s", 3 * PATIENCE.as_secs()));
        let untried = match tried.unwrap_or_else(|_| too_late()) {
            Ok(trial) => {
                let policy = change.spec.rollout.clone().unwrap_or_default();
                let found = trial.verdict(&FormSays::of(&policy, before, new));
                verdict.denied = found.denied;
                verdict.warnings.extend(found.warnings);
                trial.untried().filter(|_| !trial.is_first())
            }
            Err(why) => {
                let untried = format!("not tried on the rows: {why}");
                verdict.denied = deletions::untried(&change.taken_away, &untried);
                verdict.warnings.push(untried.clone());
                Some(untried)
            }
        };
        if let Some(untried) = untried.filter(|_| self.deny_untried && verdict.denied.is_none()) {
            verdict.denied = Some(format!(
                "{untried}. Apply the form again when its rows can be read and rendered in time; lynqgate runs with --untried-forms=deny"
            ));
        }
        verdict
    }

    async fn tried(
        &self,
        change: &Change,
        namespace: &str,
        name: &str,
        look_at_nodes: bool,
        deadline: Instant,
    ) -> Result<Trial, String> {
        let hub = change.spec.hub_id.clone();
        let key = (namespace.to_owned(), hub.clone());
        let turn = self.turns.of_hub(key.clone()).await;
        let nodes = look_at_nodes.then(|| (self.nodes_of)(key.0.clone(), key.1.clone()));
        let nodes = OptionFuture::from(nodes.map(|nodes| timeout(PATIENCE, nodes)));
        let rows = timeout(PATIENCE, (self.rows_of)(key.0, key.1));
        let (rows, nodes) = tokio::join!(rows, nodes);
        let within = format!("within {} s", PATIENCE.as_secs());
        let too_late = || Err(format!("the rows did not come {within}"));
        let (rows, of_hub) = rows.unwrap_or_else(|_| too_late())?;
        let (nodes, unlisted) = match nodes {
            None => (None, None),
            Some(Ok(Ok(nodes))) => (Some(nodes), None),
            Some(Ok(Err(why))) => (None, Some(why)),
            Some(Err(_)) => (None, Some(format!("they were not listed {within}"))),
        };
        let render = self.turns.render().await;
        let (change_tried, name) = (change.clone(), name.to_owned());
        let namespace = namespace.to_owned();
        let trial = process::beside(move || {
            let start = clock::instant();
            let place = (namespace.as_str(), hub.as_str(), name.as_str());
            let on = On {
                live: nodes.as_ref(),
                ..On::rows(&rows)
            };
            let go_on = || start.elapsed() < PATIENCE;
            let mut trial = trial::of(&change_tried, &on, place, &go_on);
            drop((render, turn));
            trial.hub = of_hub;
            trial.unlisted = unlisted;
            trial
        });
        // A row that takes long ends beside the answer.
        let failed = || "lynqgate failed inside; see its log, and report it".to_owned();
        let trial = trial.await.ok_or_else(failed)?;
        let left = deadline.saturating_duration_since(clock::instant() + ANSWER);
        let asked = (self.try_on_server)(change.spec.clone(), trial, left.min(PATIENCE));
        Ok(asked.await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(name: &str) -> HubKey {
        ("tenants".to_owned(), name.to_owned())
    }

    /// A database that hangs keeps its own hub's trials waiting.
    #[tokio::test]
    async fn a_hub_waits_for_its_own_trial_and_for_no_others() {
        let turns = Turns::default();
        let first = turns.of_hub(hub("slow")).await;
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, turns.of_hub(hub("slow"))).await.is_err());
        let other = timeout(soon, turns.of_hub(hub("other"))).await;
        assert!(other.is_ok());
        drop((first, other));
        let again = timeout(soon, turns.of_hub(hub("slow"))).await;
        assert!(again.is_ok());
        let known = turns.of_hubs.lock().len();
        assert_eq!(known, 1, "what nobody waits for is forgotten");
    }
}
