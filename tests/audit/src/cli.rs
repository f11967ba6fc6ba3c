//! Arguments, and the run: one source feeds the judge until it ends, time is up, nothing happens any more, or Ctrl-C.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::core::{Audit, Input, Options};
use crate::report::Report;
use crate::source::etcd::Etcd;
use crate::source::watch::Watch;
use crate::source::{SourceError, log};

/// Follows what is stored and says whether lynqgate kept its promises: the window, the gate, and that every release had its
/// slot. Exit status: 0 held, 1 violated, 2 could not be concluded.
#[derive(Debug, Parser)]
#[command(name = "lynqgate-audit", version)]
struct Arguments {
    #[command(subcommand)]
    source: Source,
    #[command(flatten)]
    until: Until,
    #[command(flatten)]
    judge: Judge,
    /// How the report is printed.
    #[arg(short, long, value_enum, default_value = "text", global = true)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// Every revision, straight from etcd (objects must be stored as JSON; see the README).
    Etcd {
        #[arg(long, default_value = "http://127.0.0.1:2379")]
        endpoint: String,
        /// Certificates of the authority that signed etcd's (PEM).
        #[arg(long)]
        cacert: Option<PathBuf>,
        /// Client certificate (PEM).
        #[arg(long, requires = "key")]
        cert: Option<PathBuf>,
        /// Key of the client certificate (PEM).
        #[arg(long, requires = "cert")]
        key: Option<PathBuf>,
        /// The API server's --etcd-prefix.
        #[arg(long, default_value = "/registry")]
        prefix: String,
        /// Begin in the past, with this revision; 1 is the first. By default with the next one.
        #[arg(long)]
        from_revision: Option<u64>,
    },
    /// A live watch through the API server.
    Watch {
        /// Default: as kubectl finds it.
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        #[arg(long)]
        context: Option<String>,
        /// One namespace only. A window over forms in it is judged all the same: hub, forms and nodes live in one.
        #[arg(short, long)]
        namespace: Option<String>,
        /// Milliseconds that a revision waits for earlier ones of other kinds.
        #[arg(long, default_value_t = 1000)]
        hold_back: u64,
    },
    /// The API server's audit logs, with the bodies of the answers.
    Log {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Until {
    /// End when nothing that is followed was written for so many seconds.
    #[arg(long, global = true, value_name = "SECONDS")]
    until_idle: Option<u64>,
    /// End after so many seconds.
    #[arg(long, global = true, value_name = "SECONDS")]
    duration: Option<u64>,
}

#[derive(Debug, Args)]
struct Judge {
    /// The fleet must have converged at the end: nothing held, everything ready, ledgers empty.
    #[arg(long, global = true)]
    require_converged: bool,
    /// So many LynqNodes must there be at the end.
    #[arg(long, global = true, value_name = "COUNT")]
    expect_nodes: Option<usize>,
    /// How long the operator may act on a window or a pause that was just replaced (it sees the edit later than etcd).
    #[arg(long, global = true, default_value_t = 5, value_name = "SECONDS")]
    lag: u64,
    /// How long an object may be without what is live, and a form be wrong about being complete. A held node may be without a reason
    /// for 30 s, and for what this has above 60 s.
    #[arg(long, global = true, default_value_t = 60, value_name = "SECONDS")]
    settle: u64,
    /// Field manager by which the operator writes objects.
    #[arg(long, global = true, default_value = "lynq-operator")]
    field_manager: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Revisions that may wait for the judge.
const QUEUE: usize = 10_000;
/// At the end etcd may be asked what its newest revision is, and that much longer is waited for it.
const CATCH_UP: Duration = Duration::from_secs(15);

pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Fails only if another one was set before, and then that one is used.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("lynqgate-audit: cannot start: {error}");
            return ExitCode::from(2);
        }
    };
    let output = arguments.output;
    match runtime.block_on(run(arguments)) {
        Ok(report) => {
            match output {
                Output::Text => print!("{}", report.text()),
                Output::Json => println!(
                    "{}",
                    serde_json::to_string_pretty(&report).unwrap_or_default()
                ),
            }
            ExitCode::from(report.verdict.exit_status())
        }
        Err(error) => {
            eprintln!("lynqgate-audit: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: Arguments) -> Result<Report, SourceError> {
    let is_log = matches!(arguments.source, Source::Log { .. });
    let judge = arguments.judge;
    let mut audit = Audit::new(Options {
        manager: judge.field_manager,
        lag_ms: milliseconds(judge.lag),
        settle_ms: milliseconds(judge.settle),
        converged: judge.require_converged,
        nodes: judge.expect_nodes,
        every_revision: matches!(arguments.source, Source::Etcd { .. }),
    });
    let (sink, mut inputs) = mpsc::channel(QUEUE);
    // A watch holds back what it brings.
    let drain_for = match &arguments.source {
        Source::Watch { hold_back, .. } => Duration::from_millis(hold_back + 500),
        Source::Etcd { .. } | Source::Log { .. } => Duration::ZERO,
    };
    let (name, etcd, source) = start(arguments.source, sink);
    let mut source = tokio::spawn(source);
    let mut until = Deadlines::new(&arguments.until);
    let mut stop = Box::pin(interrupted());
    let mut following = false;
    loop {
        tokio::select! {
            () = &mut stop => break,
            () = until.reached() => break,
            input = inputs.recv() => match input {
                Some(input) => {
                    until.moved(&input);
                    let before = audit.violations();
                    audit.observe(input);
                    let violations = audit.violations();
                    if violations != before {
                        progress(&format!("{violations} violations so far"));
                    }
                    if !following && audit.revision() > 0 {
                        following = true;
                        progress(&format!("following from revision {}", audit.revision()));
                    }
                }
                None => break,
            },
        }
    }
    if let Some(etcd) = etcd
        && !catch_up(&etcd, &mut audit, &mut inputs).await
    {
        let why = "etcd could not be asked at the end whether there is more".to_owned();
        audit.observe(Input::Gap { why });
    }
    drain(&mut audit, &mut inputs, drain_for).await;
    inputs.close();
    while let Some(input) = inputs.recv().await {
        audit.observe(input);
    }
    if let Ok(ended) = (&mut source).await {
        ended.or_else(|error| {
            if matches!(error, SourceError::Closed) {
                Ok(())
            } else {
                Err(error)
            }
        })?;
    }
    let end = if is_log {
        Timestamp::UNIX_EPOCH
    } else {
        Timestamp::now()
    };
    Ok(Report::new(name, audit.finish(end)))
}

type Following = std::pin::Pin<Box<dyn Future<Output = Result<(), SourceError>> + Send>>;

fn start(source: Source, sink: mpsc::Sender<Input>) -> (String, Option<Etcd>, Following) {
    match source {
        Source::Etcd {
            endpoint,
            cacert,
            cert,
            key,
            prefix,
            from_revision,
        } => {
            let name = format!("etcd at {endpoint}, below {prefix}");
            let etcd = Etcd {
                endpoint,
                cacert,
                cert,
                key,
                prefix,
                from_revision,
            };
            (name, Some(etcd.clone()), Box::pin(etcd.follow(sink)))
        }
        Source::Watch {
            kubeconfig,
            context,
            namespace,
            hold_back,
        } => {
            let name = match &namespace {
                Some(namespace) => format!("a watch of the API server, namespace {namespace}"),
                None => "a watch of the API server".to_owned(),
            };
            let hold_back = Duration::from_millis(hold_back);
            let watch = Watch {
                kubeconfig,
                context,
                namespace,
                hold_back,
            };
            (name, None, Box::pin(watch.follow(sink)))
        }
        Source::Log { files } => {
            let names: Vec<String> = files
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            (
                format!("audit logs {}", names.join(", ")),
                None,
                Box::pin(log::follow(files, sink)),
            )
        }
    }
}

/// Judges what etcd has at this moment; false if that cannot be known.
async fn catch_up(etcd: &Etcd, audit: &mut Audit, inputs: &mut mpsc::Receiver<Input>) -> bool {
    let work = async {
        let newest = etcd.newest_followed().await.ok()?;
        while audit.revision() < newest {
            audit.observe(inputs.recv().await?);
        }
        Some(())
    };
    matches!(tokio::time::timeout(CATCH_UP, work).await, Ok(Some(())))
}

/// Judges what is on its way for so long.
async fn drain(audit: &mut Audit, inputs: &mut mpsc::Receiver<Input>, time: Duration) {
    let end = Instant::now() + time;
    while let Ok(Some(input)) = tokio::time::timeout_at(end, inputs.recv()).await {
        audit.observe(input);
    }
}

struct Deadlines {
    idle: Option<Duration>,
    idle_at: Option<Instant>,
    end_at: Option<Instant>,
}

impl Deadlines {
    fn new(until: &Until) -> Deadlines {
        let now = Instant::now();
        Deadlines {
            idle: until.until_idle.map(Duration::from_secs),
            idle_at: None,
            end_at: until
                .duration
                .map(|seconds| now + Duration::from_secs(seconds)),
        }
    }

    /// Something was written: the wait for idleness begins again. It first begins with the first thing seen.
    fn moved(&mut self, input: &Input) {
        if !matches!(input, Input::Unreadable { .. }) {
            self.idle_at = self.idle.map(|idle| Instant::now() + idle);
        }
    }

    async fn reached(&self) {
        match [self.idle_at, self.end_at].into_iter().flatten().min() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// Ctrl-C, or the signal by which a test or a container ends it.
async fn interrupted() {
    let mut terminate =
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(terminate) => terminate,
            Err(_) => return std::future::pending().await,
        };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}

fn milliseconds(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX / 4)
}

/// Whoever reads it may have gone; the report still counts.
fn progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "lynqgate-audit: {text}");
}
