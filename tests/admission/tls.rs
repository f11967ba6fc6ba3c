//! TLS for these tests: a client that trusts what the API server is told to trust, and a webhook of somebody else's.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Opens connections to the operator's webhooks as the API server does.
#[derive(Clone)]
pub struct Client {
    port: u16,
    config: Arc<ClientConfig>,
}

impl Client {
    /// Trusts the `caBundle` of the webhook configuration, and nothing else.
    pub async fn new(kube: kube::Client, port: u16) -> Result<Client> {
        let configuration = configurations(kube)
            .get("lynq-mutating-webhook-configuration")
            .await?;
        let bundle = configuration.data["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .context("the configuration has no caBundle")?;
        let bundle = STANDARD.decode(bundle)?;
        let trusted: Vec<_> = CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>()?;
        Ok(Client {
            port,
            config: trusting(trusted)?,
        })
    }

    /// A connection before the handshake. The system keeps little of what the server has not read.
    pub async fn tcp(&self) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(64 * 1024)?;
        let address = (Ipv4Addr::LOCALHOST, self.port);
        Ok(socket.connect(address.into()).await?)
    }

    pub async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("127.0.0.1")?;
        let connector = TlsConnector::from(self.config.clone());
        Ok(connector.connect(name, self.tcp().await?).await?)
    }

    /// One request on a connection of its own: status and body of the answer.
    pub async fn post(&self, path: &str, content_type: &str, body: &[u8]) -> Result<(u16, String)> {
        let mut stream = self.connect().await?;
        let head = head(path, content_type, body.len());
        stream.write_all(head.as_bytes()).await?;
        // A server that refuses it may answer, and close, before it has all of it.
        if stream.write_all(body).await.is_ok() {
            // The last of it may still be in the client.
            let _ = stream.flush().await;
        }
        answer(&mut stream).await
    }
}

/// For a client that trusts these certificates, and no others.
pub fn trusting(
    certificates: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

pub fn head(path: &str, content_type: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{content_type}Content-Length: {length}\r\n\r\n"
    )
}

/// Reads until the server closes.
pub async fn answer(stream: &mut TlsStream<TcpStream>) -> Result<(u16, String)> {
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8(answer)?;
    let (head, body) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("no answer: {end:?}"))?;
    let status = head.split(' ').nth(1).context("no status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// What the other webhook does to an object: a JSON patch, given the object and how often it was called before.
pub type Change = fn(&Value, usize) -> Value;

/// A mutating webhook for the LynqNodes of one namespace whose configuration sorts after lynqgate's.
pub struct OtherWebhook {
    configuration: String,
    api: Api<DynamicObject>,
    calls: Arc<Mutex<usize>>,
}

impl OtherWebhook {
    pub async fn install(
        kube: kube::Client,
        namespace: &str,
        reinvocation: &str,
        change: Change,
    ) -> Result<OtherWebhook> {
        let calls = Arc::new(Mutex::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from_pem_slice(identity.signing_key.serialize_pem().as_bytes())?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)?;
        let counted = calls.clone();
        let answer = move |body: String| async move {
            let review: Value = serde_json::from_str(&body).expect("an AdmissionReview");
            let number = {
                let mut calls = counted.lock().expect("the calls");
                *calls += 1;
                *calls - 1
            };
            let patch = change(&review["request"]["object"], number).to_string();
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {
                    "uid": review["request"]["uid"], "allowed": true,
                    "patchType": "JSONPatch", "patch": STANDARD.encode(patch),
                },
            });
            ([("content-type", "application/json")], answer.to_string())
        };
        let app = Router::new().fallback(post(answer));
        tokio::spawn(lynqgate::server::tls::serve(
            listener,
            Arc::new(config),
            app,
            std::future::pending(),
        ));

        let configuration = format!("zz-{namespace}");
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": configuration},
            "webhooks": [{
                "name": "other.example.com",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{port}/"),
                    "caBundle": STANDARD.encode(identity.cert.pem()),
                },
                "rules": [{"apiGroups": ["operator.lynq.sh"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["lynqnodes"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "reinvocationPolicy": reinvocation,
                "sideEffects": "None",
            }],
        });
        let api = configurations(kube);
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        Ok(OtherWebhook {
            configuration,
            api,
            calls,
        })
    }

    pub fn calls(&self) -> usize {
        *self.calls.lock().expect("the calls")
    }

    /// Without it the operator could not write the namespace's nodes any more once the test ends.
    pub async fn remove(self) -> Result<()> {
        self.api
            .delete(&self.configuration, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

fn configurations(kube: kube::Client) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
    );
    Api::all_with(kube, &ApiResource::from_gvk(&gvk))
}
