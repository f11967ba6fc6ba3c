//! The admission webhook for LynqNodes: HTTP in, the gate's decision out. Fails closed: whatever goes wrong denies.

pub mod authors;
pub mod definitions;
mod hubs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::task::block_in_place;

use crate::api::names;
use crate::api::policy::{Rollout, Skew};
use crate::decide::admission::{Verdict, rights};
use crate::decide::gate::{self, Write};
use crate::decide::review::{self, Answer, Malformed, Refusal};
use crate::decide::rollout::status::Force;
use crate::server::webhook::authors::Authors;

/// An AdmissionReview has the object twice, and a held object has its content twice: the largest seen was 4.3 MB.
pub const BODY_MAX: usize = 7 * 1024 * 1024;
/// The API server waits 5 s for an answer; a body that takes longer is nobody's.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

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
/// The outcome of a decision that panicked, which denies.
const PANIC: &str = "panic";

pub fn router(webhook: Webhook) -> Router {
    Router::new()
        .route(names::MUTATE_NODE_PATH, post(mutate))
        .route(names::VALIDATE_NODE_PATH, post(validate))
        .with_state(Arc::new(webhook))
}

async fn mutate(State(webhook): State<Arc<Webhook>>, request: Request<Body>) -> Response {
    answer(&webhook, request, Half::Mutating).await
}

async fn validate(State(webhook): State<Arc<Webhook>>, request: Request<Body>) -> Response {
    answer(&webhook, request, Half::Validating).await
}

/// The two webhooks: what is asked before other webhooks had their say, and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Mutating,
    Validating,
}

impl Half {
    fn label(self) -> &'static str {
        match self {
            Half::Mutating => "mutating",
            Half::Validating => "validating",
        }
    }

    /// The outcome, for metrics, and the answer.
    fn decide(self, webhook: &Webhook, write: &Write) -> (&'static str, Answer) {
        let now = Timestamp::now();
        let decided = match self {
            Half::Mutating => gate::decide(write, now).map(Some),
            Half::Validating => gate::check(write, now).map(|()| None),
        };
        match decided {
            Ok(Some(decision)) => {
                let code = decision.outcome.code();
                let mut warnings = decision.warnings;
                if decision.outcome == gate::Outcome::Held {
                    warnings.push(held_text(webhook, write.new));
                }
                let answer = Answer {
                    patch: decision.patch,
                    warnings,
                    audit: vec![("gate", code.to_owned())],
                    ..Answer::allow()
                };
                (code, answer)
            }
            Ok(None) => ("good", Answer::allow()),
            Err(denial) => (denial.code(), denied(&denial)),
        }
    }
}

fn denied(denial: &gate::Denial) -> Answer {
    let refusal = match denial {
        gate::Denial::StaleRelease { .. } => Refusal::Conflict,
        gate::Denial::TooLarge { .. } => Refusal::TooLarge,
        gate::Denial::TooDeep { .. } => Refusal::BadRequest,
        gate::Denial::ReleaseWithContent { .. }
        | gate::Denial::NotTheOperator { .. }
        | gate::Denial::Tampered { .. } => Refusal::Forbidden,
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
            "held: lynqnode {name} goes live as soon as lynqgate has looked at it; no window applies: {force}"
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
            (Skew::Count(0), Skew::Count(0)) => format!(
                "held: lynqnode {name} goes live as soon as lynqgate has looked at it; form {form} has no window"
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

async fn answer(webhook: &Webhook, request: Request<Body>, half: Half) -> Response {
    let body = match read_body(request).await {
        Ok(body) => body,
        Err((status, reason)) => return refuse(&webhook.metrics, half.label(), status, reason),
    };
    match judge(webhook, half, &body) {
        Ok(Judged {
            uid,
            mut answer,
            request,
        }) => {
            if let (Half::Validating, Some(request)) = (half, request) {
                ask_author(webhook, &request, &mut answer).await;
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

/// The body, or how to answer what has none that can be read.
async fn read_body(request: Request<Body>) -> Result<Bytes, (StatusCode, String)> {
    let type_ = request.headers().get(CONTENT_TYPE);
    let type_ = type_
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let media = type_.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        let reason = "send application/json".to_owned();
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(request.into_body(), BODY_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Err(_) => Err((
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not come in {} s", BODY_TIMEOUT.as_secs()),
        )),
        // The only other error is a client that went away, which reads no answer.
        Ok(Err(_)) => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {BODY_MAX} bytes"),
        )),
    }
}

/// What is answered to a request, and the request itself, as far as it can be read.
pub struct Judged {
    pub uid: String,
    pub answer: Answer,
    request: Option<review::Request>,
}

/// By hand, too, nobody makes lynqgate do what they may not do.
async fn ask_author(webhook: &Webhook, request: &review::Request, answer: &mut Answer) {
    let (Some(authors), Some(new)) = (&webhook.authors, &request.object) else {
        return;
    };
    let writes = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    if !writes || !request.sub_resource.is_empty() || answer.denied.is_some() {
        return;
    }
    let user = &request.user_info;
    if user.username == authors.operator {
        return;
    }
    let needed = block_in_place(|| rights::of_node(request.old_object.as_ref(), new));
    let home = new["metadata"]["namespace"].as_str().unwrap_or_default();
    let mut verdict = Verdict::default();
    let missing = authors.missing(user, needed, home, "lynqnode").await;
    authors.judge(missing, &mut verdict);
    match verdict.denied {
        Some(why) => *answer = Answer::deny(Refusal::Forbidden, why),
        None => answer.warnings.extend(verdict.warnings),
    }
}

/// The answer to a body; an error where there is no request to answer.
pub fn judge(webhook: &Webhook, half: Half, body: &[u8]) -> Result<Judged, Malformed> {
    let start = Instant::now();
    let request = match review::read(body) {
        Ok(request) => request,
        Err(ref malformed @ Malformed::Request { ref uid, .. }) => {
            webhook.metrics.decided(half.label(), MALFORMED);
            let denied = Answer::deny(Refusal::BadRequest, malformed.to_string());
            return Ok(Judged {
                uid: uid.clone(),
                answer: denied,
                request: None,
            });
        }
        Err(malformed) => return Err(malformed),
    };
    let (outcome, answer) = catch_unwind(AssertUnwindSafe(|| decided(webhook, &request, half))).unwrap_or_else(|_| {
        (PANIC, Answer::deny(Refusal::Forbidden, "lynqgate failed inside while it decided on this write; see its log, and report it"))
    });
    webhook.metrics.decided(half.label(), outcome);
    webhook.metrics.took(start.elapsed());
    Ok(Judged {
        uid: request.uid.clone(),
        answer,
        request: Some(request),
    })
}

fn reply(answer: &Answer, uid: &str) -> Response {
    let body = answer.body(uid).to_string();
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

fn decided(webhook: &Webhook, request: &review::Request, half: Half) -> (&'static str, Answer) {
    let cannot = |text: String| {
        (
            MALFORMED,
            Answer::deny(Refusal::BadRequest, text + " cannot be judged"),
        )
    };
    let old = match (
        request.operation.as_str(),
        request.sub_resource.as_str(),
        &request.old_object,
    ) {
        // They change no content.
        ("DELETE" | "CONNECT", ..) | (_, "status", _) => {
            return ("not_concerned", Answer::allow());
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
        if let Some(what) = review::misshapen(object) {
            return cannot(format!(
                "an object whose {what} has not the shape of a Kubernetes object's"
            ));
        }
    }
    half.decide(
        webhook,
        &Write {
            old,
            new,
            user: &request.user_info.username,
            operator: &webhook.operator,
        },
    )
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
