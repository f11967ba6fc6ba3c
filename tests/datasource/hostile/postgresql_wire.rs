//! A PostgreSQL server that is none: what it asks for, and what it gets.

use lynqgate::datasource::SourceError;
use lynqgate::datasource::database::{Settings, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::cluster::database::Product;
use crate::datasource::{columns, read, settings, shared, source};

const CANARY: &str = "canary-pa55word\x1b[2J";

/// Answers each flight of the client's messages with one reply: the log-in, BEGIN, the description, the query, COMMIT.
/// Gives all that the client sent.
async fn fake(replies: Vec<Vec<u8>>) -> (Settings, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(shared(Product::Postgresql).await, "fake", "t");
    settings.port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        for (number, reply) in replies.iter().enumerate() {
            if flight(&mut client, &mut received, number == 0)
                .await
                .is_err()
            {
                return received;
            }
            client.write_all(reply).await.unwrap();
        }
        let _ = client.read_to_end(&mut received).await;
        received
    });
    (settings, server)
}

/// Up to a message after which the client waits. The first of a connection has no kind.
async fn flight(
    client: &mut TcpStream,
    received: &mut Vec<u8>,
    first: bool,
) -> std::io::Result<()> {
    loop {
        let kind = if first { b'Q' } else { client.read_u8().await? };
        let length = client.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await?;
        received.extend(body);
        if b"QSp".contains(&kind) {
            return Ok(());
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind], &length[..], body].concat()
}

fn log_in(method: u32, more: &[u8]) -> Vec<u8> {
    message(b'R', &[&method.to_be_bytes(), more].concat())
}

fn idle() -> Vec<u8> {
    message(b'Z', b"I")
}

fn let_in() -> Vec<u8> {
    [log_in(0, b""), idle()].concat()
}

fn done(tag: &str) -> Vec<u8> {
    [message(b'C', format!("{tag}\0").as_bytes()), idle()].concat()
}

fn error(code: &str, words: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{words}\0D{words}\0H{words}\0\0");
    message(b'E', fields.as_bytes())
}

/// Columns of type text.
fn described(columns: &[&str]) -> Vec<u8> {
    let mut body = (columns.len() as u16).to_be_bytes().to_vec();
    for column in columns {
        body.extend(column.as_bytes());
        // No table, no column, text, any length, no modifier, binary.
        body.extend(b"\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\x01");
    }
    [message(b't', &[0, 0]), message(b'T', &body)].concat()
}

fn description(columns: &[&str]) -> Vec<u8> {
    [message(b'1', b""), described(columns), idle()].concat()
}

fn row(values: &[&str]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend((value.len() as u32).to_be_bytes());
        body.extend(value.as_bytes());
    }
    message(b'D', &body)
}

fn result(messages: &[Vec<u8>]) -> Vec<u8> {
    let begun = [
        message(b'1', b""),
        message(b'2', b""),
        described(&["uid", "activate"]),
    ];
    [begun.concat(), messages.concat()].concat()
}

/// What a session of ours reads back.
const SESSION: [&str; 9] = [
    "UTF8",
    "ISO, MDY",
    "postgres",
    "UTC",
    "3",
    "hex",
    "C",
    "repeatable read",
    "on",
];

fn begun(session: [&str; 9]) -> Vec<u8> {
    let mut columns = (session.len() as u16).to_be_bytes().to_vec();
    for _ in session {
        columns.extend(b"s\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
    }
    let begun = message(b'C', b"BEGIN\0");
    [
        begun,
        message(b'T', &columns),
        row(&session),
        done("SELECT 1"),
    ]
    .concat()
}

/// A connection on which the query gets this.
fn replies(result: Vec<u8>) -> Vec<Vec<u8>> {
    vec![
        let_in(),
        begun(SESSION),
        description(&["uid", "activate"]),
        result,
        // Of the statement that was described.
        [message(b'3', b""), idle()].concat(),
        done("COMMIT"),
    ]
}

async fn outcome(settings: Settings) -> Result<Vec<Vec<Option<String>>>, SourceError> {
    read(&source(Product::Postgresql, settings), &columns(&[])).await
}

#[tokio::test]
async fn the_fake_server_can_be_honest() {
    let good = result(&[row(&["acme", "1"]), done("SELECT 1")]);
    let (settings, server) = fake(replies(good)).await;
    let expected = ["acme", "1"].map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(outcome(settings).await, Ok(vec![expected]));
    let sent = String::from_utf8_lossy(&server.await.unwrap()).into_owned();
    for statement in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;",
        "SELECT \"uid\", \"activate\" FROM \"t\"\0",
        "SELECT \"uid\"::text, \"activate\"::text FROM \"t\"\0",
        "COMMIT\0",
    ] {
        assert!(sent.contains(statement), "{statement}: {sent}");
    }
}

#[tokio::test]
async fn a_password_is_given_to_known_methods_only() {
    let in_clear = "a password in clear (password, ldap, radius or pam in pg_hba.conf) without TLS (tls is disabled here)";
    for (name, asked, method) in [
        ("in clear", log_in(3, b""), in_clear),
        ("Kerberos", log_in(2, b""), "Kerberos"),
        ("GSS", log_in(7, b""), "GSSAPI"),
        ("SSPI", log_in(9, b""), "SSPI"),
        (
            "an unknown SASL",
            log_in(10, b"PLAIN\0\0"),
            "a method that is not known",
        ),
    ] {
        let (mut settings, server) = fake(vec![asked, let_in()]).await;
        settings.password = CANARY.to_owned().into();
        let error = outcome(settings).await.unwrap_err();
        assert_eq!(error.code(), "AuthUnsupported", "{name}: {error}");
        assert_eq!(
            error.to_string(),
            format!(
                "the database authenticates user \"reader\" by {method}, which is not supported here; give the user a password, with \
                 scram-sha-256 in the server's pg_hba.conf"
            ),
            "{name}"
        );
        let sent = String::from_utf8_lossy(&server.await.unwrap()).into_owned();
        assert!(
            sent.contains("reader"),
            "{name}: a log-in was tried: {sent}"
        );
        assert!(!sent.contains("canary"), "{name}: {sent}");
    }
}

#[tokio::test]
async fn rows_of_a_session_that_is_not_ours_are_not_read() {
    for (place, other, setting) in [
        (0, "SQL_ASCII", "client_encoding"),
        (3, "Asia/Kolkata", "timezone"),
        (7, "read committed", "transaction_isolation"),
    ] {
        let mut session = SESSION;
        session[place] = other;
        let (settings, _server) = fake(vec![let_in(), begun(session)]).await;
        let said = format!(
            "the database does not give a session the {setting} that lynqgate sets, so that its rows could be read wrongly; check \
             init_connect, and proxies in between"
        );
        assert_eq!(outcome(settings).await.unwrap_err().to_string(), said);
    }
}

#[tokio::test]
async fn a_server_that_does_not_prove_to_know_the_password() {
    let asked = || log_in(10, b"SCRAM-SHA-256\0\0");
    for (name, answer, cause) in [
        ("let in at once", let_in(), "a message out of place"),
        (
            "another client's nonce",
            log_in(11, b"r=nonce,s=c2FsdA==,i=4096"),
            "its part of the log-in does not fit the password",
        ),
        (
            "work without end",
            log_in(11, b"r=nonce,s=c2FsdA==,i=2000000000"),
            "its part of the log-in does not fit the password",
        ),
    ] {
        let (mut settings, _server) = fake(vec![asked(), answer]).await;
        settings.password = CANARY.to_owned().into();
        let expected = SourceError::Protocol {
            host: settings.host.clone(),
            port: settings.port,
            cause,
        };
        assert_eq!(outcome(settings).await, Err(expected), "{name}");
    }
}

#[tokio::test]
async fn a_host_that_no_certificate_can_be_for() {
    let mut settings = settings(shared(Product::Postgresql).await, "fake", "t");
    settings.host = "no name".into();
    settings.tls = Tls::Required { ca_pem: None };
    let expected = SourceError::Tls {
        host: settings.host.clone(),
        port: settings.port,
        cause: "the host is neither a DNS name nor an address",
    };
    assert_eq!(outcome(settings).await, Err(expected));
}

#[tokio::test]
async fn answers_to_whether_it_offers_tls() {
    for (name, answer, code) in [
        ("an error", error("0A000", CANARY), "Protocol"),
        ("yes, and then none", b"S0123456789".to_vec(), "TlsFailed"),
    ] {
        let (mut settings, _server) = fake(vec![answer]).await;
        settings.tls = Tls::Required { ca_pem: None };
        let error = outcome(settings).await.unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
    }
}

#[tokio::test]
async fn broken_messages() {
    let acme = || row(&["acme", "1"]);
    let cases = [
        (
            "a row too few",
            result(&[acme(), done("SELECT 2")]),
            "Protocol",
        ),
        (
            "no number of rows",
            result(&[acme(), done("SELECT")]),
            "Protocol",
        ),
        (
            "an end without completion",
            result(&[acme(), idle()]),
            "Protocol",
        ),
        (
            "a portal that stops",
            result(&[acme(), message(b's', b""), idle()]),
            "Protocol",
        ),
        (
            "a value too few",
            result(&[row(&["acme"]), done("SELECT 1")]),
            "Protocol",
        ),
        (
            "a value longer than its message",
            result(&[message(b'D', b"\0\x02\0\0\0\x7facme"), done("SELECT 1")]),
            "Protocol",
        ),
        (
            "an unknown kind of message",
            result(&[acme(), message(b'?', b""), done("SELECT 1")]),
            "Protocol",
        ),
        (
            "a length below its own",
            result(&[acme(), b"D\0\0\0\x01".to_vec(), done("SELECT 1")]),
            "Protocol",
        ),
        (
            "a copy",
            result(&[message(b'H', b"\0\0\0"), done("COPY 1")]),
            "Protocol",
        ),
        ("no result set", done("SELECT 0"), "Protocol"),
        (
            "another description",
            [
                message(b'1', b""),
                message(b'2', b""),
                described(&["uid"]),
                row(&["acme"]),
                done("SELECT 1"),
            ]
            .concat(),
            "Protocol",
        ),
        (
            "an error among the rows",
            result(&[acme(), error("XX000", CANARY), idle()]),
            "Refused",
        ),
        (
            "a kill among the rows",
            result(&[acme(), error("57P01", CANARY)]),
            "Interrupted",
        ),
    ];
    for (name, result, code) in cases {
        let (settings, _server) = fake(replies(result)).await;
        let outcome = outcome(settings).await;
        let found = outcome.as_ref().err().map(SourceError::code);
        assert_eq!(found, Some(code), "{name}: {outcome:?}");
    }
    let (settings, _server) = fake(vec![let_in(), begun(SESSION), description(&["uid"])]).await;
    assert_eq!(outcome(settings).await.unwrap_err().code(), "Protocol");
}

#[tokio::test]
async fn words_of_the_server_are_not_repeated() {
    let codes = [
        "28P01", "28000", "3D000", "42501", "42P01", "42703", "57P03", "57014", "57P01", "57P02",
        "57P05", "25P03", "25P04", "25006", "53300", "40001", "40P01", "55P03", "42809", "42883",
        "42704", "55000", "22012", "XX000", "canary", "cAnAr", "",
    ];
    for code in codes {
        let refusal = || [error(code, CANARY), idle()].concat();
        for (step, replies) in [
            ("log-in", vec![error(code, CANARY)]),
            ("begin", vec![let_in(), refusal()]),
            ("description", vec![let_in(), begun(SESSION), refusal()]),
            ("query", replies(refusal())),
        ] {
            let (settings, _server) = fake(replies).await;
            let error = outcome(settings).await.unwrap_err();
            let shown = format!("{error} {error:?}").to_lowercase();
            assert!(!shown.contains("canar"), "{code} at {step}: {shown}");
        }
    }
}

/// Texts that no case above shows.
#[tokio::test]
async fn what_a_server_in_trouble_says() {
    for (code, expected) in [
        (
            "57P03",
            "it is starting, stopping or recovering; check source host and port, and that the network allows it",
        ),
        (
            "40001",
            "error 40001: it was updated meanwhile and broke the query off; the next sync tries again",
        ),
        ("55P03", "error 55P03: the table is locked; the next sync"),
        ("42704", "error 42704: the view refers to tables, functions"),
        (
            "XX000",
            "error XX000: look the code up in its documentation",
        ),
        ("?", "error without a valid code: look the code up"),
        ("57014", "the connection to the database broke after 0 rows"),
    ] {
        let refusal = [error(code, CANARY), idle()].concat();
        let (settings, _server) = fake(replies(refusal)).await;
        let said = outcome(settings).await.unwrap_err().to_string();
        assert!(said.contains(expected), "{code}: {said}");
    }
}
