//! The admission webhooks for LynqNodes and StatefulSets: HTTP in, the gate's decision out. They fail closed: whatever goes wrong
//! denies.

pub mod allowed;
pub mod authors;
pub mod bodies;
pub mod definitions;
mod hubs;
pub mod reach;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::Value;

use crate::api::names;
use crate::api::policy::{Rollout, Skew};
use crate::cluster::clock;
use crate::decide::admission::Verdict;
use crate::decide::admission::review::{
    self, Answer, DenialStatus, Malformed, ObjectValue, Reviewed, UserInfo,
};
use crate::decide::admission::rights::{self, Right};
use crate::decide::gate::node::{Node, Sent};
use crate::decide::gate::{self, Write};
use crate::decide::partition::gate as partition;
use crate::decide::rollout::status::Force;
use crate::server::webhook::authors::Authors;
use crate::server::webhook::bodies::{Bodies, Unread};

/// The policy of a form, by namespace and name, for the warning that a held write gets.
pub type PolicyOf = Arc<dyn Fn(&str, &str) -> Option<Policy> + Send + Sync>;

/// What a held write waits for.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub of_form: Rollout,
    /// The hub's window over all of its forms.
    pub hub_skew: Skew,
    /// Everything of the form goes at once.
    pub force: Option<Force>,
}

#[derive(Clone)]
pub struct Webhook {
    /// User name of the operator itself.
    pub operator: String,
    pub policy_of: PolicyOf,
    /// None asks nothing of whoever writes a node's content.
    pub authors: Option<Authors>,
    pub metrics: Metrics,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Decided {
    webhook: &'static str,
    outcome: &'static str,
}

#[derive(Clone)]
pub struct Metrics {
    decisions: Family<Decided, Counter>,
    duration: Histogram,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics {
            decisions: Family::default(),
            duration: Histogram::new([0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]),
        };
        registry.register(
            "lynqgate_admission_decisions",
            "Answers of the webhooks",
            metrics.decisions.clone(),
        );
        registry.register(
            "lynqgate_admission_duration_seconds",
            "Time to decide, in seconds",
            metrics.duration.clone(),
        );
        metrics
    }

    fn decided(&self, webhook: &'static str, outcome: &'static str) {
        self.decisions
            .get_or_create(&Decided { webhook, outcome })
            .inc();
    }
}

impl Metrics {
    fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }
}

/// The outcome of what cannot be judged.
const MALFORMED: &str = "malformed";
/// The outcome of a body for which no room is left.
const BUSY: &str = "busy";
/// The outcome of a decision that panicked, which denies.
const PANIC: &str = "panic";

type Served = Arc<(Webhook, Bodies)>;

pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route(names::MUTATE_NODE_PATH, post(mutate))
        .route(names::VALIDATE_NODE_PATH, post(validate))
        .route(names::MUTATE_STATEFUL_SET_PATH, post(mutate_stateful_set))
        .route(
            names::VALIDATE_STATEFUL_SET_PATH,
            post(validate_stateful_set),
        )
        .with_state(Arc::new((webhook, Bodies::of_gate())))
}

async fn mutate(State(served): State<Served>, request: Request<Body>) -> Response {
    answer(&served, request, Half::Mutating).await
}

async fn validate(State(served): State<Served>, request: Request<Body>) -> Response {
    answer(&served, request, Half::Validating).await
}

async fn mutate_stateful_set(State(served): State<Served>, request: Request<Body>) -> Response {
    answer(&served, request, Half::MutatingStatefulSet).await
}

async fn validate_stateful_set(State(served): State<Served>, request: Request<Body>) -> Response {
    answer(&served, request, Half::ValidatingStatefulSet).await
}

/// The two webhooks of LynqNodes, and the two of StatefulSets: what is asked before other webhooks had their say, and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Mutating,
    Validating,
    MutatingStatefulSet,
    ValidatingStatefulSet,
}

impl Half {
    fn label(self) -> &'static str {
        match self {
            Half::Mutating => "mutating",
            Half::Validating => "validating",
            Half::MutatingStatefulSet => "mutating_statefulset",
            Half::ValidatingStatefulSet => "validating_statefulset",
        }
    }
}

/// The outcome and the answer for a LynqNode. The validating half says that the write is held: what it or the fence denies is not,
/// and the API server shows the warnings of the mutating half beside their denial.
fn gated(webhook: &Webhook, half: Half, write: &Write) -> (&'static str, Answer) {
    let now = clock::now();
    let answered = match half {
        Half::Validating => gate::check(write, now).map(|outcome| {
            let held = outcome == gate::Outcome::Held;
            let warning = held.then(|| held_text(webhook, write.new.object));
            let answer = Answer {
                warnings: warning.into_iter().collect(),
                ..Answer::allow()
            };
            ("good", answer)
        }),
        _ => gate::decide(write, now).map(|decision| {
            let code = decision.outcome.code();
            (code, patched(code, decision.patch, decision.warnings))
        }),
    };
    answered.unwrap_or_else(|denial| (denial.code(), denied(&denial)))
}

fn patched(code: &str, patch: String, warnings: Vec<String>) -> Answer {
    Answer {
        patch,
        warnings,
        audit: vec![("gate", code.to_owned())],
        ..Answer::allow()
    }
}

fn denied(denial: &gate::Denial) -> Answer {
    let refusal = match denial {
        gate::Denial::StaleRelease { .. } => DenialStatus::Conflict,
        gate::Denial::TooLarge { .. } => DenialStatus::TooLarge,
        gate::Denial::TooDeep { .. } => DenialStatus::BadRequest,
        gate::Denial::ReleaseWithContent { .. }
        | gate::Denial::NotTheOperator { .. }
        | gate::Denial::Tampered { .. } => DenialStatus::Forbidden,
    };
    Answer {
        audit: vec![("gate", format!("denied: {}", denial.code()))],
        ..Answer::deny(refusal, denial.to_string())
    }
}

fn held_text(webhook: &Webhook, object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (namespace, name, form) = (
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/spec/templateRef"),
    );
    match (webhook.policy_of)(namespace, form) {
        Some(Policy {
            force: Some(force), ..
        }) => format!(
            "held: lynqnode {name} goes live as soon as lynqgate has checked it; no window applies: {force}"
        ),
        Some(policy) if policy.of_form.paused => {
            format!("held: lynqnode {name} waits, because form {form} is paused")
        }
        Some(policy) if !policy.of_form.order.is_empty() => {
            format!("held: lynqnode {name} waits for its turn in the order of form {form}")
        }
        Some(Policy {
            of_form, hub_skew, ..
        }) => match (of_form.max_skew, hub_skew) {
            (Skew::Count(0), _) if !of_form.domains.is_empty() => {
                format!("held: lynqnode {name} waits for a slot of form {form} (rollout.domains)")
            }
            (Skew::Count(0), Skew::Count(0)) => format!(
                "held: lynqnode {name} goes live as soon as lynqgate has checked it; form {form} has no window"
            ),
            (Skew::Count(0), skew) => format!(
                "held: lynqnode {name} waits for a slot of the hub of form {form} (maxSkew {skew})"
            ),
            (skew, _) => {
                format!("held: lynqnode {name} waits for a slot of form {form} (maxSkew {skew})")
            }
        },
        None => format!(
            "held: lynqnode {name} waits for form {form:?}, which is not there or cannot be read"
        ),
    }
}

async fn answer(
    (webhook, bodies): &(Webhook, Bodies),
    request: Request<Body>,
    half: Half,
) -> Response {
    let judged = match bodies.read(request).await {
        // The room for others is free again before anybody is asked.
        Ok((body, _room)) => judge(webhook, half, &body),
        Err(unread) => return unread_body(&webhook.metrics, half.label(), &unread),
    };
    match judged {
        Ok(Judged {
            uid,
            mut answer,
            needs,
        }) => {
            if let Some(needs) = needs {
                ask_author(webhook, needs, &mut answer).await;
            }
            reply(&answer, &uid)
        }
        Err(malformed) => {
            let status = StatusCode::BAD_REQUEST;
            refuse(
                &webhook.metrics,
                half.label(),
                status,
                malformed.to_string(),
            )
        }
    }
}

/// What is answered to a request, unless its author lacks rights.
pub struct Judged {
    pub uid: String,
    pub answer: Answer,
    needs: Option<Needs>,
}

/// It is kept while the API server is asked, when the room of the body is others' already.
const USER_MAX: usize = 64 * 1024;

/// By hand, too, nobody makes lynqgate do what they may not do.
struct Needs {
    user: UserInfo,
    rights: BTreeSet<Right>,
    namespace: String,
}

impl Needs {
    fn of(webhook: &Webhook, user: &UserInfo, old: Option<&Node>, new: &Node) -> Option<Self> {
        let authors = webhook.authors.as_ref()?;
        if user.username == authors.operator {
            return None;
        }
        let namespace = new.object["metadata"]["namespace"].as_str();
        let old = old.map(|old| &old.content.lists);
        Some(Needs {
            user: user.clone(),
            rights: rights::of_node(old, &new.content.lists),
            namespace: namespace.unwrap_or_default().to_owned(),
        })
    }
}

async fn ask_author(webhook: &Webhook, needs: Needs, answer: &mut Answer) {
    let Some(authors) = &webhook.authors else {
        return;
    };
    let Needs {
        user,
        rights,
        namespace,
    } = needs;
    let mut verdict = Verdict::default();
    let missing = authors.missing(&user, rights, &namespace, "lynqnode").await;
    authors.judge(missing, &mut verdict);
    match verdict.denied {
        Some(why) => *answer = Answer::deny(DenialStatus::Forbidden, why),
        None => answer.warnings.extend(verdict.warnings),
    }
}

/// The answer to a body; an error where there is no request to answer.
pub fn judge(webhook: &Webhook, half: Half, body: &[u8]) -> Result<Judged, Malformed> {
    match half {
        Half::Mutating | Half::Validating => judge_by::<Sent>(webhook, half, body, |request| {
            of_node(webhook, half, body, request)
        }),
        Half::MutatingStatefulSet | Half::ValidatingStatefulSet => {
            judge_by::<ObjectValue>(webhook, half, body, |request| {
                of_stateful_set(webhook, half, request)
            })
        }
    }
}

/// The outcome, for metrics, the answer, and what the author needs for it.
type Outcome = (&'static str, Answer, Option<Needs>);

fn judge_by<'a, O: Reviewed<'a>>(
    webhook: &Webhook,
    half: Half,
    body: &'a [u8],
    decide: impl FnOnce(&review::Request<O>) -> Outcome,
) -> Result<Judged, Malformed> {
    let start = clock::instant();
    let request = match review::read(body) {
        Ok(request) => request,
        Err(ref malformed @ Malformed::Request { ref uid, .. }) => {
            webhook.metrics.decided(half.label(), MALFORMED);
            let denied = Answer::deny(DenialStatus::BadRequest, malformed.to_string());
            return Ok(Judged {
                uid: uid.clone(),
                answer: denied,
                needs: None,
            });
        }
        Err(malformed) => return Err(malformed),
    };
    let decide = || decide(&request);
    let (outcome, answer, needs) = catch_unwind(AssertUnwindSafe(decide)).unwrap_or_else(|_| {
        let denied = Answer::deny(
            DenialStatus::Forbidden,
            "lynqgate failed inside while it decided on this write; see its log, and report it",
        );
        (PANIC, denied, None)
    });
    webhook.metrics.decided(half.label(), outcome);
    webhook.metrics.took(start.elapsed());
    Ok(Judged {
        uid: request.uid,
        answer,
        needs,
    })
}

fn cannot(why: String) -> Outcome {
    (MALFORMED, Answer::deny(DenialStatus::BadRequest, why), None)
}

fn of_node(webhook: &Webhook, half: Half, body: &[u8], request: &review::Request<Sent>) -> Outcome {
    let (old, new) = match concerned(request) {
        Ok(objects) => objects,
        Err(decided) => return *decided,
    };
    let (old, new) = match Node::both(old, new) {
        Ok(nodes) => nodes,
        Err(ref error) => {
            return cannot(review::unreadable(request.uid.clone(), body, error).to_string());
        }
    };
    let user = &request.user_info;
    let write = Write {
        old: old.as_ref(),
        new: &new,
        user: &user.username,
        operator: &webhook.operator,
    };
    let (outcome, answer) = gated(webhook, half, &write);
    let asks = half == Half::Validating && answer.denied.is_none();
    let needs = asks
        .then(|| Needs::of(webhook, user, write.old, &new))
        .flatten();
    match needs {
        Some(needs) if needs.user.review(Value::Null).to_string().len() > USER_MAX => {
            cannot(format!(
                "a user with more than {USER_MAX} bytes of groups and extra fields cannot be judged"
            ))
        }
        needs => (outcome, answer, needs),
    }
}

fn of_stateful_set(
    webhook: &Webhook,
    half: Half,
    request: &review::Request<ObjectValue>,
) -> Outcome {
    let (old, new) = match concerned(request) {
        Ok(objects) => objects,
        Err(decided) => return *decided,
    };
    let write = partition::Write {
        old: old.map(|old| &**old),
        new,
        user: &request.user_info.username,
        manager: request.options["fieldManager"].as_str().unwrap_or_default(),
        operator: &webhook.operator,
    };
    let (outcome, answer) = match half {
        Half::ValidatingStatefulSet => match partition::check(&write) {
            Ok(()) => ("good", Answer::allow()),
            Err(tampered) => (
                "tampered",
                Answer::deny(DenialStatus::Forbidden, tampered.to_string()),
            ),
        },
        _ => {
            let decision = partition::decide(&write);
            let patch = match decision.patch.is_empty() {
                true => String::new(),
                false => serde_json::to_string(&decision.patch).expect("a patch can be written"),
            };
            let code = decision.outcome.code();
            (code, patched(code, patch, decision.warnings))
        }
    };
    (outcome, answer, None)
}

fn reply(answer: &Answer, uid: &str) -> Response {
    ([(CONTENT_TYPE, "application/json")], answer.body(uid)).into_response()
}

/// The stored and the written object, or what is decided without them.
fn concerned<'r, 'a, O: Reviewed<'a>>(
    request: &'r review::Request<O>,
) -> Result<(Option<&'r O>, &'r O), Box<Outcome>> {
    let cannot = |text: String| Err(Box::new(cannot(text + " cannot be judged")));
    let old = match (
        request.operation.as_str(),
        request.sub_resource.as_str(),
        &request.old_object,
    ) {
        // They change no content.
        ("DELETE" | "CONNECT", ..) | (_, "status", _) => {
            return Err(Box::new(("not_concerned", Answer::allow(), None)));
        }
        ("CREATE", "", _) => None,
        ("UPDATE", "", Some(old)) => Some(old),
        ("UPDATE", "", None) => return cannot("an UPDATE without the old object".to_owned()),
        (operation, "", _) => return cannot(format!("the operation {operation:?}")),
        (_, other, _) => return cannot(format!("the subresource {other:?}")),
    };
    let Some(new) = &request.object else {
        return cannot("a request without the object".to_owned());
    };
    for object in [Some(new), old].into_iter().flatten() {
        if let Some(what) = review::misshapen(object.object()) {
            return cannot(format!(
                "an object whose {what} has not the shape of a Kubernetes object's"
            ));
        }
    }
    Ok((old, new))
}

fn unread_body(metrics: &Metrics, webhook: &'static str, unread: &Unread) -> Response {
    let (status, reason) = unread.answer();
    if *unread != Unread::Busy {
        return refuse(metrics, webhook, status, reason);
    }
    // Whoever floods the port must not flood the log as well; the API server logs its own.
    tracing::debug!(webhook, reason);
    metrics.decided(webhook, BUSY);
    // The API server sends it again by itself, as long as the webhook's time is not over.
    (status, [(RETRY_AFTER, "1")], reason).into_response()
}

fn refuse(
    metrics: &Metrics,
    webhook: &'static str,
    status: StatusCode,
    reason: String,
) -> Response {
    tracing::warn!(
        webhook,
        status = status.as_u16(),
        reason,
        "an admission request could not be read"
    );
    metrics.decided(webhook, MALFORMED);
    (status, reason).into_response()
}

#[cfg(test)]
mod tests;
