//! The command line: reads arguments, and starts what they ask for.

// These panic where nobody reads any more: see `output`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod complete;
mod connection;
mod definitions;
mod diff;
mod drain;
mod eval;
mod explain;
mod file;
mod generate;
mod history;
mod manifests;
mod migrate;
mod orphans;
mod output;
mod render;
mod replay;
mod report;
mod rows;
mod run;
mod schema;
mod stateful_set;
mod status;
mod steer;
mod subject;
mod test;
pub mod webhooks;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use steer::{Verb, steer};

/// One set of Kubernetes resources per database row, and changes to them that cannot break everybody at once.
#[derive(Parser)]
#[command(name = "lynqgate", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator: serve the webhooks, and reconcile as the leader.
    Run(Box<run::Arguments>),
    /// Show the progress of all hubs and forms of a namespace, or of one hub, form, node or StatefulSet. Exit status 0: complete;
    /// 1: progressing; 2: degraded; 3: paused or halted; 4: the statuses could not be read.
    Status(status::Arguments),
    /// Check the installation, and the hubs and forms of a namespace. Prints each fault with the command or file that corrects
    /// it. Exit status 0: no check failed; 1: a check failed; 4: the API server did not answer.
    Check(check::Arguments),
    /// Show why a hub, a form, a node or a StatefulSet waits, what to do next, and when it continues.
    Explain(explain::Arguments),
    /// Show what the release of held nodes would change; or, with -f, what an apply of a form would change. Tenants that change
    /// in the same way share one diff, which has no values of Secrets. Exit status with -f: 0: nothing changes; 1: something
    /// changes, or does not render; 2: an error.
    Diff(diff::Arguments),
    /// Pause the rollout of a form: lynqgate releases none of its nodes until `resume`.
    Pause(steer::OfForm),
    /// Resume a paused rollout.
    Resume(steer::OfForm),
    /// Continue a halted rollout without the failed nodes.
    Retry(steer::OfForm),
    /// Continue a rollout that pauses after a group of `rollout.order`.
    Promote(steer::OfForm),
    /// List the revisions of a form, the newest first.
    History(history::Arguments),
    /// Set a form back to an earlier revision. lynqgate rolls that out like any other change.
    Undo(steer::Undo),
    /// Release one held node now, past its window.
    Release(steer::OfNode),
    /// Release all held changes of a hub, a form, a node or a StatefulSet at once, past every window, until `--off`.
    Force(steer::Force),
    /// Confirm the deletions and creations that a hub holds.
    Confirm(steer::OfHub),
    /// List or delete the objects that lynqgate left behind (deletionPolicy: Retain). A LynqNode that names such an object
    /// adopts it by itself.
    Orphans(orphans::Arguments),
    /// Write a report for support: hubs, forms, nodes, events, and how lynqgate runs. The report has no values of Secrets.
    Report(report::Arguments),
    /// Plan the saved state of the release loops (/debug/state) again, and show how the plans differ and why nodes wait. Exit
    /// status 1: a plan differs; 2: the state could not be planned.
    Replay(replay::Arguments),
    /// Render a form for one row, without a cluster or a database. Prints the LynqNode that the operator would write.
    Render(render::Arguments),
    /// Render a form for every row of a CSV file, without a cluster or a database. Validate the manifests against the schemas of
    /// their kinds, and compare them with golden files. Exit status 0: all rows rendered; 1: a row failed or was skipped, a
    /// manifest is invalid, or a golden file differs; 2: a file or a schema could not be read.
    Test(test::Arguments),
    /// Evaluate one template.
    Eval(eval::Arguments),
    /// Show what lynqgate would change in a cluster where Lynq runs. Writes nothing.
    Migrate(migrate::Arguments),
    /// Start or end the maintenance of a Kubernetes node, and follow it.
    Drain(drain::Arguments),
    /// Write lynqgate's manifests: CustomResourceDefinitions, RBAC, webhook configurations.
    Generate(generate::Arguments),
}

/// The exit status of a command that stopped waiting. (1 is a failure, and 2 wrong arguments.)
const UNFINISHED: u8 = 3;
/// That of statuses, and of a check, where the API server could not be asked.
const UNREAD: u8 = 4;
/// That of a replay, a test or a preview of what could not be read: with 1 a plan, a row or a tenant differs.
const NOT_BEGUN: u8 = 2;

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Text,
    Json,
}

/// As Lynq's own program, which is called `manager`, there are no commands, and a flag may have one dash.
fn as_lynqs(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.peekable();
    let called = given
        .peek()
        .and_then(|program| Path::new(program).file_name());
    if called.is_none_or(|name| name != "manager") {
        return given.collect();
    }
    let program = given.next();
    // A Deployment of Lynq's whose arguments have become lynqgate's.
    given.next_if(|first| first == "run");
    let flags = given.map(|flag| match flag.to_str() {
        Some(text) if text.starts_with('-') && !text.starts_with("--") => {
            OsString::from(format!("-{text}"))
        }
        _ => flag,
    });
    program
        .into_iter()
        .chain([OsString::from("run")])
        .chain(flags)
        .collect()
}

pub fn main() -> ExitCode {
    if let Some(answer) = complete::for_kubectl(Arguments::command()) {
        return ExitCode::from(u8::from(output::print(answer).is_err()));
    }
    // Answers a shell that asks for a completion, and goes on otherwise.
    clap_complete::CompleteEnv::with_factory(Arguments::command).complete();
    let done = match Arguments::parse_from(as_lynqs(std::env::args_os())).command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Status(arguments) => match status::status(&arguments) {
            Ok(verdict) => return ExitCode::from(verdict.exit_status()),
            Err(error) => Err(error.into()),
        },
        Command::Check(arguments) => match check::check(&arguments) {
            Ok(verdict) => return ExitCode::from(verdict.exit_status()),
            Err(error) => Err(error.into()),
        },
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Diff(arguments) => match diff::diff(&arguments) {
            Ok(changes) => return ExitCode::from(u8::from(changes)),
            Err(error) => Err(error),
        },
        Command::Pause(form) => steer(&Verb::Pause(&form)),
        Command::Resume(form) => steer(&Verb::Resume(&form)),
        Command::Retry(form) => steer(&Verb::Retry(&form)),
        Command::Promote(form) => steer(&Verb::Promote(&form)),
        Command::History(arguments) => history::history(&arguments),
        Command::Undo(undo) => steer(&Verb::Undo(&undo)),
        Command::Release(node) => steer(&Verb::Release(&node)),
        Command::Force(what) => steer(&Verb::Force(&what)),
        Command::Confirm(hub) => steer(&Verb::Confirm(&hub)),
        Command::Orphans(arguments) => orphans::orphans(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Render(arguments) => render::render(&arguments),
        Command::Test(arguments) => test::test(&arguments),
        Command::Eval(arguments) => eval::eval(&arguments),
        Command::Migrate(arguments) => migrate::migrate(&arguments),
        Command::Drain(arguments) => drain::drain(&arguments),
        Command::Generate(arguments) => generate::generate(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(format_args!("lynqgate: {error}"));
            match () {
                () if error.is::<drain::Unfinished>() => ExitCode::from(UNFINISHED),
                () if error.is::<status::Unread>() => ExitCode::from(UNREAD),
                () if error.is::<replay::Failed>() => ExitCode::from(NOT_BEGUN),
                () if error.is::<test::Untested>() => ExitCode::from(NOT_BEGUN),
                () if error.is::<diff::Unknown>() => ExitCode::from(NOT_BEGUN),
                () if error.is::<check::Unasked>() => ExitCode::from(UNREAD),
                () => ExitCode::FAILURE,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lynqs_arguments_run_the_operator() {
        let of_lynq = [
            "/manager",
            "--metrics-bind-address=:8443",
            "--leader-elect",
            "--health-probe-bind-address=:8081",
            "--metrics-cert-path=/tmp/k8s-metrics-server/metrics-certs",
            "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
            "-zap-log-level=debug",
            "--metrics-secure=true",
            "--enable-http2=false",
            "--hub-concurrency=3",
            "--form-concurrency=5",
            "-node-concurrency",
            "10",
            "--enable-pprof",
            "--zap-devel",
            "--zap-encoder=json",
            "--zap-stacktrace-level=error",
            "--zap-time-encoding=iso8601",
            "--leader-elect=False",
            "--hub-concurrency=0",
            "--metrics-secure=t",
            "--kubeconfig=",
            "--metrics-cert-path=",
            "--health-probe-bind-address=",
        ];
        for of_lynq in [&of_lynq[..], &["/manager", "run", "--leader-elect"]] {
            let given = as_lynqs(of_lynq.iter().map(OsString::from));
            let parsed = Arguments::try_parse_from(given).map_err(|error| error.to_string());
            assert!(matches!(parsed.unwrap().command, Command::Run(_)));
        }
        let own = ["lynqgate", "explain", "node", "a", "-n", "b"].map(OsString::from);
        assert_eq!(as_lynqs(own.clone().into_iter()), own);
    }

    #[test]
    fn status_takes_a_kind_with_a_name() {
        for (given, is_good) in [
            (&[][..], true),
            (&["hub", "tenants"], true),
            (&["lform", "web"], true),
            (&["sts", "db", "--watch"], true),
            (&["statefulset"], false),
            (&["lform"], false),
            (&["pod", "db-0"], false),
        ] {
            let given = [&["lynqgate", "status"][..], given].concat();
            let parsed = Arguments::try_parse_from(&given);
            assert_eq!(parsed.is_ok(), is_good, "{given:?}");
        }
    }

    #[test]
    fn kubectl_completes_the_last_word() {
        for (words, expected) in [
            (&["sta"][..], "status\n:4\n"),
            (&["explain", ""], "hub\nform\nnode\nstatefulset\n:4\n"),
            (&["status", "s"], "statefulset\n:4\n"),
            (&["status", "--wat"], "--watch\n:4\n"),
            (&["status", "-o", ""], "text\njson\n:4\n"),
            (&["status", "-o", "x"], ":4\n"),
            (&["diff", "-f", "go-templ"], "go-templates/\n:6\n"),
        ] {
            let given = words.iter().map(OsString::from);
            let answer = complete::answer(Arguments::command(), given);
            assert_eq!(answer, expected, "{words:?}");
        }
    }

    #[test]
    fn diff_takes_a_kind_and_a_name_or_a_file() {
        for (given, is_good) in [
            (&["form", "web"][..], true),
            (&["-f", "form.yaml"], true),
            (&["-f", "-", "--rows", "rows.csv", "-o", "json"], true),
            (&[], false),
            (&["form"], false),
            (&["form", "web", "-f", "form.yaml"], false),
            (&["form", "web", "--rows", "rows.csv"], false),
            (&["node", "acme-web", "-o", "json"], false),
        ] {
            let given: Vec<&str> = ["lynqgate", "diff"]
                .into_iter()
                .chain(given.iter().copied())
                .collect();
            let parsed = Arguments::try_parse_from(&given);
            assert_eq!(parsed.is_ok(), is_good, "{given:?}");
        }
    }
}
