//! TLS: required and trusted, required and not trusted, required and not there.

use std::fs;

use lynqgate::datasource::mysql::Tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::datasource::database::Database;
use crate::datasource::{columns, read, settings, source};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with a certificate for 127.0.0.1, and its authority.
fn server(arguments: &[&str]) -> (Database, Authority) {
    let authority = authority("ours");
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name).display().to_string();
    fs::write(path("cert"), certificate.pem()).unwrap();
    fs::write(path("key"), key.serialize_pem()).unwrap();
    let tls = [
        format!("--ssl-cert={}", path("cert")),
        format!("--ssl-key={}", path("key")),
    ];
    let arguments: Vec<&str> = (tls.iter().map(String::as_str))
        .chain(arguments.iter().copied())
        .collect();
    (Database::start(&arguments), authority)
}

fn required(pem: &str) -> Tls {
    Tls::Required {
        ca_pem: Some(pem.as_bytes().to_vec()),
    }
}

#[tokio::test]
async fn a_trusted_server_is_read_encrypted() {
    let (database, authority) = server(&[]);
    let statements = ["CREATE VIEW v AS SELECT variable_value uid, 1 activate \
        FROM information_schema.session_status WHERE variable_name = 'Ssl_version'"];
    database.schema("encrypted", &statements).await;
    let mut settings = settings(&database, "encrypted", "v");
    settings.tls = required(&authority.pem());
    let rows = read(&source(settings.clone()), &columns(&[])).await;
    assert_eq!(rows.expect("rows")[0][0].as_deref(), Some("TLSv1.3"));
    settings.tls = Tls::Disabled;
    let rows = read(&source(settings), &columns(&[])).await;
    assert_eq!(
        rows.expect("rows")[0][0].as_deref(),
        Some(""),
        "for comparison"
    );
}

#[tokio::test]
async fn refusals() {
    let (database, authority) = server(&[]);
    let plain = Database::shared();
    let own = required(&authority.pem());
    let untrusted = "its certificate is not issued by a trusted authority; check the Secret with the authority's \
        certificate";
    let unusable = "the Secret with the authority's certificate holds no valid PEM certificate";
    let damaged = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    type Case<'a> = (&'a str, &'a Database, &'a str, Tls, &'a str);
    let cases: &[Case] = &[
        (
            "another authority of the same name",
            &database,
            "127.0.0.1",
            required(&self::authority("ours").pem()),
            untrusted,
        ),
        (
            "another authority",
            &database,
            "127.0.0.1",
            required(&self::authority("theirs").pem()),
            untrusted,
        ),
        (
            "the web's authorities",
            &database,
            "127.0.0.1",
            Tls::Required { ca_pem: None },
            untrusted,
        ),
        (
            "another name",
            &database,
            "localhost",
            own.clone(),
            "its certificate is not valid for this host name; use a name that it contains",
        ),
        (
            "no authority",
            &database,
            "127.0.0.1",
            required(""),
            unusable,
        ),
        ("no PEM", &database, "127.0.0.1", required("CA"), unusable),
        (
            "damaged PEM",
            &database,
            "127.0.0.1",
            required(damaged),
            unusable,
        ),
        (
            "a server without TLS",
            plain,
            "127.0.0.1",
            own.clone(),
            "the server does not offer it; enable it there, or set tls.mode to disabled",
        ),
    ];
    for (name, database, host, tls, cause) in cases {
        let mut settings = settings(database, "mysql", "user");
        settings.host = (*host).into();
        settings.tls = tls.clone();
        let expected = format!(
            "no TLS with the database at {host}:{}: {cause}",
            settings.port
        );
        let error = read(&source(settings), &columns(&[]))
            .await
            .expect_err(name);
        assert_eq!(error.to_string(), expected, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_insists_is_not_read_in_clear() {
    let (database, _) = server(&[]);
    database
        .query("SET GLOBAL require_secure_transport = ON")
        .await;
    let error = read(&source(settings(&database, "mysql", "user")), &columns(&[])).await;
    assert_eq!(
        error.expect_err("an unencrypted connection").to_string(),
        "the database denies user \"root\" access; check the user name and the Secret with the password, and whether it \
         must use TLS (tls is disabled here)"
    );
}
