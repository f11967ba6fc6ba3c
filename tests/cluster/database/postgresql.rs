//! How PostgreSQL is installed, started and administered.

use std::fs::{self, Permissions};
use std::future::poll_fn;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tokio::net::UnixStream;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::{Options, READER, output_of, program};

/// Debian keeps the programs of each version in a directory of its own.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Its programs refuse to be root: this is whom the package makes for them.
const ACCOUNT: &str = "postgres";

/// What makes the data, and the server.
pub fn programs(directory: &Path, port: u16, options: &Options) -> Result<(Command, Command)> {
    let directories = newest()?;
    let data = directory.join("data");
    let mut install = program("initdb", &directories)?;
    install.arg("--pgdata").arg(&data).args([
        "--username=root",
        "--encoding=UTF8",
        "--locale=C",
        "--auth=trust",
        "--no-sync",
        "--no-instructions",
    ]);
    let mut server = program("postgres", &directories)?;
    server.arg("-D").arg(&data).arg("-p").arg(port.to_string());
    let mut set = |name: &str, value: &str| {
        server.arg("-c").arg(format!("{name}={value}"));
    };
    set("unix_socket_directories", &data.display().to_string());
    set("listen_addresses", "127.0.0.1");
    set("max_connections", "300");
    set("shared_buffers", "32MB");
    // The data need not survive the machine.
    for name in ["fsync", "full_page_writes"] {
        set(name, "off");
    }
    for argument in options.arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, "on"));
        set(name, value);
    }
    if options.tls.is_some() {
        set("ssl", "on");
        set("ssl_cert_file", "cert");
        set("ssl_key_file", "key");
    }
    if let Some((user, group)) = account()? {
        fs::create_dir(&data)?;
        chown(&data, Some(user), Some(group))?;
        fs::set_permissions(directory, Permissions::from_mode(0o711))?;
        for command in [&mut install, &mut server] {
            command.uid(user).gid(group);
        }
    }
    Ok((install, server))
}

/// What can only be written once there are data. The administrator is let in through the socket alone.
pub fn configure(directory: &Path, options: &Options) -> Result<()> {
    let host = match options.insists_on_tls {
        true => "hostssl",
        false => "host",
    };
    let access = format!(
        "local all root trust\n{host} all {READER} 127.0.0.1/32 trust\n{host} all by_md5 127.0.0.1/32 md5\n\
         {host} all by_password 127.0.0.1/32 password\n{host} all by_ident 127.0.0.1/32 ident\n\
         {host} all all 127.0.0.1/32 scram-sha-256\n"
    );
    let mut files = vec![("pg_hba.conf", &access)];
    if let Some((certificate, key)) = &options.tls {
        files.extend([("cert", certificate), ("key", key)]);
    }
    for (name, text) in files {
        let path = directory.join("data").join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if let Some((user, group)) = account()? {
            chown(&path, Some(user), Some(group))?;
        }
    }
    Ok(())
}

pub async fn query(socket: &Path, database: Option<&str>, sql: &str) -> Result<Vec<String>> {
    let stream = UnixStream::connect(socket).await?;
    let mut config = Config::new();
    config.user("root").dbname(database.unwrap_or("postgres"));
    let (client, mut connection) = config.connect_raw(stream, NoTls).await?;
    // Notices are passed over, and not logged.
    let moving =
        async { while let Some(Ok(_)) = poll_fn(|cx| connection.poll_message(cx)).await {} };
    let asking = async {
        let messages = client.simple_query(sql).await;
        drop(client);
        messages
    };
    let (messages, ()) = tokio::join!(asking, moving);
    let mut rows = vec![];
    for message in messages? {
        match message {
            SimpleQueryMessage::RowDescription(_) => rows.clear(),
            SimpleQueryMessage::Row(row) => rows.push(row.get(0).unwrap_or_default().to_owned()),
            _ => {}
        }
    }
    Ok(rows)
}

fn newest() -> Result<Vec<PathBuf>> {
    let Ok(versions) = fs::read_dir(VERSIONS) else {
        return Ok(vec![]);
    };
    let mut found = vec![];
    for entry in versions {
        let path = entry?.path();
        let version = path
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok());
        if let Some(version) = version {
            found.push((version, path.join("bin")));
        }
    }
    found.sort_by_key(|(version, _): &(u32, _)| std::cmp::Reverse(*version));
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// User and group to run as; none if this is no root.
fn account() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let id = |what| -> Result<u32> {
        let id = output_of(Command::new("id").args([what, ACCOUNT]))?;
        id.parse().with_context(|| {
            format!("there is no user {ACCOUNT}, whom the package of PostgreSQL makes")
        })
    };
    Ok(Some((id("-u")?, id("-g")?)))
}
