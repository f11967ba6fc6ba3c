//! The command line: reads arguments, and starts what they ask for.

mod eval;
mod explain;
mod file;
mod generate;
mod manifests;
mod render;
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
    /// Render a form for one row, without a cluster and a database: the LynqNode that the operator would write.
    Render(render::Arguments),
    /// Evaluate one template.
    Eval(eval::Arguments),
    /// Write the manifests that follow from the code: CRDs, RBAC, webhook configurations.
    Generate(generate::Arguments),
}

pub fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Render(arguments) => render::render(&arguments),
        Command::Eval(arguments) => eval::eval(&arguments),
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
