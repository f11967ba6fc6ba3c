//! Servers and networks that break off anywhere, say nothing, or try what an honest server never does.

pub mod mysql_wire;
mod postgresql_wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lynqgate::datasource::SourceError;
use lynqgate::datasource::database::Settings;
use lynqgate::datasource::error::Stage;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cluster::database::{Database, Product};
use crate::datasource::{columns, create, read, settings, shared, source};

on_each_product!(
    a_result_cut_at_any_byte_is_an_error,
    silence_at_any_point_ends_with_the_deadline,
    something_else_listens_there,
);

/// What a network does after so many bytes from the server.
#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    Close,
    Silence,
}

/// A network to `database` that passes `limit` bytes from it per connection.
pub struct Network {
    pub address: SocketAddr,
    pub limit: Arc<AtomicU64>,
    /// Passed by all connections together.
    passed: Arc<AtomicU64>,
}

impl Network {
    pub async fn to(database: &Database, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Self {
            address: listener.local_addr().unwrap(),
            limit: Arc::new(AtomicU64::new(u64::MAX)),
            passed: Arc::new(AtomicU64::new(0)),
        };
        let (limit, passed) = (network.limit.clone(), network.passed.clone());
        let port = database.port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let limit = limit.load(Ordering::SeqCst);
                tokio::spawn(connection(client, port, limit, then, passed.clone()));
            }
        });
        network
    }
}

async fn connection(
    client: TcpStream,
    port: u16,
    limit: u64,
    then: Then,
    passed: Arc<AtomicU64>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut server_reads, mut server_writes) = server.into_split();
    let requests = tokio::io::copy(&mut client_reads, &mut server_writes);
    let replies = async {
        let mut left = limit;
        let mut buffer = [0; 4096];
        while left > 0 {
            let read = server_reads.read(&mut buffer).await?;
            let take = left.min(read as u64);
            if take == 0 {
                return Ok(());
            }
            left -= take;
            passed.fetch_add(take, Ordering::SeqCst);
            client_writes.write_all(&buffer[..take as usize]).await?;
        }
        if then == Then::Silence {
            std::future::pending::<()>().await;
        }
        client_writes.shutdown().await
    };
    tokio::select! {
        _ = requests => Ok(()),
        done = replies => done,
    }
}

/// 20 rows behind a network, and the number of bytes that reading them takes.
async fn behind(product: Product, name: &str, then: Then) -> (Network, Settings, u64) {
    let database = shared(product).await;
    let numbers = product.sequence(20);
    let view = format!("CREATE VIEW v AS SELECT CONCAT('t-', seq) uid, 1 activate FROM {numbers}");
    create(database, name, &[view]).await;
    let network = Network::to(database, then).await;
    let mut settings = settings(database, name, "v");
    settings.port = network.address.port();
    let rows = read(&source(product, settings.clone()), &columns(&[])).await;
    assert_eq!(rows.expect("an honest network").len(), 20);
    let bytes = network.passed.load(Ordering::SeqCst);
    (network, settings, bytes)
}

async fn a_result_cut_at_any_byte_is_an_error(product: Product) {
    let (network, settings, bytes) = behind(product, "cut_anywhere", Then::Close).await;
    for limit in 0..bytes {
        network.limit.store(limit, Ordering::SeqCst);
        let outcome = read(&source(product, settings.clone()), &columns(&[])).await;
        let code = outcome.as_ref().err().map(SourceError::code);
        assert!(
            matches!(code, Some("Unreachable" | "Interrupted")),
            "cut after {limit} of {bytes} bytes: {outcome:?}"
        );
    }
    network.limit.store(bytes, Ordering::SeqCst);
    let whole = read(&source(product, settings), &columns(&[])).await;
    assert_eq!(whole.expect("all bytes arrived").len(), 20);
}

async fn silence_at_any_point_ends_with_the_deadline(product: Product) {
    let (network, mut settings, bytes) = behind(product, "silent", Then::Silence).await;
    settings.limits.query = Duration::from_secs(1);
    let cases = [
        ("from the start", 0, Stage::Connect),
        ("within the greeting", 20, Stage::Connect),
        ("before the last byte", bytes - 1, Stage::Query),
        ("within the rows", bytes - 50, Stage::Query),
    ];
    for (name, limit, stage) in cases {
        network.limit.store(limit, Ordering::SeqCst);
        settings.limits.connect = match stage {
            Stage::Connect => Duration::from_secs(1),
            Stage::Query => Duration::from_secs(30),
        };
        let outcome = read(&source(product, settings.clone()), &columns(&[])).await;
        let expected = SourceError::Timeout { seconds: 1, stage };
        assert_eq!(outcome, Err(expected), "{name}");
    }
}

async fn something_else_listens_there(product: Product) {
    let greetings: &[(&str, &[u8])] = &[
        ("SSH", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        (
            "HTTP",
            b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        ),
        ("SMTP", b"220 mail.example ESMTP\r\n"),
        ("zeros", &[0; 64]),
        ("a short packet", b"\x01\0\0\0\x0a"),
        ("an old protocol", b"\x05\0\0\0\x095.0\0"),
    ];
    for (name, greeting) in greetings {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = settings(shared(product).await, "fake", "t");
        settings.port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(greeting).await.unwrap();
            client.shutdown().await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        };
        let source = source(product, settings);
        let columns = columns(&[]);
        let (outcome, ()) = tokio::join!(read(&source, &columns), server);
        let code = outcome.as_ref().err().map(SourceError::code);
        assert!(
            matches!(code, Some("Protocol" | "Unreachable")),
            "{name}: {outcome:?}"
        );
    }
}
