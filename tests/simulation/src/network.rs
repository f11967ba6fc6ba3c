//! The way between a process and the API server: every request and every event takes its time, and is late or lost where the
//! seed says so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::channel::mpsc;
use futures::{Stream, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Bytes;
use kube::client::Body;
use lynqgate_plants::Plant;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Duration, sleep};

use crate::api::requests::{self, Asked, Call, Refused, Verb};
use crate::api::store::{DEPLOYMENT, HUB, Key, NODE, Object};
use crate::life::Life;
use crate::planted;
use crate::reverts;
use crate::reviews;
use crate::witness::{Author, View};
use crate::world::{Shared, World, lock, more_than};

type Lost = Box<dyn std::error::Error + Send + Sync>;
type Reply = Response<Either<Full<Bytes>, StreamBody<Told>>>;
/// What came of a request; of a write of the hub's status, the hub as the reply has it.
type Answer = (Result<Reply, Lost>, Option<Arc<Object>>);

pub fn client(shared: &Shared, life: &Arc<Life>) -> kube::Client {
    let (shared, life) = (shared.clone(), life.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (shared, life) = (shared.clone(), life.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let asked = requests::parse(&Request::from_parts(parts, ()), &body);
            let (sender, reply) = oneshot::channel();
            let call = match understood(asked) {
                Ok(call) => call,
                Err(reply) => return Ok(*reply),
            };
            let author = author(&shared, &life, &call);
            let (of_sender, acknowledged) = (life.clone(), shared.clone());
            let is_read = (call.kind, call.verb) == (DEPLOYMENT, Verb::Get);
            let read = is_read && !author.for_review;
            let read = read.then(|| call.key.clone());
            let of_node = [NODE, DEPLOYMENT].contains(&call.kind) && !author.for_review;
            let of_node = of_node.then(|| call.key.1.clone());
            // What is sent lands, whatever becomes of its sender.
            tokio::spawn(async move {
                if let Some(answer) = carry(&shared, &of_sender, author, *call).await {
                    // Its sender may be gone, or wait no longer.
                    let _ = sender.send(answer);
                }
            });
            let answer = reply.await;
            let went_well = |(reply, _): &Answer| reply.as_ref().is_ok_and(is_sound);
            if let Some(node) = of_node.filter(|_| !answer.as_ref().is_ok_and(went_well)) {
                lock(&acknowledged).witness.request_failed(life.id(), node);
            }
            let Ok((reply, hub)) = answer else {
                // Nobody answers.
                return std::future::pending().await;
            };
            let mut world = lock(&acknowledged);
            if let Some(known) = read.and_then(|key| world.told(&life, &key)) {
                world.witness.child_known(life.id(), &known);
            }
            if let Some(hub) = hub {
                world.witness.ledger_acknowledged(life.id(), &hub.value);
            }
            drop(world);
            reply
        }
    });
    kube::Client::new(service, "default")
}

/// That an object is not there, or has changed meanwhile, is an answer, too.
fn is_sound(reply: &Reply) -> bool {
    reply.status().is_success() || [404, 409].contains(&reply.status().as_u16())
}

/// On which view of its sender's the request was decided.
fn author(shared: &Shared, life: &Life, call: &Call) -> Author {
    let views = life.views.lock().expect("no panic under it");
    let sent = views.sent.get(&call.key.1).copied();
    let view = match (call.kind, call.verb) {
        (NODE, Verb::Apply) => views.sync,
        (DEPLOYMENT, _) => views.nodes.get(&call.key.1).copied().unwrap_or_default(),
        (NODE, Verb::Merge) => sent.map_or(views.releases, |(view, _)| view),
        _ => views.releases,
    };
    let said = lock(shared).said_since(life);
    Author {
        life: life.id(),
        view: View { said, ..view },
        planned: sent.map_or(0, |(_, planned)| planned),
        verb: call.verb,
        for_review: reviews::is_one(),
        for_gone: false,
    }
}

fn whole(code: u16, body: Bytes) -> Reply {
    let reply = Response::builder().status(code);
    let reply = reply.header("content-type", "application/json");
    reply
        .body(Either::Left(Full::new(body)))
        .expect("a response")
}

/// The hub as it would be.
fn taken_for_done(shared: &Shared, call: &Call) -> Reply {
    let hub = lock(shared).get(HUB, &call.key.1);
    let mut hub = hub.map(|hub| hub.value.clone()).unwrap_or_default();
    hub["status"]["rollout"]["slots"] = call.body["status"]["rollout"]["slots"].clone();
    whole(200, hub.to_string().into())
}

fn refused(refused: &Refused) -> Reply {
    whole(refused.code, refused.status().to_string().into())
}

/// The request to the API server, and its reply back; None where that is lost without a word.
async fn carry(
    shared: &Shared,
    life: &Arc<Life>,
    author: Author,
    mut call: Call,
) -> Option<Answer> {
    let way = lock(shared).way(&call);
    sleep(Duration::from_millis(way.there)).await;
    reverts::cross(&mut lock(shared), &call);
    planted::request(&lock(shared), &author, &mut call);
    let call = &call;
    let trusts_loss = planted::is_ledger(call) && lock(shared).planted(Plant::TrustLostLedgerWrite);
    if way.is_lost {
        lock(shared).trace(|| format!("{}: does not arrive", of(life, call)));
        return Some(match trusts_loss {
            true => (Ok(taken_for_done(shared, call)), None),
            false => (Err("the connection was refused".into()), None),
        });
    }
    let mut hub = None;
    let refusal = lock(shared).refused(call);
    let reply = match (call.verb, refusal) {
        (Verb::Watch | Verb::List, Some(refusal)) => Err(refusal),
        (Verb::Watch, None) => Ok(watch(shared, life, call)),
        (Verb::List, None) => {
            let mut world = lock(shared);
            let list = world.list(life, call);
            list.map(|list| whole(200, list.into()))
        }
        _ => {
            let mut world = lock(shared);
            let result = execute(&mut world, life, &author, call);
            world.trace(|| {
                let said = match &result {
                    Ok(object) => format!("ok, {}", object.version()),
                    Err(refused) => format!("{} {}", refused.code, refused.message),
                };
                let lost = if way.reply_is_lost {
                    "; the reply is lost"
                } else {
                    ""
                };
                format!("{}: {said}{lost}", of(life, call))
            });
            let code = if call.verb == Verb::Create { 201 } else { 200 };
            hub = (call.kind == HUB && call.of_status)
                .then(|| result.as_ref().ok().cloned())
                .flatten();
            result.map(|object| whole(code, object.text()))
        }
    };
    sleep(Duration::from_millis(way.back)).await;
    match (way.reply_is_lost, way.is_silent) {
        (true, _) if trusts_loss => Some((Ok(taken_for_done(shared, call)), None)),
        (true, true) => None,
        (true, false) => Some((Err("the connection was reset".into()), None)),
        (false, _) => Some((Ok(reply.unwrap_or_else(|error| refused(&error))), hub)),
    }
}

/// By way of a bug that tries again, where one is planted.
fn execute(
    world: &mut World,
    life: &Life,
    author: &Author,
    call: &Call,
) -> Result<Arc<Object>, Refused> {
    let result = world.execute(author, call);
    let (Some(mutant), Err(refused)) = (world.settings.mutant, &result) else {
        return result;
    };
    match planted::again(mutant, world, life, call, refused) {
        Some(again) => world.execute(author, &again),
        None => result,
    }
}

fn of(life: &Life, call: &Call) -> String {
    format!("operator {}.{}: {}", life.replica, life.boot, call.shown())
}

/// The events of a kind from a version on, until the API server ends the watch.
fn watch(shared: &Shared, life: &Arc<Life>, call: &Call) -> Reply {
    let (sender, lines) = mpsc::unbounded();
    let number = |name: &str| call.query.get(name).and_then(|text| text.parse().ok());
    let since: u64 = number("resourceVersion").unwrap_or(0);
    let seconds: u64 = number("timeoutSeconds").unwrap_or(290);
    let mut pump = Pump {
        shared: shared.clone(),
        life: life.clone(),
        kind: call.kind,
        selector: call.selector(),
        next: lock(shared).store.log[call.kind].first_after(since),
        sender,
    };
    tokio::spawn(async move {
        let _ = tokio::time::timeout(Duration::from_secs(seconds), pump.run()).await;
    });
    let told = Told {
        life: life.clone(),
        kind: call.kind,
        // What it has listed it knows.
        read: Some(since),
        lines,
    };
    let reply = Response::builder().header("content-type", "application/json");
    reply
        .body(Either::Right(StreamBody::new(told)))
        .expect("a response")
}

/// A line of a watch, if one is to be read; and up to which revision its reader knows all then.
type Line = (Option<Bytes>, Option<u64>);

/// What a watch sends. Who asks for more has taken in what came before.
struct Told {
    life: Arc<Life>,
    kind: usize,
    /// What is known once more is asked for.
    read: Option<u64>,
    lines: mpsc::UnboundedReceiver<Line>,
}

impl Stream for Told {
    type Item = Result<Frame<Bytes>, Lost>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(read) = self.read.take() {
                self.life.tell(self.kind, read);
            }
            match ready!(self.lines.poll_next_unpin(context)) {
                None => return Poll::Ready(None),
                Some((line, read)) => {
                    self.read = read;
                    if let Some(line) = line {
                        return Poll::Ready(Some(Ok(Frame::data(line))));
                    }
                }
            }
        }
    }
}

struct Pump {
    shared: Shared,
    life: Arc<Life>,
    kind: usize,
    selector: requests::Selector,
    next: usize,
    sender: mpsc::UnboundedSender<Line>,
}

impl Pump {
    async fn run(&mut self) {
        loop {
            let lag = lock(&self.shared).lag(&self.life, self.kind);
            let (Lag::Millis(millis) | Lag::Dropped(millis) | Lag::Gone(millis)) = lag;
            sleep(Duration::from_millis(millis)).await;
            match lag {
                Lag::Dropped(_) => return,
                Lag::Gone(_) => return self.is_gone(),
                Lag::Millis(_) => {}
            }
            if self.deliver().is_none() {
                return;
            }
            more_than(&self.shared, self.kind, self.next).await;
        }
    }

    /// What is there by now; None where nobody reads it any more.
    fn deliver(&mut self) -> Option<()> {
        let mut world = lock(&self.shared);
        let some = match world.faults_on {
            true => 1 + world.random.below(8),
            false => usize::MAX,
        };
        let Some(events) = world.store.log[self.kind].from(self.next) else {
            drop(world);
            self.is_gone();
            return None;
        };
        let mut lines: Vec<Line> = vec![];
        for event in events.take(some) {
            self.next += 1;
            let has = |key: &Key, object: &Object| self.selector.has(key, object);
            let was = event
                .before
                .as_ref()
                .is_some_and(|before| has(&event.key, before));
            let is = !event.deleted && has(&event.key, &event.object);
            let type_ = match (was, is) {
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
                (false, false) => {
                    lines.push((None, Some(event.revision)));
                    continue;
                }
            };
            let mut line = format!(r#"{{"type":"{type_}","object":"#).into_bytes();
            line.extend_from_slice(&event.object.text());
            line.extend_from_slice(b"}\n");
            lines.push((Some(Bytes::from(line)), Some(event.revision)));
        }
        drop(world);
        for (line, read) in lines {
            self.sender.unbounded_send((line, read)).ok()?;
        }
        (!self.sender.is_closed()).then_some(())
    }

    /// The version from which it is to go on is too old.
    fn is_gone(&self) {
        let gone = Refused::new(410, "Expired", "too old resource version");
        let line = json!({"type": "ERROR", "object": gone.status()});
        let line = Bytes::from(format!("{line}\n"));
        // Whether anybody reads it does not matter.
        let _ = self.sender.unbounded_send((Some(line), None));
    }
}

/// The call; or the answer, where that is all.
fn understood(asked: Asked) -> Result<Box<Call>, Box<Reply>> {
    let not_found = || refused(&Refused::not_found("not found"));
    match asked {
        Asked::Call(call) => Ok(call),
        Asked::Kinds(group, version) => {
            let kinds = requests::kinds(&group, &version);
            let known = |kinds: Value| whole(200, kinds.to_string().into());
            Err(Box::new(kinds.map_or_else(not_found, known)))
        }
        Asked::Unknown => Err(Box::new(not_found())),
    }
}

/// How late the next events of a watch are.
pub enum Lag {
    Millis(u64),
    /// The connection breaks then.
    Dropped(u64),
    /// The version from which it is to go on is too old then.
    Gone(u64),
}

/// What becomes of a request.
#[derive(Default)]
pub struct Way {
    /// In milliseconds, as the way back.
    pub there: u64,
    pub back: u64,
    pub is_lost: bool,
    pub reply_is_lost: bool,
    pub is_silent: bool,
}
