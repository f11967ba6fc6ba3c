//! Flags are read as Lynq's operator reads them, so that its Deployment's arguments go on working; here are those that change nothing.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

use crate::decide::template::number;

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

/// One that is empty counts as not given.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

pub fn given(path: &Option<PathBuf>) -> Option<&PathBuf> {
    path.as_ref().filter(|path| !path.as_os_str().is_empty())
}

#[derive(clap::Args)]
pub struct OfLynq {
    /// Lynq's: not needed, forms are part of the work on their hubs.
    #[arg(long, value_name = "N", value_parser = count)]
    form_concurrency: Option<usize>,
    /// Lynq's: not used. lynqgate makes the certificate of its webhooks itself, and renews it.
    #[arg(long, value_name = "DIRECTORY")]
    webhook_cert_path: Option<String>,
    /// Lynq's: not used, like --webhook-cert-path.
    #[arg(long, value_name = "FILE")]
    webhook_cert_name: Option<String>,
    /// Lynq's: not used, like --webhook-cert-path.
    #[arg(long, value_name = "FILE")]
    webhook_cert_key: Option<String>,
    /// Lynq's: not used, HTTP/1.1 is all that is served.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    enable_http2: bool,
    /// Lynq's: not used, there is no such profile of a program that is not written in Go.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    enable_pprof: bool,
    /// Lynq's: the same as --zap-encoder=console --zap-log-level=debug, where these are not given.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = truth)]
    pub zap_devel: bool,
    /// Lynq's: not used, no stack is logged.
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Lynq's: not used, times are logged as RFC 3339 has them.
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

/// The filter of a level as zap has them (a word, or a number that grows with the detail), or of one of tracing's own.
pub fn log_filter(level: &str) -> Result<EnvFilter, ParseError> {
    let level = match level.to_ascii_lowercase().as_str() {
        "panic" | "dpanic" | "fatal" => "error",
        "0" => "info",
        "1" => "debug",
        number if number.parse::<u32>().is_ok() => "trace",
        _ => level,
    };
    EnvFilter::try_new(level)
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

    #[test]
    fn levels_are_zaps_or_tracings() {
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
        assert!(log_filter("a=b=c").is_err());
    }
}
