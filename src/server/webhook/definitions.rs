//! The admission webhooks for forms and hubs. What the object itself tells is judged first; a changed form is then tried on
//! the rows there are, and its author asked for, both within a short time: who edits at night does not wait for a database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use axum::routing::post;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::timeout;

use crate::api::names;
use crate::decide::admission::form::{self, Change};
use crate::decide::admission::rights;
use crate::decide::admission::trial::{self, HubSays, Trial};
use crate::decide::admission::{Doubt, Verdict};
use crate::decide::review::{self, Answer, Malformed, Refusal};
use crate::decide::rows::Rows;
use crate::server::webhook::authors::Authors;
use crate::server::webhook::{MALFORMED, Metrics, read_body, refuse, reply};

/// For the rows; three times as much for all of the trial. The API server waits 10 s.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The rows of a hub, by namespace and name, and its window; or why there are none.
pub type RowsOf = Arc<
    dyn Fn(String, String) -> BoxFuture<'static, Result<(Rows, HubSays), String>> + Send + Sync,
>;

/// Whether the database of a hub has what it maps.
pub type CheckHub = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<(), Doubt>> + Send + Sync>;

#[derive(Clone)]
pub struct Definitions {
    pub rows_of: RowsOf,
    pub check_hub: CheckHub,
    /// None asks nothing of whoever writes a form.
    pub authors: Option<Authors>,
    pub metrics: Metrics,
    /// One trial at a time.
    pub trials: Arc<Semaphore>,
}

pub fn router(definitions: Definitions) -> Router {
    Router::new()
        .route(names::VALIDATE_FORM_PATH, post(validate_form))
        .route(names::VALIDATE_HUB_PATH, post(validate_hub))
        // The defaults that Lynq's webhooks filled in stand in the schemas. Its configurations may still name these.
        .route(names::MUTATE_FORM_PATH, post(nothing_to_add))
        .route(names::MUTATE_HUB_PATH, post(nothing_to_add))
        .with_state(Arc::new(definitions))
}

async fn validate_form(State(all): State<Arc<Definitions>>, request: Request<Body>) -> Response {
    answer(&all, request, "form", async |request| {
        all.form(request).await
    })
    .await
}

async fn validate_hub(State(all): State<Arc<Definitions>>, request: Request<Body>) -> Response {
    answer(&all, request, "hub", async |request| all.hub(request).await).await
}

async fn nothing_to_add(State(all): State<Arc<Definitions>>, request: Request<Body>) -> Response {
    answer(&all, request, "defaults", async |_| Verdict::default()).await
}

async fn answer(
    all: &Definitions,
    request: Request<Body>,
    label: &'static str,
    judge: impl AsyncFnOnce(&review::Request) -> Verdict,
) -> Response {
    let body = match read_body(request).await {
        Ok(body) => body,
        Err((status, reason)) => return refuse(&all.metrics, label, status, reason),
    };
    let request = match review::read(&body) {
        Ok(request) => request,
        Err(ref malformed @ Malformed::Request { ref uid, .. }) => {
            all.metrics.decided(label, MALFORMED);
            let denied = Answer::deny(Refusal::BadRequest, malformed.to_string());
            return reply(&denied, uid);
        }
        Err(malformed) => {
            let status = axum::http::StatusCode::BAD_REQUEST;
            return refuse(&all.metrics, label, status, malformed.to_string());
        }
    };
    let start = Instant::now();
    let concerned = matches!(request.operation.as_str(), "CREATE" | "UPDATE")
        && request.sub_resource.is_empty();
    let verdict = match concerned {
        true => judge(&request).await,
        false => Verdict::default(),
    };
    let outcome = if verdict.denied.is_some() {
        "denied"
    } else {
        "good"
    };
    all.metrics.decided(label, outcome);
    all.metrics.took(start.elapsed());
    let answer = match verdict.denied {
        Some(why) => Answer::deny(Refusal::Forbidden, why),
        None => Answer {
            warnings: verdict.warnings,
            ..Answer::allow()
        },
    };
    reply(&answer, &request.uid)
}

impl Definitions {
    async fn form(&self, request: &review::Request) -> Verdict {
        let new = request.object.as_ref().unwrap_or(&Value::Null);
        let judged =
            block_in_place(|| form::judge(request.old_object.as_ref(), new, Timestamp::now()));
        let mut verdict = judged.verdict;
        let Some(change) = judged.change.filter(|_| verdict.denied.is_none()) else {
            return verdict;
        };
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
        let tried = self.tried(&change, text("namespace"), text("name"));
        let tried = timeout(3 * PATIENCE, tried).await;
        let too_late = || Err(format!("it took more than {} s", 3 * PATIENCE.as_secs()));
        match tried.unwrap_or_else(|_| too_late()) {
            Ok(mut trial) => {
                let before = request.old_object.as_ref();
                let held = before.map(|old| &old["status"]["rollout"]["heldNodes"]);
                trial.held = held.and_then(Value::as_u64).unwrap_or_default();
                let policy = change.spec.rollout.clone().unwrap_or_default();
                let is_on = |name| new["metadata"]["annotations"][name] == names::TRUE;
                let (allowed, forced) = (
                    is_on(names::ALLOW_RENDER_ERRORS),
                    is_on(names::FORCE_ROLLOUT),
                );
                let found = trial.verdict(allowed, &policy, forced);
                verdict.denied = found.denied;
                verdict.warnings.extend(found.warnings);
            }
            Err(why) => {
                let warning = format!("not tried on the rows: {why}");
                verdict.warnings.push(warning);
            }
        }
        verdict
    }

    async fn tried(&self, change: &Change, namespace: &str, name: &str) -> Result<Trial, String> {
        // Rendering takes a processor, and the gate needs one, too.
        let turn = self.trials.clone().acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let hub = change.spec.hub_id.clone();
        let rows = (self.rows_of)(namespace.to_owned(), hub.clone());
        let too_late = || {
            Err(format!(
                "the rows did not come within {} s",
                PATIENCE.as_secs()
            ))
        };
        let rows = timeout(PATIENCE, rows).await;
        let (rows, of_hub) = rows.unwrap_or_else(|_| too_late())?;
        let (change, name) = (change.clone(), name.to_owned());
        let namespace = namespace.to_owned();
        let trial = spawn_blocking(move || {
            let start = Instant::now();
            let mut trial = trial::of(&change, &rows, (&namespace, &hub, &name), &|| {
                start.elapsed() < PATIENCE
            });
            drop(turn);
            trial.hub = of_hub;
            trial
        });
        // A row that takes long ends beside the answer.
        let failed = |_| "lynqgate failed inside; see its log, and report it".to_owned();
        trial.await.map_err(failed)
    }
}
