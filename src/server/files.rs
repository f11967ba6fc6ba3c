//! A certificate that somebody else keeps in two files, as cert-manager's mounted Secrets are: read anew when they change.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::cluster::vital::Mutex;

#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct Unreadable {
    file: PathBuf,
    reason: String,
}

#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    loaded: Mutex<Loaded>,
}

/// When a file was changed: seconds and nanoseconds.
type Changed = (i64, i64);

struct Loaded {
    at: Option<Changed>,
    certified: Arc<CertifiedKey>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("at", &self.at).finish()
    }
}

pub fn server_config(certificate: PathBuf, key: PathBuf) -> Result<Arc<ServerConfig>, Unreadable> {
    let loaded = Mutex::new(load(&certificate, &key)?);
    let files = Files {
        certificate,
        key,
        loaded,
    };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(files));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn load(certificate: &Path, key: &Path) -> Result<Loaded, Unreadable> {
    let unreadable = |file: &Path, reason: String| Unreadable {
        file: file.to_owned(),
        reason,
    };
    // Taken first: what is written while the files are read is read again.
    let at = changed_at(certificate);
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, error.to_string()))?;
    let signer = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable(key, error.to_string()))
        .and_then(|key_| {
            any_supported_type(&key_).map_err(|error| unreadable(key, error.to_string()))
        })?;
    let certified = CertifiedKey::new(chain, signer);
    certified
        .keys_match()
        .map_err(|error| unreadable(key, error.to_string()))?;
    Ok(Loaded {
        at,
        certified: Arc::new(certified),
    })
}

fn changed_at(file: &Path) -> Option<Changed> {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec()))
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut loaded = self.loaded.lock();
        if changed_at(&self.certificate) != loaded.at {
            match load(&self.certificate, &self.key) {
                Ok(newer) => *loaded = newer,
                // One of the two may not be written yet; what was read before serves on.
                Err(error) => tracing::warn!(%error, "a renewed certificate cannot be read"),
            }
        }
        Some(loaded.certified.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path) -> Vec<u8> {
        let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join("tls.crt"), identity.cert.pem()).unwrap();
        std::fs::write(
            directory.join("tls.key"),
            identity.signing_key.serialize_pem(),
        )
        .unwrap();
        identity.cert.der().to_vec()
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (certificate, key) = (
            directory.path().join("tls.crt"),
            directory.path().join("tls.key"),
        );
        let said =
            |certificate: &Path, key: &Path| load(certificate, key).err().unwrap().to_string();
        assert!(said(&certificate, &key).contains("tls.crt: "));
        let first = write(directory.path());
        let loaded = load(&certificate, &key).ok().unwrap();
        assert_eq!(loaded.certified.cert[0].to_vec(), first);
        std::fs::write(&key, "nothing").unwrap();
        assert!(said(&certificate, &key).contains("tls.key: "));
        write(directory.path());
        let of_another = rcgen::KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(&key, of_another).unwrap();
        assert!(said(&certificate, &key).contains("tls.key: "));
    }
}
