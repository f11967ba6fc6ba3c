//! The password: in no error, no log line and no debug output, whatever happens.

use std::io::Write;
use std::sync::{Arc, Mutex};

use lynqgate::datasource::database::{Settings, Tls};
use tracing_subscriber::fmt::MakeWriter;

use crate::cluster::database::Product;
use crate::datasource::{columns, read, settings, source, start};

on_each_product!(the_password_is_shown_nowhere);

const CANARY: &str = "canary-pa55word";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

async fn the_password_is_shown_nowhere(product: Product) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    let database = start(product).await;
    let mary = database.create("canary").await.expect("a database");
    let password = match product {
        Product::Mariadb => format!(
            "SET PASSWORD FOR '{}'@'%' = PASSWORD('{CANARY}')",
            mary.username
        ),
        Product::Postgresql => format!("ALTER ROLE {} PASSWORD '{CANARY}'", mary.username),
    };
    let hide = match product {
        Product::Mariadb => "SELECT 1".to_owned(),
        Product::Postgresql => format!("REVOKE ALL ON hidden FROM {}", mary.username),
    };
    for statement in [
        "CREATE TABLE t (uid INT, activate INT)",
        "CREATE TABLE hidden (uid INT, activate INT)",
        &hide,
        &password,
    ] {
        mary.execute(statement).await.expect(statement);
    }
    let right = Settings {
        user: mary.username,
        password: CANARY.to_owned().into(),
        ..settings(&database, &mary.database, "t")
    };
    let mut shown = Vec::new();
    let kept = source(product, right.clone());
    read(&kept, &columns(&[]))
        .await
        .expect("the right password");
    shown.push(format!("{kept:?} {right:?}"));

    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = right.clone();
        change(&mut settings);
        settings
    };
    let forbidden = match product {
        Product::Mariadb => "mysql.user",
        Product::Postgresql => "hidden",
    };
    let cases = [
        (
            "AccessDenied",
            with(&|it| it.password = format!("{CANARY}-wrong").into()),
        ),
        ("AccessDenied", with(&|it| it.user = "paul".into())),
        ("NotAllowed", with(&|it| it.table = forbidden.into())),
        ("TableMissing", with(&|it| it.table = "tt".into())),
        ("InvalidName", with(&|it| it.table = "a.b.c".into())),
        ("Unreachable", with(&|it| it.port = 1)),
        (
            "Unreachable",
            with(&|it| it.host = "no-such-host.invalid".into()),
        ),
        (
            "TlsFailed",
            with(&|it| it.tls = Tls::Required { ca_pem: None }),
        ),
    ];
    for (code, settings) in cases {
        let source = source(product, settings);
        let error = read(&source, &columns(&[])).await.expect_err(code);
        assert_eq!(error.code(), code);
        shown.push(format!("{error} {error:?} {source:?}"));
    }
    database.crash().expect("an end");
    let error = read(&kept, &columns(&[])).await.expect_err("no server");
    shown.push(format!("{error} {error:?}"));

    tracing::debug!("logging works");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("logging works"), "{log}");
    shown.push(log);
    for text in shown {
        assert!(!text.contains(CANARY), "{text}");
    }
}
