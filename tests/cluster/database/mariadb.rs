//! How MariaDB is installed, started and administered.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};

use super::{Options, output_of, program};

/// Debian keeps server programs here.
const DIRECTORIES: [&str; 2] = ["/usr/local/sbin", "/usr/sbin"];

/// What makes the data, and the server.
pub fn programs(directory: &Path, port: u16, wanted: &Options) -> Result<(Command, Command)> {
    let user = output_of(Command::new("id").arg("-un"))?;
    let options = [
        "--no-defaults".to_owned(),
        format!("--user={user}"),
        format!("--datadir={}", directory.join("data").display()),
        // A starting server removes the temporary tables of every other server that uses the same directory.
        format!("--tmpdir={}", directory.display()),
        // The data need not survive the machine.
        "--innodb-flush-method=nosync".to_owned(),
        "--innodb-log-file-size=8M".to_owned(),
        "--innodb-buffer-pool-size=32M".to_owned(),
    ];
    let directories = DIRECTORIES.map(PathBuf::from);
    let mut install = program("mariadb-install-db", &directories)?;
    install.args(&options).args([
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        // Else, run by root, it changes the owner of a directory of the installed package.
        "--rpm",
    ]);
    let mut server = program("mariadbd", &directories)?;
    server.args(&options).args([
        "--bind-address=127.0.0.1".to_owned(),
        format!("--port={port}"),
        format!("--socket={}", directory.join("s").display()),
        format!("--pid-file={}", directory.join("pid").display()),
        // With this, root, who has no password, is let in through the socket only.
        "--skip-name-resolve".to_owned(),
        "--max-connections=500".to_owned(),
    ]);
    if let Some((certificate, key)) = &wanted.tls {
        for (option, name, text) in [("ssl-cert", "cert", certificate), ("ssl-key", "key", key)] {
            let path = directory.join(name);
            fs::write(&path, text)?;
            server.arg(format!("--{option}={}", path.display()));
        }
    }
    server.args(wanted.arguments);
    if wanted.insists_on_tls {
        server.arg("--require-secure-transport");
    }
    Ok((install, server))
}

/// A connection is made for each use: one that is kept would end with the runtime of the test that made it.
pub async fn query(socket: &Path, database: Option<&str>, sql: &str) -> Result<Vec<String>> {
    let options = OptsBuilder::default()
        .socket(Some(socket.display().to_string()))
        .user(Some("root"))
        .db_name(database);
    let mut connection = Conn::new(options).await?;
    let mut result = connection.query_iter(sql).await?;
    let mut rows = vec![];
    while !result.is_empty() {
        rows = result.collect::<String>().await?;
    }
    drop(result);
    connection.disconnect().await?;
    Ok(rows)
}
