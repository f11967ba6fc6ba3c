//! What the database says is missing or forbidden, in words that stand here literally.

use crate::cluster::database::{Database, Product};
use crate::datasource::{columns, create, read, settings, shared, source};

on_each_product!(refusals);

struct Case {
    name: &'static str,
    user: &'static str,
    password: &'static str,
    database: &'static str,
    table: &'static str,
    extra: &'static [&'static str],
    message: &'static str,
}

/// Everything is right, if it were not for one thing.
const GOOD: Case = Case {
    name: "nothing wrong",
    user: "mary",
    password: "right",
    database: "refuse",
    table: "t",
    extra: &[],
    message: "",
};

const WRONG_PASSWORD: &str = "the database denies user \"mary\" access; check the user name and the Secret with the password, and whether it \
    must use TLS (tls is disabled here)";
const NO_TABLE: &str = "there is no table or view {tt}; create it, or correct the name (for a query, create a view and give its name)";
const NO_SUCH_TABLE: &str = "there is no table or view {t WHERE 1=1}; create it, or correct the name (for a query, create a view and give its name)";
const NO_COLUMN: &str = "{t} has no column \"planId\"; add it, or correct the hub's value mappings";

/// Names in braces are quoted as the product does.
const BOTH: [Case; 9] = [
    GOOD,
    Case {
        name: "wrong password",
        password: "wrong-canary",
        message: WRONG_PASSWORD,
        ..GOOD
    },
    Case {
        name: "a password with a line break",
        password: "right\n",
        message: "the database denies user \"mary\" access; the password in the Secret ends in a line break, which counts as part of it; \
            store it without one (echo -n, or kubectl create secret --from-literal)",
        ..GOOD
    },
    Case {
        name: "a password with a space",
        password: " right",
        message: "the database denies user \"mary\" access; the password in the Secret begins or ends with a space, which counts as part of it; \
                  store it without one, unless you mean it",
        ..GOOD
    },
    Case {
        name: "no password",
        password: "",
        message: WRONG_PASSWORD,
        ..GOOD
    },
    Case {
        name: "unknown user",
        user: "nobody",
        message: "the database denies user \"nobody\" access; check the user name and the Secret with the password, and \
            whether it must use TLS (tls is disabled here)",
        ..GOOD
    },
    Case {
        name: "unknown table",
        table: "tt",
        message: NO_TABLE,
        ..GOOD
    },
    Case {
        name: "SQL instead of a table",
        table: "t WHERE 1=1",
        message: NO_SUCH_TABLE,
        ..GOOD
    },
    Case {
        name: "unknown column",
        extra: &["planId", "uid"],
        message: NO_COLUMN,
        ..GOOD
    },
];

const MARIADB: [Case; 5] = [
    Case {
        name: "no right to the database",
        database: "mysql",
        message: "the database lets user \"mary\" in, but not read database \"mysql\"; GRANT it SELECT on it, or correct the \
            name",
        ..GOOD
    },
    Case {
        name: "no right to the table",
        user: "peter",
        message: "the database lets user \"peter\" in, but not read `t`; GRANT it SELECT on it, or correct the name",
        ..GOOD
    },
    Case {
        name: "unknown database",
        user: "reader",
        password: "",
        database: "nowhere",
        message: "there is no database \"nowhere\" on the server; check its name",
        ..GOOD
    },
    Case {
        name: "a locked account",
        user: "locked",
        message: "the database refused with error 4151: the user's account is locked; unlock it there",
        ..GOOD
    },
    Case {
        name: "broken view",
        table: "broken",
        message: "the database refused with error 1356: the view refers to tables, columns or functions that are missing \
            or forbidden; correct the view or the rights of its definer",
        ..GOOD
    },
];

const POSTGRESQL: [Case; 18] = [
    Case {
        name: "no right to the database",
        database: "closed",
        message: "the database lets user \"mary\" in, but not read database \"closed\"; GRANT it CONNECT on it, or correct \
            the name",
        ..GOOD
    },
    Case {
        name: "no right to the table",
        user: "peter",
        message: "the database lets user \"peter\" in, but not read \"t\"; GRANT it SELECT on it, and USAGE on its schema, \
            or correct the name",
        ..GOOD
    },
    Case {
        name: "no right to the schema",
        user: "peter",
        table: "inner.t",
        message: "the database lets user \"peter\" in, but not read \"inner\".\"t\"; GRANT it SELECT on it, and USAGE on \
            its schema, or correct the name",
        ..GOOD
    },
    Case {
        name: "a user who may not log in",
        user: "group",
        message: "the database denies user \"group\" access; check the user name and the Secret with the password, and that \
            the server's pg_hba.conf lets it in from here by a password and without TLS (tls is disabled here)",
        ..GOOD
    },
    Case {
        name: "unknown database",
        database: "nowhere",
        message: "there is no database \"nowhere\" on the server; check its name",
        ..GOOD
    },
    Case {
        name: "an old hash of the password",
        user: "by_md5",
        ..GOOD
    },
    Case {
        name: "a password in clear",
        user: "by_password",
        message: "the database authenticates user \"by_password\" by a password in clear (password, ldap, radius or pam in pg_hba.conf) \
            without TLS (tls is disabled here), which is not supported here; give the user a password, with scram-sha-256 in the \
            server's pg_hba.conf",
        ..GOOD
    },
    Case {
        name: "an account of the client's machine",
        user: "by_ident",
        message: "the database denies user \"by_ident\" access; check the user name and the Secret with the password, and that the \
            server's pg_hba.conf lets it in from here by a password and without TLS (tls is disabled here)",
        ..GOOD
    },
    Case {
        name: "unknown schema",
        table: "nowhere.t",
        message: "there is no table or view \"nowhere\".\"t\"; create it, or correct the name (for a query, create a view and give \
                  its name)",
        ..GOOD
    },
    Case {
        name: "another case of the name",
        table: "T",
        message: "there is no table or view \"T\"; create it, or correct the name (for a query, create a view and give its name)",
        ..GOOD
    },
    Case {
        name: "an index",
        table: "place",
        message: "the database refused with error 42809: what has this name is no table or view; correct the name",
        ..GOOD
    },
    Case {
        name: "a view that divides by zero",
        table: "divides",
        message: "the database refused with error 22012: the database cannot compute the view from its data; correct the view or the data",
        ..GOOD
    },
    Case {
        name: "a function of the view refers to a table that is gone",
        table: "broken",
        message: "the database refused with error 42P01: the view refers to tables, functions or types that are missing; correct the view",
        ..GOOD
    },
    Case {
        name: "a function of the view refers to a column that is gone",
        table: "stale",
        message: "\"stale\" has no column of this name, one of [\"uid\", \"activate\"]; add it, or correct the hub's \
            value mappings",
        ..GOOD
    },
    Case {
        name: "a view that writes",
        table: "writes",
        message: "the database refused with error 25006: reading it would change data; read a table or a view that changes nothing",
        ..GOOD
    },
    Case {
        name: "a materialized view that was never filled",
        table: "unfilled",
        message: "the database refused with error 55000: it cannot be read now; a materialized view has to be refreshed first",
        ..GOOD
    },
    Case {
        name: "a view whose words are its own",
        table: "raises",
        message: "the database refused with error P0001: look the code up in its documentation",
        ..GOOD
    },
    Case {
        name: "too many connections of the user",
        user: "busy",
        message: "the database refused with error 53300: too many connections; raise its limits, or close connections of other \
            clients",
        ..GOOD
    },
];

async fn refusals(product: Product) {
    let database = shared(product).await;
    let cases = match product {
        Product::Mariadb => {
            prepare_mariadb(database).await;
            &MARIADB[..]
        }
        Product::Postgresql => {
            prepare_postgresql(database).await;
            &POSTGRESQL[..]
        }
    };
    for case in BOTH.iter().chain(cases) {
        let name = case.name;
        let mut settings = settings(database, case.database, case.table);
        settings.user = case.user.into();
        settings.password = case.password.to_owned().into();
        let outcome = read(&source(product, settings), &columns(case.extra)).await;
        let found = outcome.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(found, quoted(product, case.message), "{name}");
    }
}

fn quoted(product: Product, message: &str) -> String {
    match message.split_once('{') {
        None => message.to_owned(),
        Some((before, rest)) => {
            let (name, after) = rest.split_once('}').expect("a closing brace");
            format!("{before}{}{after}", product.quote(name))
        }
    }
}

async fn prepare_mariadb(database: &Database) {
    let statements = [
        "CREATE TABLE t (uid VARCHAR(9), activate INT)",
        "CREATE TABLE gone (uid VARCHAR(9), activate INT)",
        "CREATE VIEW broken AS SELECT * FROM gone",
        "DROP TABLE gone",
        "CREATE USER 'mary'@'%' IDENTIFIED BY 'right'",
        "GRANT SELECT ON refuse.* TO 'mary'@'%'",
        "CREATE USER 'peter'@'%' IDENTIFIED BY 'right'",
        "CREATE TABLE free (uid VARCHAR(9), activate INT)",
        "GRANT SELECT ON refuse.free TO 'peter'@'%'",
        "CREATE USER 'locked'@'%' IDENTIFIED BY 'right' ACCOUNT LOCK",
    ];
    create(database, "refuse", &statements).await;
}

async fn prepare_postgresql(database: &Database) {
    let function = |name: &str, text: &str| {
        format!(
            "CREATE FUNCTION {name}() RETURNS INT LANGUAGE plpgsql AS 'BEGIN {text}; RETURN 1; END'"
        )
    };
    let statements = [
        "CREATE ROLE mary LOGIN PASSWORD 'right'".to_owned(),
        "CREATE ROLE peter LOGIN PASSWORD 'right'".to_owned(),
        "CREATE ROLE busy LOGIN PASSWORD 'right' CONNECTION LIMIT 0".to_owned(),
        "CREATE ROLE \"group\" PASSWORD 'right'".to_owned(),
        "SET password_encryption = 'md5'; CREATE ROLE by_md5 LOGIN PASSWORD 'right'; RESET password_encryption".to_owned(),
        "CREATE ROLE by_password LOGIN PASSWORD 'right'; CREATE ROLE by_ident LOGIN PASSWORD 'right'".to_owned(),
        "CREATE TABLE t (uid TEXT, activate INT)".to_owned(),
        "CREATE INDEX place ON t (uid)".to_owned(),
        "CREATE SCHEMA \"inner\"".to_owned(),
        "CREATE TABLE \"inner\".t (uid TEXT, activate INT)".to_owned(),
        "CREATE VIEW divides AS SELECT 'acme' uid, 1 / (SELECT count(*) FROM t) activate"
            .to_owned(),
        function("broken_one", "PERFORM 1 FROM nowhere"),
        function("stale_one", "PERFORM nothing FROM t"),
        function("writing_one", "INSERT INTO t VALUES (NULL, 1)"),
        function("raising_one", "RAISE ''canary %'', now()"),
        "CREATE VIEW broken AS SELECT 'acme' uid, broken_one() activate".to_owned(),
        "CREATE VIEW stale AS SELECT 'acme' uid, stale_one() activate".to_owned(),
        "CREATE VIEW writes AS SELECT 'acme' uid, writing_one() activate".to_owned(),
        "CREATE VIEW raises AS SELECT 'acme' uid, raising_one() activate".to_owned(),
        "CREATE MATERIALIZED VIEW unfilled AS SELECT * FROM t WITH NO DATA".to_owned(),
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO mary, by_md5".to_owned(),
    ];
    create(database, "refuse", &statements).await;
    create(
        database,
        "closed",
        &["REVOKE CONNECT ON DATABASE closed FROM PUBLIC"],
    )
    .await;
}
