//! The password: in no error, no log line and no debug output, whatever happens.

use std::io::Write;
use std::sync::{Arc, Mutex};

use lynqgate::datasource::mysql::{Settings, Tls};
use tracing_subscriber::fmt::MakeWriter;

use crate::datasource::database::Database;
use crate::datasource::{columns, read, settings, source};

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

#[tokio::test]
async fn the_password_is_shown_nowhere() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    let mut database = Database::start(&[]);
    let user = format!("CREATE USER 'mary'@'localhost' IDENTIFIED BY '{CANARY}'");
    let statements = [
        "CREATE TABLE t (uid INT, activate INT)",
        &user,
        "GRANT SELECT ON canary.* TO 'mary'@'localhost'",
    ];
    database.schema("canary", &statements).await;
    let right = Settings {
        user: "mary".into(),
        password: CANARY.to_owned().into(),
        ..settings(&database, "canary", "t")
    };
    let mut shown = Vec::new();
    let kept = source(right.clone());
    read(&kept, &columns(&[]))
        .await
        .expect("the right password");
    shown.push(format!("{kept:?} {right:?}"));

    let with = |change: fn(&mut Settings)| {
        let mut settings = right.clone();
        change(&mut settings);
        settings
    };
    let cases = [
        (
            "AccessDenied",
            with(|it| it.password = format!("{CANARY}-wrong").into()),
        ),
        ("AccessDenied", with(|it| it.user = "paul".into())),
        ("NotAllowed", with(|it| it.database = "mysql".into())),
        ("TableMissing", with(|it| it.table = "tt".into())),
        ("InvalidName", with(|it| it.table = "a.b.c".into())),
        ("Unreachable", with(|it| it.port = 1)),
        (
            "Unreachable",
            with(|it| it.host = "no-such-host.invalid".into()),
        ),
        (
            "TlsFailed",
            with(|it| it.tls = Tls::Required { ca_pem: None }),
        ),
    ];
    for (code, settings) in cases {
        let source = source(settings);
        let error = read(&source, &columns(&[])).await.expect_err(code);
        assert_eq!(error.code(), code);
        shown.push(format!("{error} {error:?} {source:?}"));
    }
    database.kill();
    let error = read(&kept, &columns(&[])).await.expect_err("no server");
    shown.push(format!("{error} {error:?}"));

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        log.contains("kept database connection is dead"),
        "logging works: {log}"
    );
    shown.push(log);
    for text in shown {
        assert!(!text.contains(CANARY), "{text}");
    }
}
