//! Crowds and slow clients at the webhook's port: everybody who asks is answered, and who only holds a connection loses it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::tls::{Client, answer, head};
use super::*;

const PATH: &str = "/mutate-operator-lynq-sh-v1-lynqnode";
const JSON: &str = "Content-Type: application/json\r\n";
/// The server's own limits are 5 s for a body and 10 s for a handshake.
const LIMIT: Duration = Duration::from_secs(20);

fn review(uid: &str) -> String {
    let object = json!({"metadata": {"name": "n", "namespace": "default"}, "spec": {"uid": "u", "templateRef": "web"}});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": uid, "operation": "CREATE", "userInfo": {"username": "alice"}, "object": object},
    })
    .to_string()
}

async fn client() -> Result<(Client, u32)> {
    let (cluster, operator) = operator::shared().await?;
    let client = Client::new(cluster.admin().await?, operator.webhook_port).await?;
    Ok((client, operator.process.id().context("it runs")?))
}

/// 500 requests at a time, each on a connection of its own: every one gets the answer to its own uid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_requests_at_a_time_are_all_answered() -> Result<()> {
    let (client, pid) = client().await?;
    let asked = (0..500).map(|i| {
        let client = client.clone();
        tokio::spawn(async move {
            let uid = format!("u-{i}");
            let (status, text) = client.post(PATH, JSON, review(&uid).as_bytes()).await?;
            anyhow::ensure!(status == 200, "{uid}: {status} {text}");
            let answer: Value = serde_json::from_str(&text)?;
            anyhow::ensure!(answer["response"]["uid"] == uid, "{uid}: {text}");
            anyhow::ensure!(answer["response"]["allowed"] == true, "{uid}: {text}");
            anyhow::Ok(())
        })
    });
    let asked: Vec<_> = asked.collect();
    for answered in asked {
        answered.await??;
    }
    let (_, operator) = operator::shared().await?;
    operator.ready().await?;
    assert_eq!(operator.process.id(), Some(pid), "the same process");
    Ok(())
}

/// A body that does not come to its end, and a handshake that is not made: both lose their connection after a few
/// seconds, and meanwhile others are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_lose_their_connection_and_hold_up_nobody() -> Result<()> {
    let (client, _) = client().await?;
    let slow_body = async {
        let mut stream = client.connect().await?;
        stream.write_all(head(PATH, JSON, 1_000).as_bytes()).await?;
        stream.write_all(b"{").await?;
        let (status, text) = tokio::time::timeout(LIMIT, answer(&mut stream)).await??;
        assert_eq!(status, 408, "{text}");
        assert!(text.contains("did not come in 5 s"), "{text}");
        anyhow::Ok(())
    };
    let no_handshake = async {
        let mut stream = client.tcp().await?;
        let mut byte = [0];
        let read = tokio::time::timeout(LIMIT, stream.read(&mut byte)).await?;
        assert!(matches!(read, Ok(0) | Err(_)), "the server said something");
        anyhow::Ok(())
    };
    let others = async {
        for i in 0..20 {
            let started = Instant::now();
            let (status, text) = client
                .post(PATH, JSON, review(&format!("u-{i}")).as_bytes())
                .await?;
            assert_eq!(status, 200, "{text}");
            // The API server itself waits 5 s.
            assert!(started.elapsed() < Duration::from_secs(5));
        }
        anyhow::Ok(())
    };
    tokio::try_join!(slow_body, no_handshake, others)?;
    Ok(())
}
