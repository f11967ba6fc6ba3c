//! Real handshakes over TCP while the certificate is replaced.

use super::*;

use std::net::SocketAddr;

use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::authority::{Authority, Names};
use crate::lifetimes::Lifetimes;
use crate::plan::CaSet;

struct Server {
    resolver: Arc<LeafResolver>,
    address: SocketAddr,
}

impl Server {
    /// Accepts connections and sends back what it gets, until the runtime of the test ends.
    async fn start() -> Self {
        let resolver = Arc::new(LeafResolver::default());
        let acceptor = TlsAcceptor::from(Arc::new(server_config(resolver.clone()).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // The client reports a failed handshake.
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        let (mut reader, mut writer) = tokio::io::split(tls);
                        drop(tokio::io::copy(&mut reader, &mut writer).await);
                    }
                });
            }
        });
        Self { resolver, address }
    }

    fn serve(&self, authority: &Authority) {
        let validity = Lifetimes::default().ca_validity(Timestamp::now());
        let names = Names {
            dns: vec![],
            ip: vec!["127.0.0.1".parse().unwrap()],
        };
        self.resolver
            .serve(authority.mint_leaf(&names, validity).unwrap());
    }

    async fn connect(&self, client: &ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut tls = TlsConnector::from(Arc::new(client.clone()))
            .connect(name, tcp)
            .await?;
        // With TLS 1.3 the client ends its handshake before it knows what the server thinks of it.
        echo(&mut tls).await?;
        Ok(tls)
    }
}

async fn echo(tls: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    tls.write_all(b"ping").await?;
    let mut answer = [0; 4];
    tls.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

fn authority() -> Authority {
    Authority::issue(Lifetimes::default().ca_validity(Timestamp::now())).unwrap()
}

fn trusting(authority: &Authority, version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let bundle = CaSet::new(authority.clone()).bundle();
    roots
        .add(CertificateDer::from_pem_slice(&bundle).unwrap())
        .unwrap();
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn peer(tls: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    tls.get_ref()
        .1
        .peer_certificates()
        .expect("the server showed one")[0]
        .clone()
        .into_owned()
}

#[tokio::test]
async fn a_replaced_certificate_reaches_new_handshakes_and_no_open_connection() {
    for version in [&TLS12, &TLS13] {
        let server = Server::start().await;
        let (first, second) = (authority(), authority());
        // One client for all connections, so that it would resume a session if it were let.
        let (trusts_first, trusts_second) = (trusting(&first, version), trusting(&second, version));
        let refused = server.connect(&trusts_first).await;
        assert!(
            refused.is_err(),
            "{version:?}: there is nothing to serve yet"
        );

        server.serve(&first);
        let mut open = server
            .connect(&trusts_first)
            .await
            .expect("the first certificate");
        let refused = server.connect(&trusts_second).await;
        assert!(
            refused.is_err(),
            "{version:?}: the second authority has signed nothing yet"
        );

        server.serve(&second);
        let new = server
            .connect(&trusts_second)
            .await
            .expect("the second certificate");
        let refused = server.connect(&trusts_first).await;
        assert!(
            refused.is_err(),
            "{version:?}: nothing shows the first certificate any more"
        );
        assert_ne!(peer(&open), peer(&new), "{version:?}");
        echo(&mut open).await.expect("the old connection goes on");
    }
}

#[tokio::test]
async fn only_http_1_1_is_agreed_on() {
    let server = Server::start().await;
    let authority = authority();
    server.serve(&authority);
    let mut client = trusting(&authority, &TLS13);

    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let agreed = server.connect(&client).await.expect("http/1.1 is offered");
    assert_eq!(
        agreed.get_ref().1.alpn_protocol(),
        Some(b"http/1.1".as_slice())
    );

    client.alpn_protocols = vec![b"h2".to_vec()];
    let refused = server.connect(&client).await.expect_err("h2 alone");
    assert!(
        refused.to_string().contains("NoApplicationProtocol"),
        "{refused}"
    );
}
