//! What a Service is in a cluster: one address for the webhooks of all replicas, connections go to those that are
//! ready. Passes bytes on and reads none.

#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::operator::get;

/// How often readiness is asked for, and how long an answer may take.
const PROBE: Duration = Duration::from_secs(1);

struct Backend {
    port: u16,
    health_port: u16,
    ready: AtomicBool,
}

pub struct Relay {
    backends: Arc<Vec<Backend>>,
    up: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Relay {
    /// `backends`: the webhook port and the health port of each replica.
    pub async fn start(port: u16, backends: &[(u16, u16)]) -> Result<Relay> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let backend = |&(port, health_port): &(u16, u16)| Backend {
            port,
            health_port,
            // Nothing is known yet; the first webhook call must not wait for the first probe.
            ready: AtomicBool::new(true),
        };
        let backends: Arc<Vec<Backend>> = Arc::new(backends.iter().map(backend).collect());
        let up = watch::Sender::new(true);
        let probing = tokio::spawn(probe(backends.clone()));
        let accepting = tokio::spawn(accept(listener, backends.clone(), up.subscribe()));
        Ok(Relay {
            backends,
            up,
            tasks: vec![probing, accepting],
        })
    }

    /// Down: connections are closed, those that are open as well.
    pub fn set_up(&self, up: bool) {
        self.up.send_replace(up);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

async fn probe(backends: Arc<Vec<Backend>>) {
    loop {
        for backend in backends.iter() {
            let answer = tokio::time::timeout(PROBE, get(backend.health_port, "/readyz")).await;
            let ready = matches!(answer, Ok(Ok(text)) if text.starts_with("HTTP/1.1 200"));
            backend.ready.store(ready, Ordering::Relaxed);
        }
        tokio::time::sleep(PROBE).await;
    }
}

async fn accept(listener: TcpListener, backends: Arc<Vec<Backend>>, up: watch::Receiver<bool>) {
    let turn = AtomicUsize::new(0);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            continue;
        };
        while connections.try_join_next().is_some() {}
        let first = turn.fetch_add(1, Ordering::Relaxed);
        let mut all = (0..backends.len()).map(|i| &backends[(first + i) % backends.len()]);
        let Some(port) = all
            .find(|backend| backend.ready.load(Ordering::Relaxed))
            .map(|backend| backend.port)
            .filter(|_| *up.borrow())
        else {
            continue;
        };
        let mut up = up.clone();
        connections.spawn(async move {
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = up.wait_for(|up| !up) => {}
            }
        });
    }
}
