//! Database servers of the tests' own, with a database and a user for each test. Knows nothing of Kubernetes.

mod mariadb;
mod postgresql;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use tokio::sync::OnceCell;

use super::ports::free_port;
use super::process::{AtEnd, Process, ProcessGroup};

/// Enough for a busy machine; a start takes about a second.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// May read every database, through TCP and without a password.
pub const READER: &str = "reader";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Mariadb,
    Postgresql,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Certificate and key as PEM. Without them the server has no TLS.
    pub tls: Option<(String, String)>,
    /// Whether the server refuses whoever does without TLS.
    pub insists_on_tls: bool,
    /// More arguments of the server's program.
    pub arguments: &'static [&'static str],
}

/// The server. It ends with this value, and with the program.
pub struct Database {
    product: Product,
    server: Process,
    group: Arc<ProcessGroup>,
    port: u16,
    created: AtomicU32,
}

/// A database and its user, who may read it, as an operator's user should.
#[derive(Clone)]
pub struct DatabaseHandle {
    pub product: Product,
    pub host: String,
    pub port: u16,
    pub username: String,
    pub password: String,
    pub database: String,
    socket: PathBuf,
}

/// The server of this product that all tests of one run share.
pub async fn shared(product: Product) -> Result<&'static Database> {
    static MARIADB: OnceCell<Result<Database, String>> = OnceCell::const_new();
    static POSTGRESQL: OnceCell<Result<Database, String>> = OnceCell::const_new();
    let shared = match product {
        Product::Mariadb => &MARIADB,
        Product::Postgresql => &POSTGRESQL,
    };
    let started = shared
        .get_or_init(async || {
            Database::start(product)
                .await
                .map_err(|error| format!("{error:#}"))
        })
        .await;
    started
        .as_ref()
        .map_err(|error| anyhow::anyhow!("the shared {product:?} did not start: {error}"))
}

impl Database {
    pub async fn start(product: Product) -> Result<Database> {
        Database::start_with(product, &Options::default()).await
    }

    pub async fn start_with(product: Product, options: &Options) -> Result<Database> {
        const ATTEMPTS: usize = 3;
        let mut attempt = 1;
        loop {
            let database = Database::prepare(product, options).await?;
            let started = database.start_again().await;
            let port_was_taken = database.server.log_contains("Address already in use");
            match started {
                Ok(()) => {
                    database.execute(&product.create_reader()).await?;
                    return Ok(database);
                }
                Err(_) if port_was_taken && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Everything but the start of the server.
    async fn prepare(product: Product, options: &Options) -> Result<Database> {
        let prefix = format!("lynqgate-{product:?}-").to_lowercase();
        let group = ProcessGroup::new(&prefix, AtEnd::RemoveDirectory)?;
        let port = free_port()?;
        let (install, server) = match product {
            Product::Mariadb => mariadb::programs(group.directory(), port, options)?,
            Product::Postgresql => postgresql::programs(group.directory(), port, options)?,
        };
        let install = Process::new(&group, "install", install)?;
        install.start()?;
        if !install.ended(START_DEADLINE).await?.success() {
            install.check()?;
        }
        if product == Product::Postgresql {
            postgresql::configure(group.directory(), options)?;
        }
        Ok(Database {
            product,
            server: Process::new(&group, "server", server)?,
            group,
            port,
            created: AtomicU32::new(0),
        })
    }

    /// Starts the server after it was stopped or killed, with the data it had, and waits until it answers.
    pub async fn start_again(&self) -> Result<()> {
        self.server.start()?;
        let probe = async || self.query(None, "SELECT 1").await.map(drop);
        self.server.ready(START_DEADLINE, probe).await
    }

    /// An orderly stop that does not wait for clients. For a freeze see [`Database::process`].
    pub async fn stop(&self) -> Result<()> {
        self.server.signal(match self.product {
            Product::Mariadb => Signal::TERM,
            Product::Postgresql => Signal::INT,
        })?;
        self.server.ended(Duration::from_secs(30)).await?;
        Ok(())
    }

    /// The server is gone at once, in the middle of whatever it does.
    pub fn crash(&self) -> Result<()> {
        match self.product {
            Product::Mariadb => self.server.kill()?,
            // Killed, it would leave the processes of its connections behind for a while.
            Product::Postgresql => self.server.signal(Signal::QUIT)?,
        }
        let started = Instant::now();
        while self.server.is_running() {
            ensure!(started.elapsed() < START_DEADLINE, "it runs on");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn product(&self) -> Product {
        self.product
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
        self.product.socket(self.group.directory(), self.port)
    }

    /// Runs statements as the administrator.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        self.query(None, sql).await.map(drop)
    }

    /// Runs statements as the administrator, in a database; the first column of what the last of them gives, as text.
    pub async fn query(&self, database: Option<&str>, sql: &str) -> Result<Vec<String>> {
        self.product.query(&self.socket(), database, sql).await
    }

    /// A new database of this name, in which these statements are run.
    pub async fn database(&self, name: &str, statements: &[impl AsRef<str>]) -> Result<()> {
        self.execute(&self.product.create_database(name)).await?;
        let statements: Vec<&str> = statements.iter().map(AsRef::as_ref).collect();
        if !statements.is_empty() {
            self.query(Some(name), &statements.join(";\n")).await?;
        }
        Ok(())
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
            product: self.product,
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
        self.database(&handle.database, &[] as &[&str]).await?;
        let grant = self.product.create_user(&handle);
        handle.execute(&grant).await?;
        Ok(handle)
    }
}

impl DatabaseHandle {
    /// Runs statements in the database, as its administrator.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let database = Some(self.database.as_str());
        self.product
            .query(&self.socket, database, sql)
            .await
            .map(drop)
    }
}

impl Product {
    pub const ALL: [Product; 2] = [Product::Mariadb, Product::Postgresql];

    /// The type of a hub's source, which is also the name of its block.
    pub fn source(self) -> &'static str {
        match self {
            Self::Mariadb => "mysql",
            Self::Postgresql => "postgresql",
        }
    }

    /// Around identifiers.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Mariadb => "`",
            Self::Postgresql => "\"",
        }
    }

    pub fn quote(self, name: &str) -> String {
        let mark = self.mark();
        format!("{mark}{}{mark}", name.replace(mark, &mark.repeat(2)))
    }

    /// A 1 that takes so long, in each row.
    pub fn slow(self, seconds: f32) -> String {
        match self {
            Self::Mariadb => format!("1 + SLEEP({seconds})"),
            Self::Postgresql => format!("CASE WHEN pg_sleep({seconds})::text = '' THEN 1 END"),
        }
    }

    fn create_database(self, name: &str) -> String {
        let name = self.quote(name);
        match self {
            Self::Mariadb => format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
            Self::Postgresql => format!("CREATE DATABASE {name}"),
        }
    }

    fn create_reader(self) -> String {
        match self {
            Self::Mariadb => {
                format!("CREATE USER {READER}@'%'; GRANT SELECT ON *.* TO {READER}@'%'")
            }
            Self::Postgresql => format!("CREATE ROLE {READER} LOGIN IN ROLE pg_read_all_data"),
        }
    }

    /// Statements for the user's database.
    fn create_user(self, handle: &DatabaseHandle) -> String {
        let DatabaseHandle {
            username,
            password,
            database,
            ..
        } = handle;
        match self {
            Self::Mariadb => format!(
                "CREATE USER '{username}'@'%' IDENTIFIED BY '{password}'; \
                 GRANT SELECT ON `{database}`.* TO '{username}'@'%'"
            ),
            Self::Postgresql => format!(
                "CREATE ROLE \"{username}\" LOGIN PASSWORD '{password}'; \
                 ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO \"{username}\""
            ),
        }
    }

    fn socket(self, directory: &Path, port: u16) -> PathBuf {
        match self {
            Self::Mariadb => directory.join("s"),
            Self::Postgresql => directory.join(format!("data/.s.PGSQL.{port}")),
        }
    }

    async fn query(self, socket: &Path, database: Option<&str>, sql: &str) -> Result<Vec<String>> {
        let rows = match self {
            Self::Mariadb => mariadb::query(socket, database, sql).await,
            Self::Postgresql => postgresql::query(socket, database, sql).await,
        };
        rows.with_context(|| format!("executing: {sql}"))
    }
}

/// A program that may lie in one of these directories, out of an ordinary user's `PATH`.
fn program(name: &str, directories: &[PathBuf]) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&path).chain(directories.iter().cloned());
    let mut command = Command::new(name);
    command.env("PATH", std::env::join_paths(paths)?);
    Ok(command)
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("running {:?}", command.get_program()))?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
