//! Every revision, straight from etcd by its JSON gateway: what no cache and no API server stands between.
//!
//! One watch of everything below the prefix, so that revisions of different kinds come in their one order. Objects must be
//! stored as JSON (custom resources always are; the others with `--storage-media-type=application/json`) and unencrypted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::AsyncBufReadExt;
use futures::io::AsyncBufRead;
use jiff::Timestamp;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use super::{Sink, SourceError, send, written_at};
use crate::core::{Change, Input};
use crate::kinds::{Key, Kind};

#[derive(Clone, Debug)]
pub struct Etcd {
    pub endpoint: String,
    pub cacert: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub prefix: String,
    /// Begin with this revision, which must not have been compacted; None: with the next one.
    pub from_revision: Option<u64>,
}

/// Between two tries to reach etcd.
const RETRY: Duration = Duration::from_millis(500);
const PAGE: u64 = 500;

impl Etcd {
    /// Sends revisions until the sink is closed. Fails only if etcd cannot be reached at first.
    pub async fn follow(self, sink: Sink) -> Result<(), SourceError> {
        let client = self.client()?;
        let mut next = match self.from_revision {
            Some(revision) if revision <= 1 => 1,
            Some(revision) => self.baseline(&client, &sink, Some(revision - 1)).await?,
            None => self.baseline(&client, &sink, None).await?,
        };
        // Older revisions were not written when they are read: their time is what stands on them.
        let history_end = match self.from_revision {
            Some(_) => self.range(&client, Kind::Hub, None, None).await?.0,
            None => 0,
        };
        loop {
            let ended = self.watch(&client, &sink, &mut next, history_end).await;
            let why = match ended {
                Err(Ended::Closed) => return Ok(()),
                Err(Ended::Compacted(to)) => Some(format!(
                    "revisions {next} to {to} were compacted before they were read"
                )),
                Err(Ended::Broken) | Ok(()) => self.went_back(&client, next).await,
            };
            tokio::time::sleep(RETRY).await;
            if let Some(why) = why {
                send(&sink, Input::Gap { why }).await?;
                next = match self.begin_again(&client, &sink).await {
                    Some(next) => next,
                    None => return Ok(()),
                };
            }
        }
    }

    /// Etcd restored from a backup counts from an earlier revision, and a watch from a later one would hang.
    async fn went_back(&self, client: &Client, next: u64) -> Option<String> {
        let (newest, _) = self.range(client, Kind::Hub, None, None).await.ok()?;
        (newest + 1 < next).then(|| {
            format!(
                "etcd went back from revision {} to {newest}: it was restored",
                next - 1
            )
        })
    }

    /// A baseline as soon as there can be one; None when nobody listens any more.
    async fn begin_again(&self, client: &Client, sink: &Sink) -> Option<u64> {
        loop {
            match self.baseline(client, sink, None).await {
                Ok(next) => return Some(next),
                Err(SourceError::Closed) => return None,
                Err(_) if sink.is_closed() => return None,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// The newest revision of anything that is followed and still there: what must have been judged at the end.
    pub async fn newest_followed(&self) -> Result<u64, SourceError> {
        let client = self.client()?;
        let mut newest = 0;
        for kind in Kind::all() {
            let directory = self.directory(kind);
            let body = json!({
                "key": encode(&directory), "range_end": encode(&end_of(&directory)), "limit": "1", "keys_only": true,
                "sort_order": "DESCEND", "sort_target": "MOD",
            });
            let answer = self.post(&client, "/v3/kv/range", &body).await?;
            newest = newest.max(number(&answer["kvs"][0]["mod_revision"]));
        }
        Ok(newest)
    }

    fn directory(&self, kind: Kind) -> String {
        format!(
            "{}/{}/",
            self.prefix.trim_end_matches('/'),
            kind.etcd_directory()
        )
    }

    fn client(&self) -> Result<Client, SourceError> {
        let endpoint_error = |reason: String| SourceError::Endpoint {
            endpoint: self.endpoint.clone(),
            reason,
        };
        let url: http::Uri = self
            .endpoint
            .trim_end_matches('/')
            .parse()
            .map_err(|e: http::uri::InvalidUri| endpoint_error(e.to_string()))?;
        let mut config = Config::new(url);
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = None;
        config.proxy_url = None;
        config.default_retry = false;
        config.root_cert = self.cacert.as_deref().map(certificates).transpose()?;
        let text = |path: &PathBuf| path.display().to_string();
        config.auth_info.client_certificate = self.cert.as_ref().map(text);
        config.auth_info.client_key = self.key.as_ref().map(text);
        Client::try_from(config).map_err(|e| endpoint_error(e.to_string()))
    }

    async fn post(&self, client: &Client, path: &str, body: &Value) -> Result<Value, SourceError> {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        let failed = |reason: String| SourceError::Etcd {
            endpoint: self.endpoint.clone(),
            reason,
        };
        let request = request.map_err(|e| failed(e.to_string()))?;
        client
            .request::<Value>(request)
            .await
            .map_err(|e| failed(e.to_string()))
    }

    /// Everything that is followed, as of one revision (the newest, if none is given). Returns the next one.
    async fn baseline(
        &self,
        client: &Client,
        sink: &Sink,
        at: Option<u64>,
    ) -> Result<u64, SourceError> {
        let history = at.is_some();
        let (mut revision, mut objects) = (at, vec![]);
        for kind in Kind::all() {
            let (at, found) = self.range(client, kind, revision, Some(sink)).await?;
            revision.get_or_insert(at);
            objects.extend(found);
        }
        let revision = revision.unwrap_or(0);
        let kinds = Kind::all().collect();
        let newest = objects
            .iter()
            .filter_map(|(.., object)| written_at(object))
            .max();
        let at = match history {
            true => newest.unwrap_or(Timestamp::UNIX_EPOCH),
            false => Timestamp::now(),
        };
        send(
            sink,
            Input::Baseline {
                revision,
                at,
                kinds,
                objects,
            },
        )
        .await?;
        Ok(revision + 1)
    }

    /// The objects of one kind, page by page; without a sink, only the revision.
    async fn range(
        &self,
        client: &Client,
        kind: Kind,
        revision: Option<u64>,
        sink: Option<&Sink>,
    ) -> Result<(u64, Vec<(Key, u64, Value)>), SourceError> {
        let directory = self.directory(kind);
        let (mut at, mut from, mut objects) = (revision, directory.clone().into_bytes(), vec![]);
        loop {
            let limit = if sink.is_some() { PAGE } else { 1 };
            let body = json!({
                "key": STANDARD.encode(&from), "range_end": encode(&end_of(&directory)),
                "limit": limit.to_string(), "revision": at.unwrap_or(0).to_string(),
            });
            let answer = self.post(client, "/v3/kv/range", &body).await?;
            let revision = *at.get_or_insert(number(&answer["header"]["revision"]));
            let Some(sink) = sink else {
                return Ok((revision, objects));
            };
            for kv in answer["kvs"].as_array().into_iter().flatten() {
                from = decode(&kv["key"]);
                match self.object(kv) {
                    Some((key, Ok(object))) => {
                        objects.push((key, number(&kv["mod_revision"]), object))
                    }
                    Some((_, Err(what))) => send(sink, Input::Unreadable { what }).await?,
                    None => {}
                }
            }
            if answer["more"] != true {
                return Ok((revision, objects));
            }
            from.push(0);
        }
    }

    /// One watch, until it breaks.
    async fn watch(
        &self,
        client: &Client,
        sink: &Sink,
        next: &mut u64,
        history_end: u64,
    ) -> Result<(), Ended> {
        let body = json!({"create_request": {
            "key": encode(&self.prefix), "range_end": encode(&end_of(&self.prefix)), "start_revision": next.to_string(),
            "progress_notify": true,
        }});
        let request = http::Request::post("/v3/watch")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes());
        let request = request.map_err(|_| Ended::Broken)?;
        let stream = client
            .request_stream(request)
            .await
            .map_err(|_| Ended::Broken)?;
        let mut stream = std::pin::pin!(stream);
        while let Some(line) = read_line(&mut stream, sink).await? {
            let answer: Value = serde_json::from_slice(&line).map_err(|_| Ended::Broken)?;
            let result = &answer["result"];
            if number(&result["compact_revision"]) > 0 {
                return Err(Ended::Compacted(number(&result["compact_revision"])));
            }
            if result["canceled"] == true || result.is_null() {
                return Err(Ended::Broken);
            }
            for event in result["events"].as_array().into_iter().flatten() {
                *next = number(&event["kv"]["mod_revision"]) + 1;
                if let Some(input) = self.input(event, history_end) {
                    sink.send(input).await.map_err(|_| Ended::Closed)?;
                }
            }
        }
        Ok(())
    }

    fn input(&self, event: &Value, history_end: u64) -> Option<Input> {
        let kv = &event["kv"];
        let (key, object) = self.object(kv)?;
        let object = match object {
            _ if event["type"] == "DELETE" => None,
            Ok(object) => Some(object),
            Err(what) => return Some(Input::Unreadable { what }),
        };
        let revision = number(&kv["mod_revision"]);
        let at = match &object {
            Some(object) if revision <= history_end => {
                written_at(object).unwrap_or(Timestamp::UNIX_EPOCH)
            }
            None if revision <= history_end => Timestamp::UNIX_EPOCH,
            _ => Timestamp::now(),
        };
        Some(Input::Change(Change {
            revision,
            at,
            key,
            created: kv["create_revision"] == kv["mod_revision"],
            object,
        }))
    }

    /// The key and the object of a pair; None for what is not followed.
    fn object(&self, kv: &Value) -> Option<(Key, Result<Value, String>)> {
        let path = String::from_utf8(decode(&kv["key"])).ok()?;
        let path = path
            .strip_prefix(self.prefix.trim_end_matches('/'))?
            .strip_prefix('/')?;
        let kind = Kind::all().find(|kind| {
            path.strip_prefix(kind.etcd_directory())
                .is_some_and(|rest| rest.starts_with('/'))
        })?;
        let rest = &path[kind.etcd_directory().len() + 1..];
        let (namespace, name) = match kind {
            Kind::Namespace => ("", rest),
            _ => rest.split_once('/')?,
        };
        let object = serde_json::from_slice(&decode(&kv["value"]));
        let what = format!(
            "a {} in etcd is not JSON (see --storage-media-type, and encryption at rest)",
            kind.name()
        );
        Some((Key::new(kind, namespace, name), object.map_err(|_| what)))
    }
}

enum Ended {
    Closed,
    Compacted(u64),
    /// The connection, or etcd itself: tried again, and nothing is missed.
    Broken,
}

/// The next line of a watch; None where it ended. A closed sink ends the wait.
async fn read_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    sink: &Sink,
) -> Result<Option<Vec<u8>>, Ended> {
    let mut line = vec![];
    tokio::select! {
        read = stream.read_until(b'\n', &mut line) => match read {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(line)),
            Err(_) => Err(Ended::Broken),
        },
        () = sink.closed() => Err(Ended::Closed),
    }
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, SourceError> {
    let shown = path.display().to_string();
    let failed = |reason: String| SourceError::Certificate {
        path: shown.clone(),
        reason,
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|e| failed(e.to_string()))?;
    let found: Result<Vec<Vec<u8>>, _> = found.map(|one| one.map(|der| der.to_vec())).collect();
    found.map_err(|e| failed(e.to_string()))
}

/// The key after all keys that begin so.
fn end_of(prefix: &str) -> String {
    let mut bytes = prefix.trim_end_matches('/').as_bytes().to_vec();
    bytes.push(b'/' + 1);
    String::from_utf8(bytes).unwrap_or_default()
}

fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

fn decode(value: &Value) -> Vec<u8> {
    STANDARD
        .decode(value.as_str().unwrap_or_default())
        .unwrap_or_default()
}

/// A 64-bit number, which the gateway writes as text.
fn number(value: &Value) -> u64 {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .or(value.as_u64())
        .unwrap_or(0)
}
