//! The admission webhooks for forms and hubs. What the object itself tells is judged first; a changed form is then tried on
//! the rows there are, and its author asked for, both within a short time: who edits at night does not wait for a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use axum::routing::post;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::timeout;

use crate::api::names;
use crate::cluster::objects::{ApiError, Objects};
use crate::decide::admission::form::{self, Change};
use crate::decide::admission::rights::{self, Place, Right};
use crate::decide::admission::trial::{self, Trial};
use crate::decide::admission::{Verdict, hub};
use crate::decide::child::{Kind, Scope};
use crate::decide::review::{self, Answer, Malformed, Refusal, UserInfo};
use crate::decide::rows::Rows;
use crate::server::webhook::{MALFORMED, Metrics, read_body, refuse, reply};

/// For the questions about the author, and as much for the rows; three times as much for all of the trial. The API server
/// waits 10 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rows of a hub, by namespace and name, or why there are none.
pub type RowsOf =
    Arc<dyn Fn(String, String) -> BoxFuture<'static, Result<Rows, String>> + Send + Sync>;

/// What becomes of a form whose author may not do what it makes the operator do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Authorize {
    /// It is refused.
    Enforce,
    /// It is stored, with a warning.
    Warn,
    /// Nobody is asked.
    Off,
}

#[derive(Clone)]
pub struct Definitions {
    /// User name of the operator itself.
    pub operator: String,
    pub objects: Objects,
    pub rows_of: RowsOf,
    pub authorize: Authorize,
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
    answer(&all, request, "hub", async |request| {
        let new = request.object.as_ref().unwrap_or(&Value::Null);
        hub::judge(request.old_object.as_ref(), new)
    })
    .await
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
        let judged = block_in_place(|| form::judge(request.old_object.as_ref(), new));
        let mut verdict = judged.verdict;
        let Some(change) = judged.change.filter(|_| verdict.denied.is_none()) else {
            return verdict;
        };
        let text = |field: &str| new["metadata"][field].as_str().unwrap_or_default();
        // First the author: what rows make of a form is not for everybody.
        if request.user_info.username != self.operator {
            self.ask_for(&request.user_info, &change, text("namespace"), &mut verdict)
                .await;
        }
        if verdict.denied.is_some() {
            return verdict;
        }
        let tried = self.tried(&change, text("namespace"), text("name"));
        let tried = timeout(3 * PATIENCE, tried).await;
        let too_late = || Err(format!("it took more than {} s", 3 * PATIENCE.as_secs()));
        match tried.unwrap_or_else(|_| too_late()) {
            Ok(trial) => {
                let policy = change.spec.rollout.clone().unwrap_or_default();
                let allowed = &new["metadata"]["annotations"][names::ALLOW_RENDER_ERRORS];
                let found = trial.verdict(*allowed == names::TRUE, &policy);
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
        let rows = rows.unwrap_or_else(|_| too_late())?;
        let (change, name) = (change.clone(), name.to_owned());
        let trial = spawn_blocking(move || {
            let start = Instant::now();
            let trial = trial::of(&change, &rows, (&hub, &name), &|| {
                start.elapsed() < PATIENCE
            });
            drop(turn);
            trial
        });
        // A row that takes long ends beside the answer.
        let failed = |_| "lynqgate failed inside; see its log, and report it".to_owned();
        trial.await.map_err(failed)
    }

    /// Whether the author may make and change what the form makes the operator make and change.
    async fn ask_for(&self, user: &UserInfo, change: &Change, home: &str, verdict: &mut Verdict) {
        if self.authorize == Authorize::Off {
            return;
        }
        let needed = rights::needed(&change.spec);
        let said = match timeout(PATIENCE, self.missing_right(user, needed, home)).await {
            Ok(Ok(None)) => return,
            Ok(Ok(Some(missing))) => missing,
            Ok(Err(error)) => {
                format!("whether you may do what this form makes lynqgate do is not known: {error}")
            }
            Err(_) => format!(
                "whether you may do what this form makes lynqgate do was not answered within {} s",
                PATIENCE.as_secs()
            ),
        };
        match self.authorize {
            Authorize::Enforce => verdict.denied = Some(said),
            Authorize::Warn | Authorize::Off => verdict.warnings.push(said),
        }
    }

    /// The first right that the user lacks. Who has it in all namespaces is not asked about each.
    async fn missing_right(
        &self,
        user: &UserInfo,
        needed: BTreeSet<Right>,
        home: &str,
    ) -> Result<Option<String>, ApiError> {
        let mut kinds: BTreeMap<Option<Kind>, BTreeSet<Place>> = BTreeMap::new();
        for right in needed {
            kinds.entry(right.kind).or_default().insert(right.place);
        }
        for (kind, places) in kinds {
            let (group, version, plural, scope) = match &kind {
                None => (
                    "*".to_owned(),
                    "*".to_owned(),
                    "*".to_owned(),
                    Scope::Namespaced,
                ),
                // What cannot be, or is not installed, cannot be made; the node says so.
                Some(kind) if kind.impossible().is_some() => continue,
                Some(kind) => match self.objects.served(kind).await? {
                    None => continue,
                    Some(served) => {
                        let resource = &served.resource;
                        let (group, version) = (resource.group.clone(), resource.version.clone());
                        (group, version, resource.plural.clone(), served.scope)
                    }
                },
            };
            let may = async |namespace: &str| -> Result<Option<&'static str>, ApiError> {
                for (plural, verb) in rights_for(&group, &plural) {
                    let right = json!({
                        "group": group, "version": version, "resource": plural,
                        "verb": verb, "namespace": namespace,
                    });
                    if !self.objects.may(&user.review(right)).await? {
                        return Ok(Some(verb));
                    }
                }
                Ok(None)
            };
            let Some(verb) = may("").await? else {
                continue;
            };
            let name = match (&kind, group.as_str()) {
                (None, _) => "objects of every kind (only its templates tell which)".to_owned(),
                (_, "") => plural.clone(),
                (_, group) => format!("{plural}.{group}"),
            };
            let refused = |verb: &str, place: String| {
                Some(format!(
                    "user {:?} may not {verb} {name} {place}, and this form makes lynqgate do that; ask for that right, or have \
                     somebody apply the form who has it",
                    user.username
                ))
            };
            if scope == Scope::Cluster {
                return Ok(refused(verb, "in the cluster".to_owned()));
            }
            for place in places {
                let namespace = match &place {
                    Place::Any => {
                        let place = "in all namespaces (only its templates tell which)";
                        return Ok(refused(verb, place.to_owned()));
                    }
                    Place::Home => home,
                    Place::Namespace(namespace) => namespace,
                };
                if let Some(verb) = may(namespace).await? {
                    return Ok(refused(verb, format!("in namespace {namespace:?}")));
                }
            }
        }
        Ok(None)
    }
}

/// Resource and verb. Roles and their bindings give rights away: whoever makes them through the operator must be allowed to.
fn rights_for<'a>(group: &str, plural: &'a str) -> Vec<(&'a str, &'static str)> {
    let mut rights = vec![(plural, "create"), (plural, "patch")];
    match (group, plural) {
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            rights.push((plural, "escalate"))
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rights.push(("clusterroles", "bind"));
        }
        _ => {}
    }
    rights
}
