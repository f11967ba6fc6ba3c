//! A MySQL server that is none: what it asks for, and what it gets.

use lynqgate::datasource::SourceError;
use lynqgate::datasource::database::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::cluster::database::Product;
use crate::datasource::{columns, read, settings, shared, source};

/// Answers the log-in and each command with one reply. Gives what the client sent: a packet for each of them, as far as it came,
/// and then everything else in one piece.
async fn fake(replies: Vec<Vec<u8>>) -> (Settings, tokio::task::JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(shared(Product::Mariadb).await, "fake", "t");
    settings.port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(&greeting()).await.unwrap();
        let mut received = Vec::new();
        for reply in replies {
            let mut header = [0; 4];
            if client.read_exact(&mut header).await.is_err() {
                return received;
            }
            let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
            let mut body = vec![0; length as usize];
            client.read_exact(&mut body).await.unwrap();
            received.push(body);
            client.write_all(&reply).await.unwrap();
        }
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        received.push(rest);
        received
    });
    (settings, server)
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    [&length[..3], &[sequence], payload].concat()
}

fn greeting() -> Vec<u8> {
    // Long password, database at log-in, local files, protocol 4.1, secure connection; plug-ins, no EOF packets.
    let (lower, upper) = (0x8289_u16.to_le_bytes(), 0x0108_u16.to_le_bytes());
    let mut payload = b"\x0a8.0.36\0\x07\0\0\0abcdefgh\0".to_vec();
    payload.extend(lower);
    payload.extend(b"\x2d\x02\x00");
    payload.extend(upper);
    payload.extend(b"\x15\0\0\0\0\0\0\0\0\0\0abcdefghijkl\0mysql_native_password\0");
    packet(0, &payload)
}

fn ok(sequence: u8) -> Vec<u8> {
    packet(sequence, b"\0\0\0\x02\0\0\0")
}

fn refusal(sequence: u8, code: u16, message: &str) -> Vec<u8> {
    let code = code.to_le_bytes();
    packet(
        sequence,
        &[b"\xff", &code[..], b"#HY000", message.as_bytes()].concat(),
    )
}

fn column(sequence: u8, name: &str) -> Vec<u8> {
    let length = [name.len() as u8];
    let payload = [
        b"\x03def\0\0\0",
        &length[..],
        name.as_bytes(),
        b"\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0",
    ];
    packet(sequence, &payload.concat())
}

/// What a session of ours reads back.
const SESSION: [&str; 8] = [
    "+00:00",
    "utf8mb4",
    "utf8mb4",
    "utf8mb4",
    "",
    "1",
    "18446744073709551615",
    "REPEATABLE-READ",
];

fn read_back(session: [&str; 8]) -> Vec<u8> {
    let mut bytes = packet(1, b"\x08");
    let mut row = vec![];
    for (place, value) in session.iter().enumerate() {
        bytes.extend(column(2 + place as u8, "s"));
        row.push(value.len() as u8);
        row.extend(value.as_bytes());
    }
    [bytes, packet(10, &row), packet(11, END)].concat()
}

/// The answers to what makes the session, which are these; then the query's.
fn queried(session: [&str; 8], reply: Vec<u8>) -> Vec<Vec<u8>> {
    let begun = [ok(2), ok(1), ok(1), ok(1), ok(1), ok(1), read_back(session)];
    [&begun[..], &[reply, ok(1)]].concat()
}

fn honest(reply: Vec<u8>) -> Vec<Vec<u8>> {
    queried(SESSION, reply)
}

/// "Log in by this other method".
fn switch(method: &str, nonce: &[u8]) -> Vec<u8> {
    packet(2, &[b"\xfe", method.as_bytes(), b"\0", nonce].concat())
}

/// Two columns, and then these packets from number 4 on.
fn result(packets: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [packet(1, b"\x02"), column(2, "uid"), column(3, "activate")].concat();
    for (index, payload) in packets.iter().enumerate() {
        bytes.extend(packet(index as u8 + 4, payload));
    }
    bytes
}

const ROW: &[u8] = b"\x04acme\x011";
const END: &[u8] = b"\xfe\0\0\x02\0\0\0";

#[tokio::test]
async fn the_fake_server_can_be_honest() {
    let (settings, _server) = fake(honest(result(&[ROW, END]))).await;
    let rows = read(&source(Product::Mariadb, settings), &columns(&[])).await;
    let expected = ["acme", "1"].map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(rows, Ok(vec![expected]));
}

#[tokio::test]
async fn a_server_that_asks_for_a_file_gets_none() {
    let replies = honest(packet(1, b"\xfb/etc/passwd"));
    let (settings, server) = fake(replies[..8].to_vec()).await;
    let error = read(&source(Product::Mariadb, settings.clone()), &columns(&[]))
        .await
        .unwrap_err();
    let expected = SourceError::Protocol {
        host: settings.host,
        port: settings.port,
        cause: "it asked for a file of this machine",
    };
    assert_eq!(error, expected);
    let sent = server.await.unwrap();
    assert_eq!(
        sent.get(7).map(Vec::as_slice),
        Some(&b"\x03SELECT `uid`, `activate` FROM `t`"[..])
    );
    assert_eq!(sent.get(8), Some(&Vec::new()), "nothing was sent");
}

#[tokio::test]
async fn a_password_is_given_to_known_methods_only() {
    for method in ["mysql_clear_password", "mysql_old_password", "unheard_of"] {
        let switch = switch(method, b"abcdefghijklmnopqrst\0");
        let (mut settings, server) = fake(vec![switch, ok(1), ok(1)]).await;
        settings.password = "canary-pa55word".to_owned().into();
        let error = read(&source(Product::Mariadb, settings), &columns(&[]))
            .await
            .unwrap_err();
        assert_eq!(error.code(), "AuthUnsupported", "{method}: {error}");
        let sent = server.await.unwrap().concat();
        let sent = String::from_utf8_lossy(&sent);
        assert!(
            sent.contains("mysql_native_password"),
            "{method}: a log-in was tried: {sent}"
        );
        assert!(!sent.contains("canary"), "{method}: {sent}");
    }
}

/// Of servers that are not installed here.
#[tokio::test]
async fn methods_that_a_managed_server_has() {
    let (twenty, thirty_two) = (
        b"abcdefghijklmnopqrst\0",
        b"abcdefghijklmnopqrstuvwxyzabcdef",
    );
    let cached = [packet(4, b"\x01\x03"), ok(5)].concat();
    let cases = [
        (switch("client_ed25519", thirty_two), ok(4), 64),
        (switch("caching_sha2_password", twenty), cached, 32),
    ];
    for (switch, let_in, proof_bytes) in cases {
        let log_in = vec![switch, let_in];
        let replies = [log_in, honest(result(&[ROW, END]))[1..].to_vec()].concat();
        let (mut settings, server) = fake(replies).await;
        settings.password = "canary-pa55word".to_owned().into();
        let rows = read(&source(Product::Mariadb, settings), &columns(&[])).await;
        assert_eq!(rows.map(|rows| rows.len()), Ok(1));
        let sent = server.await.unwrap();
        assert_eq!(sent[1].len(), proof_bytes);
        let goodbye = packet(0, b"\x01");
        assert_eq!(sent.last(), Some(&goodbye), "nothing but a goodbye is left");
    }
}

/// Listens where the driver panics on what it hears, and gives the port.
pub fn breaks_the_driver() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let listener = TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let no_key = packet(6, b"\x01no key at all");
                let asks = switch("caching_sha2_password", b"abcdefghijklmnopqrst\0");
                let mut buffer = [0; 4096];
                for said in [greeting(), asks, packet(4, b"\x01\x04"), no_key] {
                    if client.write_all(&said).await.is_err() {
                        return;
                    }
                    let _ = client.read(&mut buffer).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_panic_of_the_driver_is_an_error() {
    let mut settings = settings(shared(Product::Mariadb).await, "fake", "t");
    settings.port = breaks_the_driver();
    settings.password = "canary-pa55word".to_owned().into();
    let expected = SourceError::Protocol {
        host: settings.host.clone(),
        port: settings.port,
        cause: "a packet that the driver cannot read",
    };
    let rows = read(&source(Product::Mariadb, settings), &columns(&[])).await;
    assert_eq!(rows, Err(expected));
}

#[tokio::test]
async fn rows_of_a_session_that_is_not_ours_are_not_read() {
    for (place, other, setting) in [
        (0, "SYSTEM", "time zone +00:00"),
        (3, "latin1", "character_set_results utf8mb4"),
        (4, "PAD_CHAR_TO_FULL_LENGTH", "empty SQL mode"),
        (7, "READ-UNCOMMITTED", "isolation level REPEATABLE READ"),
    ] {
        let mut session = SESSION;
        session[place] = other;
        let (settings, server) = fake(queried(session, result(&[ROW, END]))).await;
        let error = read(&source(Product::Mariadb, settings), &columns(&[]))
            .await
            .unwrap_err();
        let said = format!(
            "the database does not give a session the {setting} that lynqgate sets, so that its rows could be read wrongly; check \
             init_connect, and proxies in between"
        );
        assert_eq!(error.to_string(), said);
        assert_eq!(
            server.await.unwrap().get(7),
            Some(&vec![1]),
            "goodbye, and no query"
        );
    }
}

#[tokio::test]
async fn broken_packets() {
    let one_column = [packet(1, b"\x01"), column(2, "uid"), packet(3, END)].concat();
    let cases = [
        ("no result set", ok(1), "Protocol"),
        ("too few columns", one_column, "Protocol"),
        (
            "an empty packet among the rows",
            result(&[ROW, b"", END]),
            "Protocol",
        ),
        (
            "a value longer than its packet",
            result(&[b"\x7facme", END]),
            "Interrupted",
        ),
        (
            "a row with a value too few",
            result(&[b"\x04acme", END]),
            "Interrupted",
        ),
        ("an empty reply", packet(1, b""), "Interrupted"),
        ("a wrong sequence number", packet(9, b"\x02"), "Protocol"),
        (
            "an error among the rows",
            result(&[ROW, b"\xff\x28\x04#HY000gone"]),
            "Refused",
        ),
        (
            "a kill among the rows",
            result(&[ROW, b"\xff\x25\x05#70100gone"]),
            "Interrupted",
        ),
    ];
    for (name, reply, code) in cases {
        let (settings, _server) = fake(honest(reply)).await;
        let outcome = read(&source(Product::Mariadb, settings), &columns(&[])).await;
        let found = outcome.as_ref().err().map(SourceError::code);
        assert_eq!(found, Some(code), "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn words_of_the_server_are_not_repeated() {
    const CANARY: &str = "canary\x1b[2J";
    let codes = [
        1040, 1044, 1045, 1049, 1053, 1054, 1064, 1129, 1130, 1142, 1143, 1146, 1205, 1226, 1251,
        1317, 1356, 1524, 1698, 1820, 1862, 1969, 3024, 3159, 4031, 65000,
    ];
    for code in codes {
        let steps = [
            ("log-in", vec![refusal(2, code, CANARY)]),
            ("session", vec![ok(2), refusal(1, code, CANARY)]),
            ("query", honest(refusal(1, code, CANARY))),
        ];
        for (step, replies) in steps {
            let (settings, _server) = fake(replies).await;
            let error = read(&source(Product::Mariadb, settings), &columns(&[]))
                .await
                .unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("canary"), "{code} at {step}: {shown}");
        }
    }
}
