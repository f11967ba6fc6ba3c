//! A real server that is away, slow, killed or too talkative: an error each time, never a short success.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lynqgate::datasource::SourceError;
use lynqgate::datasource::error::{Limit, Stage};
use lynqgate::decide::rows::RowCount;

use crate::datasource::database::Database;
use crate::datasource::{columns, read, settings, source};

/// `rows` rows of about 2 KB, made as they are read: the server stores none of it.
fn big(name: &str, rows: u64) -> String {
    format!(
        "CREATE VIEW {name} AS SELECT CONCAT('t-', seq) uid, 1 activate, REPEAT('x', 2000) plan FROM seq_1_to_{rows}"
    )
}

#[tokio::test]
async fn no_server() {
    let mut database = Database::start(&[]);
    let away = settings(&database, "mysql", "user");
    database.kill();
    let error = read(&source(away.clone()), &columns(&[]))
        .await
        .unwrap_err();
    let expected = format!(
        "cannot reach the database at 127.0.0.1:{}: nothing listens there (connection refused); check source host \
         and port, and that the network allows it",
        away.port
    );
    assert_eq!(error.to_string(), expected);

    let mut nowhere = away;
    nowhere.host = "no-such-host.invalid".into();
    let error = read(&source(nowhere.clone()), &columns(&[]))
        .await
        .unwrap_err();
    let unknown = SourceError::Unreachable {
        host: nowhere.host,
        port: nowhere.port,
        cause: "the host name is unknown",
    };
    assert_eq!(error, unknown);
}

#[tokio::test]
async fn a_restart_between_two_reads_goes_unnoticed() {
    let mut database = Database::start(&[]);
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT)",
        "INSERT INTO t VALUES ('acme', 1)",
    ];
    database.schema("restart", &statements).await;
    let source = source(settings(&database, "restart", "t"));
    assert_eq!(read(&source, &columns(&[])).await.expect("before").len(), 1);
    database.restart();
    assert_eq!(read(&source, &columns(&[])).await.expect("after").len(), 1);
}

#[tokio::test]
async fn the_connection_is_kept_between_reads() {
    let database = Database::start(&[]);
    let statements = ["CREATE VIEW v AS SELECT CONNECTION_ID() uid, 1 activate"];
    database.schema("kept", &statements).await;
    let source = source(settings(&database, "kept", "v"));
    let first = read(&source, &columns(&[])).await.expect("rows");
    for _ in 0..3 {
        assert_eq!(read(&source, &columns(&[])).await.expect("rows"), first);
    }
}

#[tokio::test]
async fn killed_in_the_middle_of_a_result() {
    let database = Database::start(&[]);
    database.schema("cut", &[&big("v", 100_000_000)]).await;
    let source = source(settings(&database, "cut", "v"));
    let database = Mutex::new(database);
    let mut seen = 0;
    let outcome = source
        .rows(&columns(&["plan"]), |row| {
            seen = row.number;
            if seen == 1000 {
                database.lock().unwrap().kill();
            }
        })
        .await;
    assert_eq!(outcome, Err(SourceError::Interrupted { rows_read: seen }));
    assert!(seen >= 1000, "it was in the middle: {seen}");
}

#[tokio::test]
async fn query_killed_in_the_middle_of_a_result() {
    let database = Database::shared();
    database.schema("killed", &[&big("v", 100_000_000)]).await;
    let source = source(settings(database, "killed", "v"));
    let (first_row, mut rows) = tokio::sync::mpsc::unbounded_channel();
    let columns = columns(&["plan"]);
    let reading = source.rows(&columns, |_| {
        let _ = first_row.send(());
    });
    let killing = async {
        rows.recv().await.expect("a first row");
        let find = "SELECT CONCAT('', id) FROM information_schema.processlist WHERE db = 'killed' AND command = 'Query'";
        for id in database.query(find).await {
            database.query(&format!("KILL QUERY {id}")).await;
        }
    };
    let (outcome, ()) = tokio::join!(reading, killing);
    match outcome {
        Err(SourceError::Interrupted { rows_read }) => assert!(rows_read > 0),
        other => panic!("interrupted, not {other:?}"),
    }
}

#[tokio::test]
async fn slow_query() {
    let database = Database::start(&[]);
    let statements = [
        "CREATE VIEW slow AS SELECT 'acme' uid, 1 + SLEEP(600) activate",
        "CREATE VIEW busy AS SELECT COUNT(*) uid, 1 activate FROM seq_1_to_10000000000",
        // One row at a time, each within any limit that looks at a single row.
        "CREATE VIEW dripping AS SELECT REPEAT('x', 100000) uid, 1 + SLEEP(0.2) activate FROM seq_1_to_10000",
    ];
    database.schema("slow", &statements).await;
    for table in ["slow", "busy", "dripping"] {
        let mut slow = settings(&database, "slow", table);
        slow.limits.query = Duration::from_secs(1);
        let started = Instant::now();
        let error = read(&source(slow), &columns(&[])).await.unwrap_err();
        let expected = SourceError::Timeout {
            seconds: 1,
            stage: Stage::Query,
        };
        assert_eq!(error, expected, "{table}");
        assert!(started.elapsed() < Duration::from_secs(30), "{table}");
    }
    assert_eq!(
        SourceError::Timeout {
            seconds: 1,
            stage: Stage::Query
        }
        .to_string(),
        "the database did not finish the query within 1 s; make the table or view faster, or smaller"
    );

    // The server does not go on with them for long either.
    let deadline = Instant::now() + Duration::from_secs(60);
    for table in ["slow", "busy", "dripping"] {
        while database.is_read(table).await {
            assert!(
                Instant::now() < deadline,
                "{table}: the abandoned query goes on"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_reader_that_loses_interest_leaves_nothing_behind() {
    let database = Database::start(&[]);
    database.schema("dropped", &[&big("v", 100_000_000)]).await;
    let source = source(settings(&database, "dropped", "v"));
    let (first_row, mut rows) = tokio::sync::mpsc::unbounded_channel();
    let columns = columns(&["plan"]);
    let reading = source.rows(&columns, |_| {
        let _ = first_row.send(());
    });
    tokio::select! {
        outcome = reading => panic!("the result has no end: {outcome:?}"),
        _ = rows.recv() => {}
    }
    // The connection is closed, not read to its end in the background.
    let deadline = Instant::now() + Duration::from_secs(30);
    while database.is_read("v").await {
        assert!(Instant::now() < deadline, "the connection is still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn limits_of_a_result() {
    let database = Database::shared();
    database.schema("limits", &[&big("v", 100)]).await;
    let cases = [
        ("rows", Limit::Rows(99), 100, 1 << 20, 1 << 20),
        ("bytes", Limit::Bytes(100_000), 1000, 100_000, 1 << 20),
        ("bytes of a row", Limit::RowBytes(1999), 1000, 1 << 20, 1999),
    ];
    for (name, limit, rows, bytes, row_bytes) in cases {
        let mut small = settings(database, "limits", "v");
        small.limits.rows = if name == "rows" { 99 } else { rows };
        small.limits.bytes = bytes;
        small.limits.row_bytes = row_bytes;
        let error = read(&source(small), &columns(&["plan"])).await.unwrap_err();
        assert_eq!(error, SourceError::TooLarge { limit }, "{name}");
    }
}

#[tokio::test]
#[ignore = "measures the whole process, so `make test` runs it alone"]
async fn memory_stays_bounded_over_many_rows() {
    let database = Database::shared();
    database.schema("many", &[&big("v", 100_000)]).await;
    let source = source(settings(database, "many", "v"));
    let mut bytes = 0;
    fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
    let before = peak_memory();
    let count = source
        .rows(&columns(&["plan"]), |row| {
            bytes += row.values[2].as_ref().map_or(0, Vec::len);
        })
        .await;
    assert_eq!(count, Ok(RowCount(100_000)));
    assert_eq!(bytes, 200_000_000);
    let grown = peak_memory() - before;
    assert!(grown < 60_000_000, "the peak grew by {grown} bytes");
}

/// The largest resident size since the last reset, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    let peak: u64 = kilobytes.expect("VmHWM").parse().expect("a number");
    peak * 1024
}
