//! One fault proxy between an operator and the API server: plain HTTP on one side, TLS on the other. It passes the
//! operator's token through, so that identity and rights stay real, and does to requests, answers and watches what the
//! test asks for.

#![allow(dead_code)]

pub mod revisions;
pub mod rules;
#[cfg(test)]
mod tests;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::StreamExt;
use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::cluster::ports::free_port;
use crate::dice::Dice;
use crate::operator::{self, Operator};
use revisions::Revisions;
use rules::{Action, Rewrite, Rule, Shown, Target};

pub type Answer = Response<UnsyncBoxBody<Bytes, anyhow::Error>>;

/// What happens to watches and lists. It holds for watches that run already, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// How far a reader of this resource (`*`: of any) lives in the past. What it lists is as old as what it watches.
    pub lag: BTreeMap<String, Duration>,
    /// Of these nothing is forwarded; the connection stays open, and what comes meanwhile is forwarded afterwards.
    pub silent: BTreeSet<String>,
    /// The same, but the connection stays silent for ever: only the client can notice.
    pub dead: BTreeSet<String>,
    /// Raised to end every watch that runs.
    pub cut: u64,
}

impl Modes {
    fn lag_of(&self, resource: &str) -> Option<Duration> {
        self.lag.get(resource).or(self.lag.get("*")).copied()
    }
}

fn among(all: &BTreeSet<String>, resource: &str) -> bool {
    all.contains(resource) || all.contains("*")
}

pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

struct Shared {
    upstream: kube::Client,
    rules: Mutex<Rules>,
    modes: watch::Sender<Modes>,
    revisions: Revisions,
    shown: Mutex<Option<Shown>>,
}

struct Rules {
    dice: Dice,
    rules: Vec<Rule>,
    met: BTreeMap<&'static str, usize>,
}

impl Proxy {
    pub async fn start(cluster: &Cluster, seed: u64) -> Result<Proxy> {
        let port = free_port()?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let shared = Arc::new(Shared {
            upstream: cluster.anonymous().await?,
            rules: Mutex::new(Rules {
                dice: Dice::for_purpose(seed, "proxy"),
                rules: Vec::new(),
                met: BTreeMap::new(),
            }),
            modes: watch::Sender::default(),
            revisions: Revisions::default(),
            shown: Mutex::default(),
        });
        let (sampled, admin) = (shared.clone(), cluster.admin().await?);
        let sample = tokio::spawn(async move { sampled.revisions.sample(admin).await });
        let accept = tokio::spawn(accept(listener, shared.clone()));
        Ok(Proxy {
            shared,
            port,
            tasks: vec![sample, accept],
        })
    }

    /// The only way to the API server that an operator has.
    pub async fn before_operator(cluster: &Cluster, flags: &[&str]) -> Result<(Proxy, Operator)> {
        operator::install(cluster).await?;
        let proxy = Proxy::start(cluster, 1).await?;
        let own = cluster.kubeconfig_for(&operator::identity()).await?;
        let behind = proxy.kubeconfig(&own, own.with_extension("proxy"))?;
        let operator = Operator::start_at(cluster, "operator", &behind, flags).await?;
        Ok((proxy, operator))
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A copy of a kubeconfig that leads here.
    pub fn kubeconfig(&self, original: &std::path::Path, copy: PathBuf) -> Result<PathBuf> {
        let text = std::fs::read_to_string(original)?;
        let mut kubeconfig: Value = serde_json::from_str(&text)?;
        kubeconfig["clusters"][0]["cluster"] = json!({"server": self.url()});
        std::fs::write(&copy, kubeconfig.to_string())
            .with_context(|| format!("writing {}", copy.display()))?;
        Ok(copy)
    }

    /// From now on these, and no others.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        self.shared.rules.lock().expect("the rules").rules = rules;
    }

    fn change_modes(&self, change: impl FnOnce(&mut Modes)) {
        self.shared.modes.send_modify(change);
    }

    /// From now on the operator is shown objects that this has changed; what is stored stays as it is.
    pub fn show(&self, shown: Shown) {
        *self.shared.shown.lock().expect("what is shown") = Some(shown);
    }

    /// A reader of this resource (`*`: of any) sees only what is older than `lag`.
    pub fn lag(&self, resource: &str, lag: Duration) {
        self.change_modes(|modes| {
            modes.lag.insert(resource.to_owned(), lag);
        });
    }

    pub fn silence(&self, resource: &str) {
        self.change_modes(|modes| {
            modes.silent.insert(resource.to_owned());
        });
    }

    /// The watches that run now never say anything again.
    pub fn deaden(&self, resource: &str) {
        self.change_modes(|modes| {
            modes.dead.insert(resource.to_owned());
        });
    }

    /// Ends every watch that runs.
    pub fn cut_watches(&self) {
        self.change_modes(|modes| modes.cut += 1);
    }

    /// All faults end.
    pub fn heal(&self) {
        self.set_rules(Vec::new());
        *self.shared.shown.lock().expect("what is shown") = None;
        self.change_modes(|modes| {
            *modes = Modes {
                cut: modes.cut,
                ..Modes::default()
            }
        });
    }

    /// How many requests met which fault so far.
    pub fn met(&self) -> BTreeMap<&'static str, usize> {
        self.shared.rules.lock().expect("the rules").met.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // A connection that is still open ends with the proxy.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        let service =
            hyper::service::service_fn(move |request| shared.clone().handle_apart(request));
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        connections.spawn(async move {
            // A connection that a fault has ended is no error.
            let _ = connection.await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Shared {
    /// A request that is under way reaches the API server also if its client hangs up.
    async fn handle_apart(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let request = Request::from_parts(head, body);
        tokio::spawn(async move { self.handle(request).await }).await?
    }

    /// An error ends the connection without an answer.
    async fn handle(self: Arc<Self>, mut request: Request<Bytes>) -> Result<Answer> {
        let uri = request.uri().clone();
        let target = Target::of(
            request.method(),
            uri.path(),
            uri.query().unwrap_or_default(),
        );
        let rule = self.meet(&target, request.body());
        match rule {
            Some(Action::Status(code, retry_after)) => return refusal(code, retry_after),
            Some(Action::Gone) => return gone(),
            Some(Action::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Action::Rewrite(ref rewrite)) => rewrite_body(&target, &mut request, rewrite),
            Some(Action::DelayAndRewrite(delay, ref rewrite)) => {
                rewrite_body(&target, &mut request, rewrite);
                tokio::time::sleep(delay).await;
            }
            Some(Action::Rename(ref from, ref to)) => {
                *request.uri_mut() = uri.to_string().replace(from.as_str(), to).parse()?
            }
            Some(Action::LoseReply | Action::CutAfter(_)) | None => {}
        }
        if target.verb == "list"
            && let Some(lag) = self.modes.borrow().lag_of(&target.resource)
        {
            *request.uri_mut() = self.list_as_of(request.uri(), lag)?;
        }
        let answer = self.send(request).await?;
        match rule {
            Some(Action::LoseReply) if answer.status().is_success() => {
                // Read to its end, so that it has happened.
                let _ = answer.into_body().collect().await;
                Err(anyhow!("the reply is lost"))
            }
            Some(Action::CutAfter(bytes)) => Ok(cut(answer, bytes)),
            _ if target.verb == "watch" && answer.status().is_success() => {
                Ok(watching::follow(self, target.resource, answer))
            }
            _ => self.show(&target, answer).await,
        }
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Answer> {
        let (mut head, body) = request.into_parts();
        let path = head
            .uri
            .path_and_query()
            .context("a request without a path")?;
        head.uri = Uri::builder().path_and_query(path.clone()).build()?;
        remove_hop_headers(&mut head.headers);
        head.headers.remove(header::HOST);
        head.headers.remove(header::CONTENT_LENGTH);
        // Watches are read line by line.
        head.headers.remove(header::ACCEPT_ENCODING);
        let request = Request::from_parts(head, Body::from(body.to_vec()));
        let (mut head, body) = self.upstream.send(request).await?.into_parts();
        remove_hop_headers(&mut head.headers);
        let body = body.map_err(|error| anyhow!(error)).boxed_unsync();
        Ok(Response::from_parts(head, body))
    }

    fn meet(&self, target: &Target, body: &[u8]) -> Option<Action> {
        self.rules.lock().expect("the rules").meet(target, body)
    }

    /// The answer as the operator is to see it.
    async fn show(&self, target: &Target, answer: Answer) -> Result<Answer> {
        let shown = self.shown.lock().expect("what is shown").clone();
        let Some(shown) = shown.filter(|_| answer.status().is_success()) else {
            return Ok(answer);
        };
        let (mut head, body) = answer.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let Ok(mut object) = serde_json::from_slice::<Value>(&bytes) else {
            return Ok(Response::from_parts(head, full(bytes)));
        };
        match object["items"].as_array_mut() {
            Some(items) => items
                .iter_mut()
                .for_each(|item| shown(&target.resource, item)),
            None => shown(&target.resource, &mut object),
        }
        head.headers.remove(header::CONTENT_LENGTH);
        Ok(Response::from_parts(head, full(object.to_string())))
    }

    /// Asks for the state of a moment in the past. A page after the first is of that state already.
    fn list_as_of(&self, uri: &Uri, lag: Duration) -> Result<Uri> {
        let query = uri.query().unwrap_or_default();
        let horizon = Instant::now()
            .checked_sub(lag)
            .and_then(|moment| self.revisions.at(moment));
        let Some(horizon) = horizon.filter(|_| !query.contains("continue=")) else {
            return Ok(uri.clone());
        };
        let others = query
            .split('&')
            .filter(|p| !p.is_empty() && !p.starts_with("resourceVersion"));
        let mut query: Vec<String> = others.map(str::to_owned).collect();
        query.push(format!("resourceVersion={horizon}"));
        query.push("resourceVersionMatch=Exact".to_owned());
        Ok(format!("{}?{}", uri.path(), query.join("&")).parse()?)
    }
}

impl Rules {
    fn meet(&mut self, target: &Target, body: &[u8]) -> Option<Action> {
        for rule in &mut self.rules {
            if rule.times == 0 || !rule.matches(target, body) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if !self.dice.percent(rule.chance) {
                continue;
            }
            rule.times -= 1;
            let action = rule.action.clone();
            *self.met.entry(action.name()).or_default() += 1;
            return Some(action);
        }
        None
    }
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Action::Status(..) => "refused",
            Action::Delay(_) => "delayed",
            Action::CutAfter(_) => "cut",
            Action::LoseReply => "reply lost",
            Action::Gone => "gone",
            Action::Rewrite(_) | Action::DelayAndRewrite(..) => "rewritten",
            Action::Rename(..) => "renamed",
        }
    }
}

fn rewrite_body(target: &Target, request: &mut Request<Bytes>, rewrite: &Rewrite) {
    if let Ok(mut body) = serde_json::from_slice(request.body())
        && rewrite(target, &mut body)
    {
        *request.body_mut() = body.to_string().into();
    }
}

fn remove_hop_headers(headers: &mut HeaderMap) {
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
}

fn full(text: impl Into<Bytes>) -> UnsyncBoxBody<Bytes, anyhow::Error> {
    let never = |error: Infallible| match error {};
    Full::new(text.into()).map_err(never).boxed_unsync()
}

/// As the API server says it.
fn refusal(code: u16, retry_after: Option<u32>) -> Result<Answer> {
    let reason = match code {
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the fault proxy answers {code}"), "reason": reason, "code": code,
    });
    let mut answer = Response::builder()
        .status(StatusCode::from_u16(code)?)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        answer = answer.header(header::RETRY_AFTER, seconds);
    }
    Ok(answer.body(full(status.to_string()))?)
}

fn gone() -> Result<Answer> {
    let event = json!({"type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410,
    }});
    let answer = Response::builder().header(header::CONTENT_TYPE, "application/json");
    Ok(answer.body(full(format!("{event}\n")))?)
}

/// The body's first bytes, then the end of the connection.
fn cut(answer: Answer, mut left: usize) -> Answer {
    let (mut head, body) = answer.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let frames = body.into_data_stream().map(move |data| {
        let data = data?;
        if data.len() > left {
            return Err(anyhow!("the answer is cut"));
        }
        left -= data.len();
        Ok(Frame::data(data))
    });
    Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}
