//! Gives rustls the certificate for each handshake. It must not select or issue one: it serves the last one that it got, so that
//! a replacement needs no restart and affects no open connection.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{Error, ServerConfig};

use crate::authority::Leaf;
use crate::plan::LeafFacts;

/// The certificate being served. Empty until the first one was made: handshakes fail until then.
#[derive(Debug, Default)]
pub(crate) struct LeafResolver {
    leaf: ArcSwapOption<Leaf>,
}

impl LeafResolver {
    pub(crate) fn serve(&self, leaf: Leaf) {
        self.leaf.store(Some(Arc::new(leaf)));
    }

    pub(crate) fn facts(&self) -> Option<LeafFacts> {
        self.leaf.load().as_ref().map(|leaf| leaf.facts)
    }
}

impl ResolvesServerCert for LeafResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Ignore the server name: API servers that call a webhook by IP address send none.
        self.leaf
            .load()
            .as_ref()
            .map(|leaf| leaf.certified_key.clone())
    }
}

/// The configuration that serves from `resolver` for as long as the process lives.
pub(crate) fn server_config(resolver: Arc<LeafResolver>) -> Result<ServerConfig, Error> {
    // The provider is named, so that it does not matter which one the process has installed, or whether.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    // API servers speak nothing else to webhooks.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would go on with a certificate that was replaced, and API servers resume none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

#[cfg(test)]
mod tests;
