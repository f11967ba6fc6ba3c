//! The connection to the server: TCP, TLS where it is required, and a check of each message's head before the driver sees it. The
//! driver would read a message of any length into memory, and send a password in clear to any server that asks for it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::datasource::database::{Context, Tls};
use crate::datasource::error::SourceError;

/// The SSLRequest message: its length and its code.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Of a message: its kind and its length, which counts itself. Of a request for a log-in also the method.
const HEAD_BYTES: usize = 5;
const LOG_IN_HEAD_BYTES: usize = 9;
const LOG_IN: u8 = b'R';

/// Why the method of an authentication request is not supported.
fn unsupported(method: [u8; 4], encrypted: bool) -> Option<&'static str> {
    match u32::from_be_bytes(method) {
        2 => Some("Kerberos"),
        3 if !encrypted => Some(
            "a password in clear (password, ldap, radius or pam in pg_hba.conf) without TLS (tls is disabled here)",
        ),
        7 => Some("GSSAPI"),
        9 => Some("SSPI"),
        _ => None,
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub struct Wire {
    stream: Box<dyn Stream>,
    watch: Watch,
}

/// Why a message is rejected.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("a message is too large")]
    TooLarge,
    #[error("a method that is not supported was asked for")]
    Method(&'static str),
}

/// Follows the messages through reads that begin and end anywhere.
struct Watch {
    message_bytes_max: usize,
    encrypted: bool,
    head: Vec<u8>,
    /// The bytes of the current message that are still to come.
    left: usize,
}

impl Wire {
    pub async fn open(context: Context<'_>) -> Result<Wire, SourceError> {
        let settings = context.settings;
        let tls = match &settings.tls {
            Tls::Disabled => None,
            Tls::Required { ca_pem } => {
                Some(connector(context, ca_pem.as_deref(), Names::Checked)?)
            }
            Tls::VerifyCa { ca_pem } => Some(connector(context, Some(ca_pem), Names::Any)?),
        };
        let addresses = context.addresses().await?;
        let failed = |error: io::Error| context.io(&error, 0);
        let mut tcp = TcpStream::connect(&*addresses).await.map_err(failed)?;
        // Only an optimization: ignore a failure.
        let _ = tcp.set_nodelay(true);
        let encrypted = tls.is_some();
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(tcp),
            Some((connector, name)) => {
                tcp.write_all(&TLS_REQUEST).await.map_err(failed)?;
                // Read one byte only: everything after the answer must be encrypted.
                match tcp.read_u8().await.map_err(failed)? {
                    b'S' => {}
                    b'N' => return Err(context.no_tls_offered()),
                    _ => return Err(context.protocol("no answer to whether it offers TLS")),
                }
                Box::new(connector.connect(name, tcp).await.map_err(failed)?)
            }
        };
        Ok(Wire {
            stream,
            watch: Watch::new(settings.limits.row_bytes, encrypted),
        })
    }
}

#[derive(PartialEq)]
enum Names {
    Checked,
    Any,
}

fn connector(
    context: Context<'_>,
    ca_pem: Option<&[u8]>,
    names: Names,
) -> Result<(TlsConnector, ServerName<'static>), SourceError> {
    let name = ServerName::try_from(context.settings.host.clone());
    let name = name.map_err(|_| context.no_server_name())?;
    let mut roots = RootCertStore::empty();
    match ca_pem {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let added = certificate.map(|certificate| roots.add(certificate));
                if !matches!(added, Ok(Ok(()))) {
                    return Err(context.no_authority());
                }
            }
            if roots.is_empty() {
                return Err(context.no_authority());
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = AuthorityVerifier {
        roots: roots.clone(),
        algorithms: provider.signature_verification_algorithms,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    if names == Names::Any {
        let verifier = Arc::new(verifier);
        config.dangerous().set_certificate_verifier(verifier);
    }
    Ok((TlsConnector::from(Arc::new(config)), name))
}

/// Checks the authority that issued the certificate, but not its name.
#[derive(Debug)]
struct AuthorityVerifier {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Watch {
    fn new(message_bytes_max: usize, encrypted: bool) -> Self {
        Self {
            message_bytes_max,
            encrypted,
            head: Vec::with_capacity(LOG_IN_HEAD_BYTES),
            left: 0,
        }
    }

    fn see(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            if self.head.len() >= HEAD_BYTES {
                self.head_read()?;
            }
        }
        Ok(())
    }

    fn head_read(&mut self) -> Result<(), WireError> {
        let length = self.head[1..HEAD_BYTES].try_into().expect("four bytes");
        let end = (u32::from_be_bytes(length) as usize).saturating_add(1);
        if end > self.message_bytes_max {
            return Err(WireError::TooLarge);
        }
        if self.head[0] == LOG_IN && end >= LOG_IN_HEAD_BYTES {
            if self.head.len() < LOG_IN_HEAD_BYTES {
                return Ok(());
            }
            let method = self.head[HEAD_BYTES..].try_into().expect("four bytes");
            if let Some(method) = unsupported(method, self.encrypted) {
                return Err(WireError::Method(method));
            }
        }
        self.left = end.saturating_sub(self.head.len());
        self.head.clear();
        Ok(())
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire(..)")
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(task, buffer))?;
        let seen = self.watch.see(&buffer.filled()[before..]);
        Poll::Ready(seen.map_err(io::Error::other))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind], &length[..], body].concat()
    }

    /// The verdict must not depend on the size of the pieces.
    #[test]
    fn verdicts() {
        let row = message(b'D', &[7; 20]);
        let (ok, clear) = (message(LOG_IN, &[0; 4]), message(LOG_IN, &[0, 0, 0, 3]));
        let kerberos = message(LOG_IN, &[0, 0, 0, 2]);
        let in_a_row = message(b'D', &clear);
        for (name, bytes, encrypted, allowed) in [
            ("rows", row.repeat(3), false, true),
            (
                "a row as long as it may be",
                message(b'D', &[0; 59]),
                false,
                true,
            ),
            (
                "a row that is too long",
                message(b'D', &[0; 60]),
                false,
                false,
            ),
            (
                "no protocol of ours",
                b"SSH-2.0-OpenSSH".to_vec(),
                false,
                false,
            ),
            ("let in", [ok.clone(), row.clone()].concat(), false, true),
            ("a password in clear", clear.clone(), false, false),
            ("the same, encrypted", clear.clone(), true, true),
            ("behind another", [ok, clear].concat(), false, false),
            ("a method that is not supported", kerberos, true, false),
            ("within a row", in_a_row, false, true),
            (
                "a length below its own",
                b"D\0\0\0\x01".to_vec(),
                false,
                true,
            ),
        ] {
            for piece in 1..=bytes.len() {
                let mut watch = Watch::new(64, encrypted);
                let mut pieces = bytes.chunks(piece);
                let seen = pieces.try_for_each(|piece| watch.see(piece));
                assert_eq!(seen.is_ok(), allowed, "{name}, {piece} bytes at a time");
            }
        }
    }
}
