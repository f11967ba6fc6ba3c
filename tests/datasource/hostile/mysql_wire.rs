//! A MySQL server that is none: what it asks for, and what it gets.

use lynqgate::datasource::SourceError;
use lynqgate::datasource::database::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::cluster::database::Product;
use crate::datasource::{columns, read, settings, shared, source};

/// Answers the log-in, the session statement and the query with one reply each. Gives what the client sent: a packet
/// for each of the three, as far as it came, and then everything else in one piece.
async fn fake(replies: [Vec<u8>; 3]) -> (Settings, tokio::task::JoinHandle<Vec<Vec<u8>>>) {
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
    let (settings, _server) = fake([ok(2), ok(1), result(&[ROW, END])]).await;
    let rows = read(&source(Product::Mariadb, settings), &columns(&[])).await;
    let expected = ["acme", "1"].map(|text| Some(text.to_owned())).to_vec();
    assert_eq!(rows, Ok(vec![expected]));
}

#[tokio::test]
async fn a_server_that_asks_for_a_file_gets_none() {
    let replies = [ok(2), ok(1), packet(1, b"\xfb/etc/passwd")];
    let (settings, server) = fake(replies).await;
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
        sent.get(2).map(Vec::as_slice),
        Some(&b"\x03SELECT `uid`, `activate` FROM `t`"[..])
    );
    assert_eq!(sent.get(3), Some(&Vec::new()), "nothing was sent");
}

#[tokio::test]
async fn a_password_is_given_to_known_methods_only() {
    for method in ["mysql_clear_password", "mysql_old_password", "unheard_of"] {
        let switch = packet(
            2,
            &[b"\xfe", method.as_bytes(), b"\0abcdefghijklmnopqrst\0"].concat(),
        );
        let (mut settings, server) = fake([switch, ok(1), ok(1)]).await;
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
        let (settings, _server) = fake([ok(2), ok(1), reply]).await;
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
            ("log-in", [refusal(2, code, CANARY), ok(1), ok(1)]),
            ("query", [ok(2), ok(1), refusal(1, code, CANARY)]),
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
