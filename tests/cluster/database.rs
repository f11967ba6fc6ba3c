//! A MariaDB server of the tests' own, with a database and a user for each test. Knows nothing of Kubernetes.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tokio::sync::OnceCell;

use super::ports::free_port;
use super::process::{AtEnd, Process, ProcessGroup};

/// Enough for a busy machine; a start takes about a second.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Debian keeps server programs out of an ordinary user's `PATH`.
const SERVER_PROGRAMS: &str = "/usr/local/sbin:/usr/sbin";

/// The server. It ends with this value, and with the program.
pub struct Database {
    server: Process,
    group: Arc<ProcessGroup>,
    port: u16,
    created: AtomicU32,
}

/// A database and its user, who may read it, as an operator's user should.
#[derive(Clone)]
pub struct DatabaseHandle {
    pub host: String,
    pub port: u16,
    pub username: String,
    pub password: String,
    pub database: String,
    socket: PathBuf,
}

/// The server that all tests of one run share.
pub async fn shared() -> Result<&'static Database> {
    static SHARED: OnceCell<Result<Database, String>> = OnceCell::const_new();
    let started = SHARED
        .get_or_init(async || {
            Database::start()
                .await
                .map_err(|error| format!("{error:#}"))
        })
        .await;
    started
        .as_ref()
        .map_err(|error| anyhow::anyhow!("the shared database did not start: {error}"))
}

impl Database {
    pub async fn start() -> Result<Database> {
        const ATTEMPTS: usize = 3;
        let mut attempt = 1;
        loop {
            let database = Database::prepare().await?;
            let started = database.start_again().await;
            let port_was_taken = database.server.log_contains("Address already in use");
            match started {
                Ok(()) => return Ok(database),
                Err(_) if port_was_taken && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything but the start of the server.
    async fn prepare() -> Result<Database> {
        let group = ProcessGroup::new("lynqgate-mariadb-", AtEnd::RemoveDirectory)?;
        let directory = group.directory();
        let user = output_of(Command::new("id").arg("-un"))?;
        let port = free_port()?;
        let options = [
            "--no-defaults".to_owned(),
            format!("--user={}", user.trim()),
            format!("--datadir={}", directory.join("data").display()),
            // A starting server removes the temporary tables of every other server that uses the same directory.
            format!("--tmpdir={}", directory.display()),
            // The data need not survive the machine.
            "--innodb-flush-method=nosync".to_owned(),
            "--innodb-log-file-size=8M".to_owned(),
            "--innodb-buffer-pool-size=32M".to_owned(),
        ];
        let mut install = server_program("mariadb-install-db");
        install.args(&options).args([
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            // Else, run by root, it changes the owner of a directory of the installed package.
            "--rpm",
        ]);
        let install = Process::new(&group, "mariadb-install-db", install)?;
        install.start()?;
        if !install.ended(START_DEADLINE).await?.success() {
            install.check()?;
        }

        let mut server = server_program("mariadbd");
        server.args(&options).args([
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--socket={}", directory.join("s").display()),
            format!("--pid-file={}", directory.join("pid").display()),
            // With this, root, who has no password, is let in through the socket only.
            "--skip-name-resolve".to_owned(),
            "--max-connections=500".to_owned(),
        ]);
        let server = Process::new(&group, "mariadbd", server)?;
        Ok(Database {
            server,
            group,
            port,
            created: AtomicU32::new(0),
        })
    }

    /// Starts the server after it was stopped or killed, with the data it had, and waits until it answers.
    pub async fn start_again(&self) -> Result<()> {
        self.server.start()?;
        let probe = async || Ok(root(self.socket(), None).await?.disconnect().await?);
        self.server.ready(START_DEADLINE, probe).await
    }

    /// An orderly stop. For a kill or a freeze see [`Database::process`].
    pub async fn stop(&self) -> Result<()> {
        self.server.terminate(Duration::from_secs(30)).await?;
        Ok(())
    }

    pub fn process(&self) -> &Process {
        &self.server
    }

    pub fn group(&self) -> &Arc<ProcessGroup> {
        &self.group
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the administrator, root, is let in without a password.
    pub fn socket(&self) -> PathBuf {
        self.group.directory().join("s")
    }

    /// Runs statements as the administrator.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        execute(self.socket(), None, sql).await
    }

    /// A new database, whose name begins with `name`, and a new user for it.
    pub async fn create(&self, name: &str) -> Result<DatabaseHandle> {
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(40)
            .collect();
        let handle = DatabaseHandle {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            username: format!("{name}_{number}"),
            password: format!(
                "{:016x}",
                std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), number)
            ),
            database: format!("{name}_{number}"),
            socket: self.socket(),
        };
        let DatabaseHandle {
            username,
            password,
            database,
            ..
        } = &handle;
        let mut connection = root(self.socket(), None).await?;
        for statement in [
            format!("CREATE DATABASE `{database}` CHARACTER SET utf8mb4"),
            format!("CREATE USER '{username}'@'%' IDENTIFIED BY '{password}'"),
            format!("GRANT SELECT ON `{database}`.* TO '{username}'@'%'"),
        ] {
            connection
                .query_drop(&statement)
                .await
                .with_context(|| format!("creating the database {database}"))?;
        }
        connection.disconnect().await?;
        Ok(handle)
    }
}

impl DatabaseHandle {
    /// Runs statements in the database, as its administrator.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        execute(self.socket.clone(), Some(&self.database), sql).await
    }
}

async fn execute(socket: PathBuf, database: Option<&str>, sql: &str) -> Result<()> {
    let mut connection = root(socket, database).await?;
    connection
        .query_drop(sql)
        .await
        .with_context(|| format!("executing: {sql}"))?;
    connection.disconnect().await?;
    Ok(())
}

/// A connection is made for each use: one that is kept would end with the runtime of the test that made it.
async fn root(socket: PathBuf, database: Option<&str>) -> Result<Conn> {
    let options = OptsBuilder::default()
        .socket(Some(socket.display().to_string()))
        .user(Some("root"))
        .db_name(database);
    Ok(Conn::new(options).await?)
}

fn server_program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{SERVER_PROGRAMS}"));
    command
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {:?}", command.get_program()))?;
    Ok(String::from_utf8(output.stdout)?)
}
