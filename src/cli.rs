//! The command line: reads arguments, and starts what they ask for.

mod explain;
mod generate;
mod manifests;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One set of Kubernetes resources per database row, and changes to them that cannot break everybody at once.
#[derive(Parser)]
#[command(name = "lynqgate", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the operator: the webhooks, and, as the leader, the loops.
    Run(Box<run::Arguments>),
    /// Tell why a node or a form waits, what must happen, and when that may be.
    Explain(explain::Arguments),
    /// Write the manifests that follow from the code: CRDs, RBAC, webhook configurations.
    Generate(generate::Arguments),
}

pub fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Generate(arguments) => generate::generate(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lynqgate: {error}");
            ExitCode::FAILURE
        }
    }
}
