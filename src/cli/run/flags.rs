//! Flags are read as Lynq's operator reads them, so that its Deployment's arguments go on working; here are those that change nothing.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, OsStringValueParser, TypedValueParser};
use go_templates::number;
use tracing_subscriber::EnvFilter;

use crate::api::names;
use crate::controller::maintenance::Settings;
use crate::decide::hub::hosts::Listed;
use crate::decide::maintenance::Policy;
use crate::decide::maintenance::drain::Allowed;

/// As Go reads it.
pub fn truth(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false"),
    }
}

/// A whole number as Go reads it, in the base that its prefix names. What is less than 0 is as good as 0.
pub fn count(text: &str) -> Result<usize, &'static str> {
    let number = number::int(text).ok_or("give a whole number")?;
    usize::try_from(number.max(0)).map_err(|_| "it is too large")
}

/// More would be more leases to renew than work to divide.
const SHARDS_MAX: usize = 64;

pub fn shards(text: &str) -> Result<usize, &'static str> {
    let shards = count(text)?;
    match (1..=SHARDS_MAX).contains(&shards) {
        true => Ok(shards),
        false => Err("give a number from 1 to 64"),
    }
}

/// One that is empty counts as not given.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

pub fn given(path: &Option<PathBuf>) -> Option<&PathBuf> {
    path.as_ref().filter(|path| !path.as_os_str().is_empty())
}

/// An entry of --allow-datasource-hosts.
pub fn listed(text: &str) -> Result<Listed, &'static str> {
    Listed::parse(text.trim())
}

/// The longest name of a namespace.
const NAMESPACE_CHARS_MAX: usize = 63;

/// An entry of --watch-namespaces.
pub fn namespace(text: &str) -> Result<String, &'static str> {
    let name = text.trim();
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=NAMESPACE_CHARS_MAX).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    match is_name {
        true => Ok(name.to_owned()),
        false => Err("give the names of namespaces, with commas in between, such as tenants,shops"),
    }
}

/// Where to listen, in Go's form: without a host everywhere. A name is looked up when it is listened to.
pub fn address(text: &str) -> Result<String, &'static str> {
    match is_address(text) {
        true => Ok(text.to_owned()),
        false => Err("give :PORT or HOST:PORT ([ADDRESS]:PORT for IPv6), with a port up to 65535"),
    }
}

/// The same, or nowhere. What is empty says the one who listens.
pub fn address_or_none(text: &str) -> Result<String, &'static str> {
    match ["", "0"].contains(&text) || is_address(text) {
        true => Ok(text.to_owned()),
        false => Err(
            "give :PORT or HOST:PORT ([ADDRESS]:PORT for IPv6), with a port up to 65535, or 0 for nowhere",
        ),
    }
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let bracketed = host.strip_prefix('[').map(|rest| rest.strip_suffix(']'));
    let is_host = match bracketed {
        Some(inside) => inside.is_some_and(|inside| {
            let (address, _zone) = inside.split_once('%').unwrap_or((inside, ""));
            address.parse::<Ipv6Addr>().is_ok()
        }),
        None => host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    is_port && is_host
}

/// Where the API server finds the webhooks of an operator outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl {
    pub base: String,
    /// What its certificate is for.
    pub host: String,
}

/// A URL that the API server takes: it has no query, and nobody logs in.
pub fn webhook_url(text: &str) -> Result<WebhookUrl, &'static str> {
    let read = || {
        let url: http::Uri = text.parse().ok()?;
        let authority = url.authority()?.as_str();
        let host = url.host().filter(|host| !host.is_empty())?;
        let good = url.scheme_str() == Some("https")
            && url.query().is_none()
            && !text.contains('#')
            && (authority == host || url.port_u16().is_some() && !authority.contains('@'));
        good.then(|| WebhookUrl {
            base: text.to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
        })
    };
    read().ok_or("give https://HOST:PORT, such as https://10.0.0.5:9443")
}

#[derive(clap::Args)]
pub struct OfMaintenance {
    /// Cordon and drain Kubernetes nodes that have the annotation lifecycle.metal3.io/maintenance (seconds), under a Lease.
    /// Needs the rights of the component node-maintenance.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    node_maintenance: bool,
    /// Holder of these Leases. A program with another holder leaves a Kubernetes node alone while lynqgate holds its Lease.
    #[arg(long, default_value = names::DEFAULT_HOLDER, value_parser = NonEmptyStringValueParser::new())]
    maintenance_holder: String,
    /// Number of Kubernetes nodes in maintenance at a time, at least 1; the others wait.
    #[arg(long, default_value = "1", value_parser = count)]
    max_nodes_in_maintenance: usize,
    /// Evict pods with emptyDir volumes, too. The data in these volumes are lost.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    drain_emptydir_pods: bool,
    /// Evict pods without a controller, too. No controller creates them again.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    drain_unmanaged_pods: bool,
}

impl OfMaintenance {
    /// None: Kubernetes nodes are left alone.
    pub fn settings(&self) -> Option<Settings> {
        self.node_maintenance.then(|| Settings {
            policy: Policy {
                holder: self.maintenance_holder.clone(),
                nodes_max: self.max_nodes_in_maintenance.max(1),
            },
            allowed: Allowed {
                empty_dir: self.drain_emptydir_pods,
                unmanaged: self.drain_unmanaged_pods,
            },
        })
    }
}

#[derive(clap::Args)]
pub struct OfLynq {
    /// Lynq's flag, ignored: lynqgate reconciles forms with their hubs.
    #[arg(long, value_name = "N", value_parser = count)]
    form_concurrency: Option<usize>,
    /// Lynq's flag, ignored: lynqgate creates and renews the certificate of its webhooks itself.
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_path: Option<String>,
    /// Lynq's flag, ignored like --webhook-cert-path.
    #[arg(long, value_name = "FILE")]
    webhook_cert_name: Option<String>,
    /// Lynq's flag, ignored like --webhook-cert-path.
    #[arg(long, value_name = "FILE")]
    webhook_cert_key: Option<String>,
    /// Lynq's flag, ignored: lynqgate serves HTTP/1.1 only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    enable_http2: bool,
    /// Lynq's flag, ignored: only programs in Go have such profiles.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    enable_pprof: bool,
    /// Lynq's flag: sets --zap-encoder=console and --zap-log-level=debug, unless they are given.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    pub zap_devel: bool,
    /// Lynq's flag, ignored: lynqgate logs no stack traces.
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Lynq's flag, ignored: lynqgate logs times in RFC 3339.
    #[arg(long, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,
}

impl OfLynq {
    /// What is said of those that were given.
    pub fn unused(&self) -> Vec<&'static str> {
        let certificate = [
            &self.webhook_cert_path,
            &self.webhook_cert_name,
            &self.webhook_cert_key,
        ];
        let given = [
            (
                self.form_concurrency.is_some(),
                "--form-concurrency is not needed: forms are part of the work on their hubs (--hub-concurrency)",
            ),
            (
                certificate.iter().any(|flag| flag.is_some()),
                "--webhook-cert-path, -name and -key are not used: lynqgate makes the certificate of its webhooks itself, and renews it",
            ),
            (
                self.enable_http2,
                "--enable-http2 is not used: HTTP/1.1 is all that is served",
            ),
            (
                self.enable_pprof,
                "--enable-pprof is not used: there is no such profile of a program that is not written in Go",
            ),
            (
                self.zap_stacktrace_level.is_some(),
                "--zap-stacktrace-level is not used: no stack is logged",
            ),
            (
                self.zap_time_encoding.is_some(),
                "--zap-time-encoding is not used: times are logged as RFC 3339 has them",
            ),
        ];
        let given = given.into_iter().filter(|(given, _)| *given);
        given.map(|(_, said)| said).collect()
    }
}

/// A level that [`log_filter`] takes.
pub fn log_level(text: &str) -> Result<String, &'static str> {
    log_filter(text).map(|_| text.to_owned())
}

/// The filter of a level as zap has them (a word, or a number that grows with the detail), or of one of tracing's own.
pub fn log_filter(level: &str) -> Result<EnvFilter, &'static str> {
    const WANTED: &str = "give debug, info, error or panic, a number from 1 on, warn, trace or off, or a filter such as \
                          lynqgate=debug,info";
    let level = match level.to_ascii_lowercase().as_str() {
        "panic" | "dpanic" | "fatal" => "error",
        "0" => "info",
        "1" => "debug",
        number if number.parse::<u32>().is_ok() => "trace",
        _ => level,
    };
    // To tracing, any other word is the name of a module, of which everything is logged, and nothing of the rest.
    let names_level = |directive: &str| {
        let level = directive.rsplit('=').next().unwrap_or_default().trim();
        let known = ["off", "error", "warn", "info", "debug", "trace"];
        known.contains(&level.to_ascii_lowercase().as_str())
    };
    match level.split(',').all(names_level) {
        true => EnvFilter::try_new(level).map_err(|_| WANTED),
        false => Err(WANTED),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::cli::run::{Arguments, Encoder};

    fn given(flags: &[&str]) -> OfLynq {
        let command = OfLynq::augment_args(Command::new("run").no_binary_name(true));
        OfLynq::from_arg_matches(&command.get_matches_from(flags)).unwrap()
    }

    #[test]
    fn each_flag_without_effect_is_told() {
        assert!(given(&[]).unused().is_empty());
        assert!(
            given(&["--zap-devel", "--enable-http2=false"])
                .unused()
                .is_empty()
        );
        for flag in [
            "--form-concurrency=5",
            "--form-concurrency=0x5",
            "--webhook-cert-path=/certs",
            "--webhook-cert-name=tls.crt",
            "--webhook-cert-key=tls.key",
            "--enable-http2",
            "--enable-pprof=true",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=epoch",
        ] {
            let said = given(&[flag]).unused();
            let name = flag.split('=').next().unwrap();
            let of_certificate = name.starts_with("--webhook-cert");
            assert!(
                matches!(said[..], [said] if said.starts_with(name) || of_certificate && said.contains("-cert-")),
                "{flag}: {said:?}"
            );
        }
    }

    #[test]
    fn flags_are_read_as_gos() {
        let read = |flags: &[&str]| {
            let command = Arguments::augment_args(Command::new("run").no_binary_name(true));
            let matches = command.try_get_matches_from(flags).ok()?;
            Arguments::from_arg_matches(&matches).ok()
        };
        for (text, number) in [
            ("5", 5),
            ("0x5", 5),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
            ("+5", 5),
            ("-5", 0),
        ] {
            for flag in [
                "--hub-concurrency",
                "--node-concurrency",
                "--form-concurrency",
            ] {
                let read = read(&[&format!("{flag}={text}")]).map(|read| match flag {
                    "--hub-concurrency" => read.hub_concurrency,
                    "--node-concurrency" => read.node_concurrency,
                    _ => read.of_lynq.form_concurrency.unwrap_or_default(),
                });
                assert_eq!(read, Some(number), "{flag}={text}");
            }
        }
        for text in [
            "",
            "five",
            "5.0",
            "0x",
            "089",
            "1e3",
            "99999999999999999999",
        ] {
            assert!(
                read(&[&format!("--hub-concurrency={text}")]).is_none(),
                "{text}"
            );
        }
        for text in ["console", "Console", "JSON"] {
            let read = read(&[&format!("--zap-encoder={text}")]);
            let console = read.map(|read| read.zap_encoder == Some(Encoder::Console));
            assert_eq!(console, Some(text != "JSON"), "{text}");
        }
        assert!(read(&["--zap-encoder=xml"]).is_none());
    }

    fn refused(flag: &str) -> String {
        let command = Arguments::augment_args(Command::new("run").no_binary_name(true));
        let refused = command.try_get_matches_from([flag]).err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_listened_to_is_refused_with_the_flags_name() {
        const NOWHERE: [&str; 2] = ["", "0"];
        for flag in [
            "--metrics-bind-address",
            "--health-probe-bind-address",
            "--webhook-bind-address",
        ] {
            for good in [
                ":8080",
                ":0",
                "0.0.0.0:8080",
                "localhost:65535",
                "my-host.example:1",
                "[::]:8080",
                "[fe80::1%eth0]:80",
            ] {
                assert_eq!(refused(&format!("{flag}={good}")), "", "{flag} {good}");
            }
            for bad in [
                ":99999",
                "8080",
                "localhost",
                ":",
                ":http",
                ":-1",
                ":+80",
                "::8080",
                "[::]",
                "[x]:80",
                "http://a:80",
                "a b:80",
                "1",
            ] {
                let said = refused(&format!("{flag}={bad}"));
                let names = said.contains(flag) && said.contains("give :PORT or HOST:PORT");
                assert!(names, "{flag} {bad}: {said}");
            }
            for nowhere in NOWHERE {
                let is_refused = !refused(&format!("{flag}={nowhere}")).is_empty();
                assert_eq!(
                    is_refused,
                    flag == "--webhook-bind-address",
                    "{flag} {nowhere}"
                );
            }
        }
    }

    #[test]
    fn a_url_that_the_api_server_would_not_take_is_refused_with_the_flags_name() {
        for (good, host) in [
            ("https://10.0.0.5:9443", "10.0.0.5"),
            ("https://gate.example", "gate.example"),
            ("https://gate.example:9443/", "gate.example"),
            ("https://gate.example/behind/a/proxy", "gate.example"),
            ("https://[fd00::1]:9443", "fd00::1"),
        ] {
            assert_eq!(webhook_url(good).unwrap().host, host);
            assert_eq!(refused(&format!("--webhook-url={good}")), "");
        }
        for bad in [
            "",
            "foo",
            "10.0.0.5:9443",
            "http://a:80",
            "https://",
            "https://a:99999",
            "https://a:",
            "https://a/?b=c",
            "https://a/#b",
            "https://u:p@a:9443",
            "https://u@a",
        ] {
            let said = refused(&format!("--webhook-url={bad}"));
            let names = said.contains("--webhook-url") && said.contains("give https://HOST:PORT");
            assert!(names, "{bad}: {said}");
        }
    }

    #[test]
    fn hosts_that_cannot_be_listed_are_refused_with_the_flags_name() {
        for good in ["*.example.com,10.0.0.0/8", "db, fd00::/8", "127.0.0.1"] {
            let flag = format!("--allow-datasource-hosts={good}");
            assert_eq!(refused(&flag), "", "{good}");
        }
        for bad in ["", "db:3306", "10.0.0.0/33", "db,https://db"] {
            let said = refused(&format!("--allow-datasource-hosts={bad}"));
            let names =
                said.contains("--allow-datasource-hosts") && said.contains("give a host name");
            assert!(names, "{bad}: {said}");
        }
    }

    #[test]
    fn what_is_no_name_of_a_namespace_is_refused_with_the_flags_name() {
        let longest = "a".repeat(NAMESPACE_CHARS_MAX);
        for good in ["tenants", "tenants,shops", "a, 1-b", &longest] {
            let flag = format!("--watch-namespaces={good}");
            assert_eq!(refused(&flag), "", "{good}");
        }
        let too_long = longest.clone() + "a";
        for bad in ["", "tenants,", "Tenants", "a.b", "-a", "a-", "*", &too_long] {
            let said = refused(&format!("--watch-namespaces={bad}"));
            let names = said.contains("--watch-namespaces")
                && said.contains("give the names of namespaces");
            assert!(names, "{bad}: {said}");
        }
    }

    #[test]
    fn levels_are_zaps_or_tracings() {
        let said = refused("--zap-log-level=foo");
        let names =
            said.contains("--zap-log-level") && said.contains("give debug, info, error or panic");
        assert!(names, "{said}");
        for (level, filter) in [
            ("info", "info"),
            ("panic", "error"),
            ("Panic", "error"),
            ("DEBUG", "debug"),
            ("0", "info"),
            ("1", "debug"),
            ("7", "trace"),
            ("lynqgate=debug,warn", "lynqgate=debug,warn"),
        ] {
            assert_eq!(log_filter(level).unwrap().to_string(), filter, "{level}");
        }
        for level in [
            "",
            "foo",
            "lynqgate",
            "lynqgate=foo",
            "lynqgate=",
            "info,foo",
            "info,",
            "-1",
            "1.5",
            "a=b=c",
            "a=b=debug",
        ] {
            assert!(log_filter(level).is_err(), "{level}");
        }
    }
}
