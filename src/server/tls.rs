//! Serves HTTP/1.1 over TLS: time limits for whoever is slow, a cap on connections, and an end that drops no request.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

/// As long as the API server's own client gives a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For the head of a request. It runs while a connection is idle, too, and the API server keeps an idle one for 90 s: were
/// ours shorter, a request could meet the closing of its connection, and a write would be refused.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);
/// An API server keeps a handful of connections; this is for a crowd of strangers.
const CONNECTIONS_MAX: usize = 2_000;
/// What one connection has read and nobody has asked for yet: with many, each would fill more.
const BUFFER_MAX: usize = 16 * 1024;
/// What is under way at the end has this long.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves until `stop` is done, then finishes what is under way.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    app: Router,
    stop: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    tokio::pin!(stop);
    loop {
        let permit = connections
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, as a rule: it passes, and until then a busy loop would not help.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = &mut stop => break,
        };
        let (acceptor, app, watcher) = (acceptor.clone(), app.clone(), graceful.watcher());
        tokio::spawn(async move {
            let _permit = permit;
            let _ = stream.set_nodelay(true);
            let Some(connection) = connection(stream, acceptor, app).await else {
                return;
            };
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a webhook connection ended early");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some webhook requests did not end in time");
    }
}

/// Makes the handshake; None when the client does not, or not in time.
async fn connection<S>(
    stream: S,
    acceptor: TlsAcceptor,
    app: Router,
) -> Option<http1::Connection<TokioIo<TlsStream<S>>, TowerToHyperService<Router>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
    let stream = accepted.ok()?.ok()?;
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    Some(connection)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::{Instant, sleep};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::aws_lc_rs;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    /// The client's end of a connection that is served, and what it needs for the handshake.
    fn served() -> (DuplexStream, TlsConnector) {
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(identity.cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = duplex(64 * 1024);
        let app = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(async move {
            if let Some(connection) = connection(far, Arc::new(server).into(), app).await {
                let _ = connection.await;
            }
        });
        (near, Arc::new(client).into())
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[tokio::test(start_paused = true)]
    async fn a_connection_stays_as_long_as_the_api_server_keeps_it_idle() {
        let (stream, connector) = served();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        for _ in 0..3 {
            stream.write_all(REQUEST).await.unwrap();
            let mut answer = String::new();
            while !answer.ends_with("here") {
                let byte = stream.read_u8().await.unwrap();
                answer.push(byte.into());
            }
            sleep(Duration::from_secs(91)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_end_ends_the_connection() {
        let (stream, connector) = served();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let start = Instant::now();
        let (mut read, mut write) = tokio::io::split(stream);
        tokio::spawn(async move {
            // A header line without end, a byte every 20 s.
            write.write_all(b"GET / HTTP/1.1\r\nX: ").await.unwrap();
            while write.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(20)).await;
            }
        });
        let mut said = Vec::new();
        let _ = read.read_to_end(&mut said).await;
        assert!(said.is_empty());
        assert_eq!(start.elapsed().as_secs(), HEADER_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_that_is_not_made_ends_the_connection() {
        let (mut stream, _) = served();
        let start = Instant::now();
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(start.elapsed().as_secs(), HANDSHAKE_TIMEOUT.as_secs());
    }
}
