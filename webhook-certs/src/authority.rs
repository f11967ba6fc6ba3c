//! Authorities and the certificates that they issue: made, written as Secret data, and read back.
//! It must not decide when anything is issued or replaced, and no error or debug output of it shows a key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
};
use rcgen::{IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use thiserror::Error;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::lifetimes::Validity;
use crate::plan::{CaFacts, CaId, CaSet, LeafFacts};

/// Every entry of the Secret that belongs to this crate; others are left alone. A retired authority signs
/// nothing, so that its key is not kept.
const SECRET_KEYS: [&str; 5] = [ACTIVE_CRT, ACTIVE_KEY, NEXT_CRT, NEXT_KEY, RETIRED_CRT];
const ACTIVE_CRT: &str = "active.crt";
const ACTIVE_KEY: &str = "active.key";
const NEXT_CRT: &str = "next.crt";
const NEXT_KEY: &str = "next.key";
const RETIRED_CRT: &str = "retired.crt";

/// An authority as it stands in the Secret.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) facts: CaFacts,
    der: CertificateDer<'static>,
    pem: String,
    key: Option<Arc<KeyPair>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

/// A serving certificate with its key, which exists in memory only.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) facts: LeafFacts,
    pub(crate) certified_key: Arc<CertifiedKey>,
}

/// The names that a serving certificate is for.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) dns: Vec<String>,
    pub(crate) ip: Vec<IpAddr>,
}

/// What the Secret holds cannot be used. The messages name the entry, never its content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum SetError {
    #[error("data `{0}` is missing, but other entries of the set are there")]
    Missing(&'static str),
    #[error("data `{0}` is not exactly one PEM certificate")]
    NotACertificate(&'static str),
    #[error("data `{0}` is a certificate that may not sign others")]
    NotAnAuthority(&'static str),
    #[error("data `{0}` is not a PEM private key")]
    NotAKey(&'static str),
    #[error("data `{key}` is not the key of `{crt}`")]
    KeyOfAnother {
        key: &'static str,
        crt: &'static str,
    },
}

/// A certificate could not be made.
#[derive(Debug, Error)]
pub(crate) enum IssueError {
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    #[error("cannot use the certificate just made: {0}")]
    Use(#[from] rustls::Error),
    #[error("cannot make a certificate: the time {0} does not fit into one")]
    Time(Timestamp),
    #[error("cannot make a certificate: the key of the authority {0} is not kept any more")]
    NoKey(CaId),
    #[error("the authority just made cannot be read back: {0}")]
    ReadBack(#[from] SetError),
}

impl Authority {
    /// A new self-signed authority that may sign serving certificates and nothing else.
    pub(crate) fn issue(validity: Validity) -> Result<Self, IssueError> {
        let key = KeyPair::generate()?;
        let mut params = params_for(validity)?;
        // A name of its own: some clients try only one of several authorities with the same name.
        let name = format!(
            "webhook-certs {}",
            CaId(Sha256::digest(key.der_bytes()).into())
        );
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let pem = params.self_signed(&key)?.pem();
        Ok(Self::parse(ACTIVE_CRT, pem.as_bytes())?.with_key(ACTIVE_CRT, ACTIVE_KEY, key)?)
    }

    /// A serving certificate with a key of its own.
    pub(crate) fn mint_leaf(&self, names: &Names, validity: Validity) -> Result<Leaf, IssueError> {
        let ca_key = self
            .key
            .as_deref()
            .ok_or(IssueError::NoKey(self.facts.id))?;
        let issuer = Issuer::from_ca_cert_der(&self.der, ca_key)?;
        let key = KeyPair::generate()?;
        let mut params = params_for(validity)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "webhook-certs server");
        params.subject_alt_names = names.subject_alt_names()?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &issuer)?;
        let signing_key = any_supported_type(&PrivatePkcs8KeyDer::from(key).into())?;
        let certified_key = CertifiedKey::new(vec![certificate.into()], signing_key);
        certified_key.keys_match()?;
        let validity = Validity {
            not_before: seconds(validity.not_before),
            not_after: seconds(validity.not_after),
        };
        Ok(Leaf {
            facts: LeafFacts {
                ca: self.facts.id,
                validity,
            },
            certified_key: Arc::new(certified_key),
        })
    }

    fn parse(entry: &'static str, pem: &[u8]) -> Result<Self, SetError> {
        let not_a_certificate = || SetError::NotACertificate(entry);
        let text = str::from_utf8(pem).map_err(|_| not_a_certificate())?;
        let [der] = certificates(pem)
            .try_into()
            .map_err(|_| not_a_certificate())?;
        let facts = {
            let (rest, x509) = X509Certificate::from_der(&der).map_err(|_| not_a_certificate())?;
            let time = |at: i64| Timestamp::from_second(at).map_err(|_| not_a_certificate());
            let validity = Validity {
                not_before: time(x509.validity().not_before.timestamp())?,
                not_after: time(x509.validity().not_after.timestamp())?,
            };
            let may_sign = x509
                .key_usage()
                .ok()
                .flatten()
                .is_none_or(|usage| usage.value.key_cert_sign());
            if !rest.is_empty() {
                return Err(not_a_certificate());
            }
            if !x509.is_ca() || !may_sign {
                return Err(SetError::NotAnAuthority(entry));
            }
            CaFacts {
                id: ca_id(&der),
                validity,
            }
        };
        Ok(Self {
            facts,
            der,
            pem: format!("{}\n", text.trim()),
            key: None,
        })
    }

    fn with_key(
        self,
        crt: &'static str,
        entry: &'static str,
        key: KeyPair,
    ) -> Result<Self, SetError> {
        let (_, x509) =
            X509Certificate::from_der(&self.der).map_err(|_| SetError::NotACertificate(crt))?;
        if x509.public_key().raw != key.subject_public_key_info() {
            return Err(SetError::KeyOfAnother { key: entry, crt });
        }
        Ok(Self {
            key: Some(Arc::new(key)),
            ..self
        })
    }
}

impl Names {
    fn subject_alt_names(&self) -> Result<Vec<SanType>, rcgen::Error> {
        let dns = self
            .dns
            .iter()
            .map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
        let ip = self
            .ip
            .iter()
            .map(|address| Ok(SanType::IpAddress(*address)));
        dns.chain(ip).collect()
    }
}

impl CaSet<Authority> {
    /// Reads the entries of a Secret. `None`: it has none of ours.
    pub(crate) fn from_secret_data(
        data: &BTreeMap<String, ByteString>,
    ) -> Result<Option<Self>, SetError> {
        if !SECRET_KEYS.iter().any(|entry| data.contains_key(*entry)) {
            return Ok(None);
        }
        let active =
            signing_pair(data, ACTIVE_CRT, ACTIVE_KEY)?.ok_or(SetError::Missing(ACTIVE_CRT))?;
        let next = signing_pair(data, NEXT_CRT, NEXT_KEY)?;
        let retired = data
            .get(RETIRED_CRT)
            .map(|pem| Authority::parse(RETIRED_CRT, &pem.0))
            .transpose()?;
        Ok(Some(Self {
            active,
            next,
            retired,
        }))
    }

    /// Replaces this crate's entries in a Secret's data by this set.
    pub(crate) fn write_secret_data(&self, data: &mut BTreeMap<String, ByteString>) {
        for entry in SECRET_KEYS {
            data.remove(entry);
        }
        let mut put = |entry: &str, text: String| {
            data.insert(entry.to_owned(), ByteString(text.into_bytes()));
        };
        put(ACTIVE_CRT, self.active.pem.clone());
        if let Some(key) = &self.active.key {
            put(ACTIVE_KEY, key.serialize_pem());
        }
        if let Some(next) = &self.next {
            put(NEXT_CRT, next.pem.clone());
            if let Some(key) = &next.key {
                put(NEXT_KEY, key.serialize_pem());
            }
        }
        if let Some(retired) = &self.retired {
            put(RETIRED_CRT, retired.pem.clone());
        }
    }

    /// All certificates as one PEM text, the same bytes on every replica.
    pub(crate) fn bundle(&self) -> Vec<u8> {
        self.iter()
            .map(|authority| authority.pem.as_str())
            .collect::<String>()
            .into_bytes()
    }

    pub(crate) fn facts(&self) -> CaSet<CaFacts> {
        CaSet {
            active: self.active.facts,
            next: self.next.as_ref().map(|next| next.facts),
            retired: self.retired.as_ref().map(|retired| retired.facts),
        }
    }
}

/// The authorities in a caBundle. An invalid bundle counts as empty, so that it is replaced.
pub(crate) fn bundle_ids(bundle: &[u8]) -> BTreeSet<CaId> {
    certificates(bundle).iter().map(ca_id).collect()
}

fn signing_pair(
    data: &BTreeMap<String, ByteString>,
    crt: &'static str,
    key: &'static str,
) -> Result<Option<Authority>, SetError> {
    let (pem, key_pem) = match (data.get(crt), data.get(key)) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(SetError::Missing(crt)),
        (Some(_), None) => return Err(SetError::Missing(key)),
        (Some(pem), Some(key_pem)) => (&pem.0, &key_pem.0),
    };
    let text = str::from_utf8(key_pem).map_err(|_| SetError::NotAKey(key))?;
    let key_pair = KeyPair::from_pem(text).map_err(|_| SetError::NotAKey(key))?;
    Authority::parse(crt, pem)?
        .with_key(crt, key, key_pair)
        .map(Some)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .unwrap_or_default()
}

fn ca_id(der: &CertificateDer<'_>) -> CaId {
    CaId(Sha256::digest(der).into())
}

fn params_for(validity: Validity) -> Result<CertificateParams, IssueError> {
    let time = |at: Timestamp| {
        OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|_| IssueError::Time(at))
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = time(validity.not_before)?;
    params.not_after = time(validity.not_after)?;
    Ok(params)
}

/// Certificates know no fractions of a second.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
