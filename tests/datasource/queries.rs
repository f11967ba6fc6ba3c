//! What is asked: names of any kind, views, columns that go away.

use lynqgate::datasource::SourceError;
use lynqgate::decide::hub::rows::{Collector, Columns};

use crate::cluster::database::Product;
use crate::datasource::{columns, create, query, read, settings, shared, source};

on_each_product!(
    odd_identifiers_are_quoted,
    tables_of_other_schemas_and_views,
    a_column_mapped_twice_is_read_once,
    an_empty_table_is_a_complete_result,
    a_column_that_goes_away_is_named_and_comes_back,
    a_type_that_changes_is_read_as_it_is,
);

async fn odd_identifiers_are_quoted(product: Product) {
    let database = shared(product).await;
    let long = match product {
        Product::Mariadb => "l".repeat(64),
        Product::Postgresql => "l".repeat(63),
    };
    let names = [
        "plain",
        "with space",
        "back`tick",
        "`t` ; drop",
        "t` ; DROP TABLE victim; -- x",
        "t\" ; DROP TABLE victim; -- x",
        "x'); DROP TABLE victim; -- x",
        "$$ \\ %s ?",
        "qu'ote\"s",
        "t\u{e4}bl\u{e9} \u{65e5}\u{672c}",
        "select",
        "100%",
        &long,
    ];
    let mut statements = vec!["CREATE TABLE victim (a INT)".to_owned()];
    for name in names {
        let column = product.quote(name);
        statements.push(format!(
            "CREATE TABLE {column} (uid VARCHAR(9), activate INT, {column} INT)"
        ));
        statements.push(format!("INSERT INTO {column} VALUES ('acme', 1, 7)"));
    }
    create(database, "odd `\"names\"`", &statements).await;
    for name in names {
        let source = source(product, settings(database, "odd `\"names\"`", name));
        let rows = read(&source, &columns(&[name])).await;
        let expected = ["acme", "1", "7"]
            .map(|text| Some(text.to_owned()))
            .to_vec();
        assert_eq!(rows, Ok(vec![expected]), "{name:?}");
    }
    let find = "SELECT table_name FROM information_schema.tables WHERE table_name = 'victim'";
    assert_eq!(query(database, "odd `\"names\"`", find).await, ["victim"]);
}

async fn tables_of_other_schemas_and_views(product: Product) {
    let database = shared(product).await;
    let quote = |name| product.quote(name);
    let (table, quoted) = (
        quote("other-t"),
        format!("{}.{}", quote("other"), quote("other-t")),
    );
    let statements = [
        // What is a database to MySQL is a schema within one to PostgreSQL.
        "CREATE SCHEMA other".to_owned(),
        format!("CREATE TABLE other.{table} (uid VARCHAR(9), activate INT)"),
        format!("INSERT INTO other.{table} VALUES ('acme', 1), ('zeta', 0)"),
        format!("CREATE VIEW other.active AS SELECT * FROM other.{table} WHERE activate = 1"),
    ];
    create(database, "home", &statements).await;
    let cases = [
        ("other.other-t", 2),
        ("other.active", 1),
        (quoted.as_str(), 2),
    ];
    for (table, expected) in cases {
        let source = source(product, settings(database, "home", table));
        let rows = read(&source, &columns(&[])).await.expect(table);
        assert_eq!(rows.len(), expected, "{table}");
    }
}

async fn a_column_mapped_twice_is_read_once(product: Product) {
    let database = shared(product).await;
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, plan VARCHAR(9))",
        "INSERT INTO t VALUES ('acme', 1, 'pro')",
    ];
    create(database, "twice", &statements).await;
    let columns = Columns {
        host_or_url: Some("uid".into()),
        extra: [("a".into(), "plan".into()), ("b".into(), "plan".into())].into(),
        ..columns(&[])
    };
    let source = source(product, settings(database, "twice", "t"));
    assert_eq!(read(&source, &columns).await.expect("rows")[0].len(), 3);
    let mut collector = Collector::new(&columns);
    let read = source.rows(&columns, |row| collector.push(row)).await;
    let rows = collector.finish(read.expect("rows"));
    let rows = rows.expect("one row").rows;
    let variables = &rows["acme"].variables;
    assert_eq!(
        ["hostOrUrl", "a", "b"].map(|name| variables.get(name)),
        ["acme", "pro", "pro"].map(Some)
    );
}

async fn an_empty_table_is_a_complete_result(product: Product) {
    let database = shared(product).await;
    create(
        database,
        "empty",
        &["CREATE TABLE t (uid INT, activate INT)"],
    )
    .await;
    let source = source(product, settings(database, "empty", "t"));
    assert_eq!(read(&source, &columns(&[])).await, Ok(Vec::new()));
}

async fn a_column_that_goes_away_is_named_and_comes_back(product: Product) {
    let database = shared(product).await;
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, plan INT)",
        "INSERT INTO t VALUES ('acme', 1, 7)",
    ];
    create(database, "alter", &statements).await;
    let source = source(product, settings(database, "alter", "t"));
    let columns = columns(&["plan"]);
    assert_eq!(read(&source, &columns).await.expect("rows").len(), 1);
    query(
        database,
        "alter",
        "ALTER TABLE t RENAME COLUMN plan TO gone",
    )
    .await;
    let missing = SourceError::ColumnMissing {
        column: "\"plan\"".into(),
        table: product.quote("t"),
    };
    assert_eq!(read(&source, &columns).await, Err(missing));
    query(
        database,
        "alter",
        "ALTER TABLE t RENAME COLUMN gone TO plan",
    )
    .await;
    assert_eq!(read(&source, &columns).await.expect("rows").len(), 1);
}

async fn a_type_that_changes_is_read_as_it_is(product: Product) {
    let database = shared(product).await;
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT, plan DOUBLE PRECISION)",
        "INSERT INTO t VALUES ('acme', 1, 1e15)",
    ];
    create(database, "retype", &statements).await;
    let source = source(product, settings(database, "retype", "t"));
    let change = match product {
        Product::Mariadb => "ALTER TABLE t MODIFY plan TIMESTAMP NULL",
        Product::Postgresql => "ALTER TABLE t ALTER plan TYPE timestamptz USING NULL",
    };
    let fill = "UPDATE t SET plan = '2024-01-31 10:11:12'";
    for (statements, expected) in [
        (vec![], "1000000000000000"),
        (
            vec!["UPDATE t SET plan = NULL", change, fill],
            "2024-01-31T10:11:12Z",
        ),
    ] {
        for statement in statements {
            query(database, "retype", statement).await;
        }
        let rows = read(&source, &columns(&["plan"])).await.expect("rows");
        assert_eq!(rows[0][2].as_deref(), Some(expected));
    }
}
