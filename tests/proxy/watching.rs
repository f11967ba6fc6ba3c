//! The events of one watch on their way through: at once, later, or not at all, as the modes say at that moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use futures::{Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::revisions::revision_of;
use super::rules::Shown;
use super::{Answer, Modes, Shared, among};

/// How often a lagging watch looks whether its next event is old enough.
const LOOK: Duration = Duration::from_millis(50);

/// The same answer, with a body that obeys the modes.
pub fn follow(shared: Arc<Shared>, resource: String, answer: Answer) -> Answer {
    let (head, body) = answer.into_parts();
    let (sender, receiver) = mpsc::channel(1);
    let modes = shared.modes.subscribe();
    let cut = modes.borrow().cut;
    let watch = Watch {
        shared,
        resource,
        modes,
        cut,
        sender,
    };
    tokio::spawn(watch.run(body.into_data_stream()));
    let frames = futures::stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    });
    http::Response::from_parts(head, StreamBody::new(frames).boxed_unsync())
}

struct Watch {
    shared: Arc<Shared>,
    resource: String,
    modes: watch::Receiver<Modes>,
    cut: u64,
    sender: mpsc::Sender<Result<Frame<Bytes>>>,
}

impl Watch {
    /// Ends when the API server, the client, or a cut ends it.
    async fn run(mut self, body: impl Stream<Item = Result<Bytes>>) {
        let mut body = std::pin::pin!(body);
        let mut text = Vec::new();
        loop {
            let (cut, mut modes) = (self.cut, self.modes.clone());
            let next = tokio::select! {
                next = body.next() => next,
                () = self.sender.closed() => return,
                _ = modes.wait_for(|modes| modes.cut != cut) => Some(Err(anyhow!("cut"))),
            };
            let ended = !matches!(next, Some(Ok(_)));
            if let Some(Ok(data)) = next {
                text.extend_from_slice(&data);
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line = text.drain(..=end).collect();
                if !self.forward(line).await {
                    return;
                }
            }
            if ended {
                // The end is news, too.
                if self.may_pass(None).await {
                    let _ = self.sender.send(Err(anyhow!("the watch ended"))).await;
                }
                return;
            }
        }
    }

    /// False when nobody reads any more.
    async fn forward(&mut self, line: Vec<u8>) -> bool {
        if !self.may_pass(Some(&line)).await {
            return false;
        }
        let shown = self.shared.shown.lock().expect("what is shown").clone();
        let line = match shown {
            Some(shown) => self.as_shown(line, &shown),
            None => line,
        };
        self.sender.send(Ok(Frame::data(line.into()))).await.is_ok()
    }

    fn as_shown(&self, line: Vec<u8>, shown: &Shown) -> Vec<u8> {
        let Ok(mut event) = serde_json::from_slice::<Value>(&line) else {
            return line;
        };
        shown(&self.resource, &mut event["object"]);
        format!("{event}\n").into_bytes()
    }

    /// Returns when it is time; false when the watch is over before.
    async fn may_pass(&mut self, line: Option<&[u8]>) -> bool {
        let mut revision = None;
        loop {
            let (dead, silent, cut, lag) = {
                let modes = self.modes.borrow_and_update();
                (
                    among(&modes.dead, &self.resource),
                    among(&modes.silent, &self.resource),
                    modes.cut != self.cut,
                    modes.lag_of(&self.resource),
                )
            };
            if dead {
                self.sender.closed().await;
                return false;
            }
            if cut {
                return line.is_none();
            }
            let mut wait = None;
            if !silent {
                let Some((lag, line)) = lag.zip(line) else {
                    return true;
                };
                let revision = revision.get_or_insert_with(|| event_revision(line));
                let horizon = Instant::now()
                    .checked_sub(lag)
                    .and_then(|moment| self.shared.revisions.at(moment));
                // What cannot be told passes: an error event, or a past that is not remembered.
                let (Some(revision), Some(horizon)) = (*revision, horizon) else {
                    return true;
                };
                if revision <= horizon {
                    return true;
                }
                wait = Some(LOOK);
            }
            let look = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = look => {}
                changed = self.modes.changed() => if changed.is_err() { return false },
                () = self.sender.closed() => return false,
            }
        }
    }
}

fn event_revision(line: &[u8]) -> Option<u64> {
    let event: Value = serde_json::from_slice(line).ok()?;
    revision_of(&event["object"])
}
