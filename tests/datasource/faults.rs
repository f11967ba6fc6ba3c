//! A real server that is away, slow, killed or too talkative: an error each time, never a short success.

use std::fs;
use std::time::{Duration, Instant};

use lynqgate::datasource::SourceError;
use lynqgate::datasource::error::{Limit, Stage};
use lynqgate::decide::hub::rows::{Collector, RowCount};

use crate::cluster::database::{Database, Product};
use crate::datasource::{columns, create, query, read, settings, shared, source, start};

on_each_product!(
    no_server,
    a_restart_between_two_reads_goes_unnoticed,
    killed_in_the_middle_of_a_result,
    query_killed_in_the_middle_of_a_result,
    slow_query,
    a_reader_that_loses_interest_leaves_nothing_behind,
    limits_of_a_result,
    #[ignore = "measures the whole process, so `make test` runs it alone"]
    memory_stays_bounded_over_many_rows,
);

/// `rows` rows of about 2 KB.
fn big(product: Product, rows: u64) -> String {
    format!(
        "CREATE VIEW v AS SELECT CONCAT('t-', seq) uid, 1 activate, REPEAT('x', 2000) plan FROM {}",
        product.sequence(rows)
    )
}

/// Whether another client's query reads from this table or view.
async fn is_read(database: &Database, table: &str) -> bool {
    let find = match database.product() {
        Product::Mariadb => format!(
            "SELECT info FROM information_schema.processlist WHERE info LIKE '%FROM `{table}`' AND id <> CONNECTION_ID()"
        ),
        Product::Postgresql => format!(
            "SELECT query FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%FROM \"{table}\"'"
        ),
    };
    let queries = database.query(None, &find).await;
    !queries.expect("the list of queries").is_empty()
}

async fn no_server(product: Product) {
    let database = start(product).await;
    let away = settings(&database, "away", "t");
    database.crash().expect("an end");
    let error = read(&source(product, away.clone()), &columns(&[]))
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
    let error = read(&source(product, nowhere.clone()), &columns(&[]))
        .await
        .unwrap_err();
    let unknown = SourceError::Unreachable {
        host: nowhere.host,
        port: nowhere.port,
        cause: "the host name is unknown",
    };
    assert_eq!(error, unknown);
}

async fn a_restart_between_two_reads_goes_unnoticed(product: Product) {
    let database = start(product).await;
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT)",
        "INSERT INTO t VALUES ('acme', 1)",
    ];
    create(&database, "restart", &statements).await;
    let source = source(product, settings(&database, "restart", "t"));
    assert_eq!(read(&source, &columns(&[])).await.expect("before").len(), 1);
    database.crash().expect("an end");
    database.start_again().await.expect("a server");
    assert_eq!(read(&source, &columns(&[])).await.expect("after").len(), 1);
}

async fn killed_in_the_middle_of_a_result(product: Product) {
    let database = start(product).await;
    create(&database, "cut", &[big(product, 100_000_000)]).await;
    let source = source(product, settings(&database, "cut", "v"));
    let mut seen = 0;
    let outcome = source
        .rows(&columns(&["plan"]), |row| {
            seen = row.number;
            if seen == 1000 {
                database.crash().expect("an end");
            }
        })
        .await;
    assert_eq!(outcome, Err(SourceError::Interrupted { rows_read: seen }));
    assert!(seen >= 1000, "it was in the middle: {seen}");
}

async fn query_killed_in_the_middle_of_a_result(product: Product) {
    let database = shared(product).await;
    create(database, "killed", &[big(product, 100_000_000)]).await;
    let source = source(product, settings(database, "killed", "v"));
    let (first_row, mut rows) = tokio::sync::mpsc::unbounded_channel();
    let columns = columns(&["plan"]);
    let reading = source.rows(&columns, |_| {
        let _ = first_row.send(());
    });
    let killing = async {
        rows.recv().await.expect("a first row");
        match product {
            Product::Mariadb => {
                let find = "SELECT CONCAT('', id) FROM information_schema.processlist WHERE user = 'reader' AND db = 'killed' AND command = 'Query'";
                for id in query(database, "killed", find).await {
                    query(database, "killed", &format!("KILL QUERY {id}")).await;
                }
            }
            Product::Postgresql => {
                let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'reader' AND datname = 'killed'";
                assert_eq!(query(database, "killed", cancel).await, ["t"]);
            }
        }
    };
    let (outcome, ()) = tokio::join!(reading, killing);
    match outcome {
        Err(SourceError::Interrupted { rows_read }) => assert!(rows_read > 0),
        other => panic!("interrupted, not {other:?}"),
    }
}

async fn slow_query(product: Product) {
    let database = start(product).await;
    let (slow, drip) = (product.slow(600.0), product.slow(0.2));
    let (many, some) = (product.sequence(10_000_000_000), product.sequence(10_000));
    let statements = [
        format!("CREATE VIEW slow AS SELECT 'acme' uid, {slow} activate"),
        format!("CREATE VIEW busy AS SELECT COUNT(*) uid, 1 activate FROM {many}"),
        // One row at a time, each within any limit that looks at a single row.
        format!(
            "CREATE VIEW dripping AS SELECT REPEAT('x', 100000) uid, {drip} activate FROM {some}"
        ),
    ];
    create(&database, "slow", &statements).await;
    for table in ["slow", "busy", "dripping"] {
        let mut slow = settings(&database, "slow", table);
        slow.limits.query = Duration::from_secs(1);
        let started = Instant::now();
        let error = read(&source(product, slow), &columns(&[]))
            .await
            .unwrap_err();
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
        while is_read(&database, table).await {
            assert!(
                Instant::now() < deadline,
                "{table}: the abandoned query goes on"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn a_reader_that_loses_interest_leaves_nothing_behind(product: Product) {
    let database = start(product).await;
    create(&database, "dropped", &[big(product, 100_000_000)]).await;
    let source = source(product, settings(&database, "dropped", "v"));
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
    while is_read(&database, "v").await {
        assert!(Instant::now() < deadline, "the connection is still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn limits_of_a_result(product: Product) {
    let database = shared(product).await;
    create(database, "limits", &[big(product, 100)]).await;
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
        let error = read(&source(product, small), &columns(&["plan"]))
            .await
            .unwrap_err();
        assert_eq!(error, SourceError::TooLarge { limit }, "{name}");
    }
}

/// Also of a whole sync: of rows from which nothing is to be rendered only the uids are kept.
async fn memory_stays_bounded_over_many_rows(product: Product) {
    let database = shared(product).await;
    create(database, "many", &[big(product, 100_000)]).await;
    let source = source(product, settings(database, "many", "v"));
    let columns = columns(&["plan"]);
    let (mut bytes, mut collector) = (0, Collector::new(&columns));
    fs::write("/proc/self/clear_refs", "5").expect("the peak is reset");
    let before = peak_memory();
    let count = source
        .rows(&columns, |row| {
            bytes += row.values[2].as_ref().map_or(0, Vec::len);
            collector.push_unless(&|_| true, row);
        })
        .await;
    assert_eq!(count, Ok(RowCount(100_000)));
    assert_eq!(bytes, 200_000_000);
    let rows = collector.finish(RowCount(100_000)).expect("not too many");
    assert_eq!((rows.settled.len(), rows.rows.len()), (100_000, 0));
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
