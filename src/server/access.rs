//! Who may get what the metrics listener serves over TLS: whoever may get that path. As with other operators, the API server
//! says who a token is (TokenReview), and whether that user may (SubjectAccessReview).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::cluster::clock::{self, Instant};
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::vital::Mutex;
use crate::decide::child::key_of;
use crate::server::{metrics, state};

/// The paths that are served, and the ClusterRoles of the manifests that let get them.
const READERS: [Reader; 2] = [
    (metrics::PATH, "lynq-metrics-reader"),
    (state::PATH, "lynq-state-reader"),
];
type Reader = (&'static str, &'static str);
/// How long an answer holds: a scraper comes every few seconds, and a right that is taken away is to end soon.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
const DENIED_FOR: Duration = Duration::from_secs(10);
/// Strangers must not fill the memory.
const TOKENS_MAX: usize = 1_000;

/// The app for those only whom the API server lets get the path.
pub fn guarded(app: Router, objects: Objects) -> Router {
    let access = Arc::new(Access {
        objects,
        answers: Mutex::default(),
    });
    app.layer(middleware::from_fn_with_state(access, check))
}

struct Access {
    objects: Objects,
    /// By path and token.
    answers: Mutex<HashMap<(&'static str, String), Answer>>,
}

/// Until when it holds, and what it is; None lets in.
type Answer = (Instant, Option<Refused>);

type Refused = (StatusCode, String);

async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(reader) = READERS.into_iter().find(|(of, _)| *of == path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let given = request.headers().get(AUTHORIZATION);
    let token = given
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty());
    let Some(token) = token else {
        let text = "send the token of a service account: Authorization: Bearer ...";
        return (StatusCode::UNAUTHORIZED, text).into_response();
    };
    match access.refused(reader, token).await {
        Ok(None) => next.run(request).await,
        Ok(Some(refused)) => refused.into_response(),
        Err(error) => {
            tracing::warn!(%error, path, "whether somebody may get this path could not be asked");
            let text = "the API server could not be asked; see the log";
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

impl Access {
    async fn refused(&self, reader: Reader, token: &str) -> Result<Option<Refused>, ApiError> {
        let now = clock::instant();
        let key = (reader.0, token.to_owned());
        {
            let mut answers = self.answers.lock();
            if let Some((_, answer)) = answers.get(&key).filter(|(until, _)| *until > now) {
                return Ok(answer.clone());
            }
            answers.retain(|_, (until, _)| *until > now);
            if answers.len() >= TOKENS_MAX {
                answers.clear();
            }
        }
        let answer = self.ask(reader, token).await?;
        let holds = match answer {
            None => ALLOWED_FOR,
            Some(_) => DENIED_FOR,
        };
        let mut answers = self.answers.lock();
        answers.insert(key, (now + holds, answer.clone()));
        Ok(answer)
    }

    async fn ask(&self, (path, role): Reader, token: &str) -> Result<Option<Refused>, ApiError> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let status = &self.objects.create(&key_of(&review), &review).await?["status"];
        if status["authenticated"] != true {
            let text = "the API server does not know this token";
            return Ok(Some((StatusCode::UNAUTHORIZED, text.to_owned())));
        }
        let user = &status["user"];
        let name = user["username"].as_str().unwrap_or_default();
        let mut spec =
            json!({"user": name, "nonResourceAttributes": {"path": path, "verb": "get"}});
        for field in ["uid", "groups", "extra"] {
            if user[field] != Value::Null {
                spec[field] = user[field].clone();
            }
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        Ok((!self.objects.may(&review).await?).then(|| {
            let text = format!("{name} may not get {path}; bind it to the ClusterRole {role}");
            (StatusCode::FORBIDDEN, text)
        }))
    }
}
