//! TLS: required and trusted, required and not trusted, required and not there.

use lynqgate::datasource::database::Tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::cluster::database::{Database, Options, Product};
use crate::datasource::{columns, create, read, settings, shared, source, start_with};

on_each_product!(
    a_trusted_server_is_read_encrypted,
    refusals,
    a_server_that_insists_is_not_read_in_clear,
);

pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with a certificate for 127.0.0.1, and its authority.
pub async fn server(product: Product, insists_on_tls: bool) -> (Database, Authority) {
    let authority = authority("ours");
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let options = Options {
        tls: Some((certificate.pem(), key.serialize_pem())),
        insists_on_tls,
        ..Options::default()
    };
    (start_with(product, &options).await, authority)
}

pub fn required(pem: &str) -> Tls {
    Tls::Required {
        ca_pem: Some(pem.as_bytes().to_vec()),
    }
}

async fn a_trusted_server_is_read_encrypted(product: Product) {
    let (database, authority) = server(product, false).await;
    let version = match product {
        Product::Mariadb => {
            "variable_value uid FROM information_schema.session_status WHERE variable_name = 'Ssl_version'"
        }
        Product::Postgresql => {
            "COALESCE(version, '') uid FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        }
    };
    let statements = [format!("CREATE VIEW v AS SELECT 1 activate, {version}")];
    create(&database, "encrypted", &statements).await;
    let mut settings = settings(&database, "encrypted", "v");
    settings.tls = required(&authority.pem());
    let rows = read(&source(product, settings.clone()), &columns(&[])).await;
    assert_eq!(rows.expect("rows")[0][0].as_deref(), Some("TLSv1.3"));
    settings.tls = Tls::Disabled;
    let rows = read(&source(product, settings), &columns(&[])).await;
    assert_eq!(
        rows.expect("rows")[0][0].as_deref(),
        Some(""),
        "for comparison"
    );
}

async fn refusals(product: Product) {
    let (database, authority) = server(product, false).await;
    let plain = shared(product).await;
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
            "its certificate is not valid for this host name; use a name that it contains, or set tls.mode to verifyCa, which checks \
             the authority alone",
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
        let mut settings = settings(database, "any", "t");
        settings.host = (*host).into();
        settings.tls = tls.clone();
        let expected = format!(
            "no TLS with the database at {host}:{}: {cause}",
            settings.port
        );
        let error = read(&source(product, settings), &columns(&[]))
            .await
            .expect_err(name);
        assert_eq!(error.to_string(), expected, "{name}");
    }
}

async fn a_server_that_insists_is_not_read_in_clear(product: Product) {
    let (database, authority) = server(product, true).await;
    create(
        &database,
        "insists",
        &["CREATE TABLE t (uid INT, activate INT)"],
    )
    .await;
    let mut settings = settings(&database, "insists", "t");
    let error = read(&source(product, settings.clone()), &columns(&[])).await;
    let hint = match product {
        Product::Mariadb => "whether it must use TLS (tls is disabled here)",
        Product::Postgresql => {
            "that the server's pg_hba.conf lets it in from here by a password and without TLS (tls is disabled here)"
        }
    };
    assert_eq!(
        error.expect_err("an unencrypted connection").to_string(),
        format!(
            "the database denies user \"reader\" access; check the user name and the Secret with the password, and {hint}"
        )
    );
    settings.tls = required(&authority.pem());
    assert_eq!(
        read(&source(product, settings), &columns(&[])).await,
        Ok(vec![])
    );
}
