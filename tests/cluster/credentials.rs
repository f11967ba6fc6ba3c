//! The certificate authority of one test cluster, and kubeconfig files. Speaks to no server.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use serde_json::{Value, json};

/// Who a client is to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A client certificate. Of the group `system:masters` it may do everything, past RBAC.
    User { name: String, group: Option<String> },
    /// A token of a service account that exists.
    ServiceAccount { namespace: String, name: String },
}

impl Identity {
    pub fn user(name: &str, group: Option<&str>) -> Identity {
        Identity::User {
            name: name.to_owned(),
            group: group.map(str::to_owned),
        }
    }

    pub fn service_account(namespace: &str, name: &str) -> Identity {
        Identity::ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The user name that the API server sees.
    pub fn username(&self) -> String {
        match self {
            Identity::User { name, .. } => name.clone(),
            Identity::ServiceAccount { namespace, name } => {
                format!("system:serviceaccount:{namespace}:{name}")
            }
        }
    }
}

/// The files of the cluster's certificate authority, and the authority itself, to issue more.
pub struct Credentials {
    directory: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
    issued: AtomicU32,
}

impl Credentials {
    /// Makes the authority, the certificate of the API server and the key that signs service account tokens.
    pub fn create(directory: &Path, service_address: &str) -> Result<Credentials> {
        fs::create_dir_all(directory)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(DnType::CommonName, "lynqgate test cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let credentials = Credentials {
            directory: directory.to_owned(),
            authority,
            issued: AtomicU32::new(0),
        };
        credentials.write("ca.crt", &credentials.authority.pem())?;

        let names = [
            "127.0.0.1",
            service_address,
            "localhost",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(str::to_owned))?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = credentials.issue(params)?;
        credentials.write("apiserver.crt", &certificate)?;
        credentials.write("apiserver.key", &key)?;

        let tokens = KeyPair::generate()?;
        credentials.write("service-account.key", &tokens.serialize_pem())?;
        credentials.write("service-account.pub", &tokens.public_key_pem())?;
        Ok(credentials)
    }

    /// The path of a file made by [`Credentials::create`].
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Issues a client certificate and writes a kubeconfig with it.
    pub fn certificate_kubeconfig(
        &self,
        server: &str,
        name: &str,
        group: Option<&str>,
    ) -> Result<PathBuf> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.issue(params)?;
        let file = self.new_file_name(name);
        let certificate = self.write(&format!("{file}.crt"), &certificate)?;
        let key = self.write(&format!("{file}.key"), &key)?;
        self.kubeconfig(
            server,
            name,
            &json!({ "client-certificate": certificate, "client-key": key }),
        )
    }

    /// Writes a kubeconfig (JSON, which every reader of YAML takes) for a service account's token.
    pub fn token_kubeconfig(&self, server: &str, name: &str, token: &str) -> Result<PathBuf> {
        self.kubeconfig(server, name, &json!({ "token": token }))
    }

    fn kubeconfig(&self, server: &str, name: &str, user: &Value) -> Result<PathBuf> {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "test",
                "cluster": { "server": server, "certificate-authority": self.file("ca.crt") },
            }],
            "users": [{ "name": name, "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": name } }],
            "current-context": "test",
        });
        let text = serde_json::to_string_pretty(&kubeconfig)?;
        self.write(&format!("{}.kubeconfig", self.new_file_name(name)), &text)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.authority)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.file(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Never the same name twice: tests side by side may ask for the same user, and a file once handed out must not
    /// change under its reader.
    fn new_file_name(&self, user: &str) -> String {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        let user = user.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        format!("{user}-{number}")
    }
}
