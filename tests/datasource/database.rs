//! A private MariaDB for a test, on a free port and in a directory of its own. It ends with the test process,
//! however that ends.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};

const START_TIME_MAX: Duration = Duration::from_secs(60);

pub struct Database {
    pub port: u16,
    directory: PathBuf,
    server: Child,
    /// Removes the directory when it is dropped or this process ends.
    _janitor: Child,
}

impl Database {
    /// One server for every test that leaves it running. Each takes a schema of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Database> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(&[]))
    }

    /// A server of the caller's own, to stop or to configure.
    pub fn start(arguments: &[&str]) -> Self {
        let (directory, janitor) = directory();
        copy(template(), &directory.join("data"));
        let port = free_port();
        let mut database = Self {
            port,
            server: spawn(&directory, port, arguments),
            directory,
            _janitor: janitor,
        };
        database.wait();
        database
    }

    /// Ends the server at once, as a crash does.
    pub fn kill(&mut self) {
        self.server.stdin = None;
        self.server.wait().expect("the server ends with its pipe");
    }

    /// Starts it again on the same port and data.
    pub fn restart(&mut self) {
        self.kill();
        self.server = spawn(&self.directory, self.port, &[]);
        self.wait();
    }

    /// Runs statements as root, in a new schema of this name.
    pub async fn schema(&self, name: &str, statements: &[&str]) {
        let name = name.replace('`', "``");
        let create = format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4");
        let mut connection = self.connect().await;
        for statement in [create.as_str(), &format!("USE `{name}`")]
            .into_iter()
            .chain(statements.iter().copied())
        {
            let done = connection.query_drop(statement).await;
            done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        connection.disconnect().await.expect("a clean end");
    }

    pub async fn query(&self, statement: &str) -> Vec<String> {
        let mut connection = self.connect().await;
        let rows = connection.query(statement).await.expect(statement);
        connection.disconnect().await.expect("a clean end");
        rows
    }

    /// Whether another client's query reads from this table or view.
    pub async fn is_read(&self, table: &str) -> bool {
        let find = format!(
            "SELECT info FROM information_schema.processlist WHERE info LIKE '%FROM `{table}`' AND id <> CONNECTION_ID()"
        );
        !self.query(&find).await.is_empty()
    }

    async fn connect(&self) -> Conn {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(self.port)
            .user(Some("root"))
            .prefer_socket(false);
        Conn::new(options).await.expect("a connection as root")
    }

    fn wait(&mut self) {
        let deadline = Instant::now() + START_TIME_MAX;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = self.server.try_wait().expect("a child process");
            assert!(ended.is_none(), "the server ended: {}", self.log());
            assert!(Instant::now() < deadline, "no server: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An initialised data directory, made once.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<(PathBuf, Child)> = OnceLock::new();
    let (made, _janitor) = TEMPLATE.get_or_init(|| {
        let (directory, janitor) = directory();
        let output = Command::new("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal"])
            .arg(format!("--user={}", user()))
            .arg(format!("--datadir={}", directory.display()))
            .output()
            .expect("mariadb-install-db of the package mariadb-server");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "mariadb-install-db: {said}");
        (directory, janitor)
    });
    made
}

/// A temporary directory, and the process that removes it. A value in a `static` is never dropped.
fn directory() -> (PathBuf, Child) {
    let directory = tempfile::tempdir().expect("a temporary directory").keep();
    let janitor = Command::new("sh")
        .args(["-c", r#"cat >/dev/null; sleep 1; rm -rf "$1""#, "sh"])
        .arg(&directory)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    (directory, janitor)
}

/// The shell kills the server when its standard input ends, which it does with this process at the latest, and
/// ends when the server does.
const KEEPER: &str = r#"exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ cat <&3 >/dev/null; kill -9 $server; } &
wait $server
kill $!"#;

fn spawn(directory: &Path, port: u16, arguments: &[&str]) -> Child {
    let log = fs::File::create(directory.join("log")).expect("a log file");
    Command::new("sh")
        .args(["-c", KEEPER, "sh"])
        .args(["mariadbd", "--no-defaults", "--bind-address=127.0.0.1"])
        .arg(format!("--user={}", user()))
        .arg(format!("--datadir={}", directory.join("data").display()))
        .arg(format!("--socket={}", directory.join("socket").display()))
        .arg(format!("--port={port}"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("a shell")
}

fn user() -> String {
    let output = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn copy(from: &Path, to: &PathBuf) {
    fs::create_dir(to).expect("a new directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
