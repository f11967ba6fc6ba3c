//! `lynqgate status`: how far the hubs, forms, nodes and StatefulSets of a namespace are, on one screen; follows a rollout to its end,
//! and says with its exit status how that went.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use jiff::SignedDuration;
use tokio::time::sleep;

use crate::cli::Output;
use crate::cli::complete;
use crate::cli::connection::{AnyError, Connected, Connection, may_pass, run};
use crate::cli::output::{print, tell};
use crate::cli::stateful_set;
use crate::cli::subject::Subject;
use crate::cluster::catalog::{Form, Hub};
use crate::cluster::clock;
use crate::decide::node::digest::NodeDigest;
use crate::decide::rollout::explain::Leader;
use crate::decide::rollout::history::{self, Reverted};
use crate::decide::rollout::overview::{self, Overview, Part, Style, Verdict};

/// Between two reads of the statuses.
const EVERY: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct Arguments {
    /// hub, form, node or statefulset. Default: all hubs and forms of the namespace.
    #[arg(requires = "name")]
    kind: Option<Subject>,
    /// Name of the hub, form, node or StatefulSet.
    #[arg(add = ArgValueCandidates::new(complete::any))]
    name: Option<String>,
    /// Follow the status until nothing is progressing.
    #[arg(short, long)]
    watch: bool,
    /// Stop following after this time, such as 90s, 10m or 1h. The exit status is that of the last status.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "watch")]
    timeout: Option<Duration>,
    /// Output format.
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// The statuses could not be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unread(AnyError);

fn duration(text: &str) -> Result<Duration, String> {
    let duration: Result<SignedDuration, _> = text.parse();
    let duration = duration.ok().and_then(|it| Duration::try_from(it).ok());
    duration.ok_or_else(|| "give a duration such as 90s, 10m or 1h".to_owned())
}

pub fn status(arguments: &Arguments) -> Result<Verdict, Unread> {
    run(follow(arguments)).map_err(Unread)
}

async fn follow(arguments: &Arguments) -> Result<Verdict, AnyError> {
    let cluster = arguments.connection.connect().await?;
    let is_coloured = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let style = match is_coloured {
        true => Style::Terminal,
        false => Style::Plain,
    };
    let (began, mut shown) = (clock::instant(), None);
    loop {
        let is_over = (arguments.timeout).is_some_and(|timeout| began.elapsed() >= timeout);
        let now = match read(arguments, &cluster).await {
            // The API server may be away for a moment: the rollout goes on meanwhile.
            Err(error) if arguments.watch && !is_over && may_pass(&error) => {
                tell(error);
                sleep(EVERY).await;
                continue;
            }
            read => read?,
        };
        let is_last = !arguments.watch || is_over || now.verdict != Verdict::Progressing;
        match (arguments.output, style) {
            (Output::Json, _) if is_last => {
                print(serde_json::to_string_pretty(&now)? + "\n")?;
            }
            (Output::Json, _) => {}
            // From the top left, over what stood there.
            (Output::Text, Style::Terminal) if arguments.watch => {
                let screen = now.screen(style).replace('\n', "\x1b[K\n");
                print(format_args!("\x1b[H{screen}\x1b[J"))?;
            }
            (Output::Text, _) if is_last => print(now.screen(style))?,
            (Output::Text, _) => {
                let line = now.line();
                if shown.as_ref() != Some(&line) {
                    print(format_args!("{line}\n"))?;
                }
                shown = Some(line);
            }
        }
        if is_last {
            return Ok(now.verdict);
        }
        sleep(EVERY).await;
    }
}

async fn read(arguments: &Arguments, cluster: &Connected) -> Result<Overview, AnyError> {
    let name = arguments.name.as_deref().unwrap_or_default();
    // What a lease is for: hubs, and StatefulSets.
    let mut led = vec![];
    let parts = match arguments.kind {
        Some(Subject::Node) => {
            let node = NodeDigest::of(&cluster.get("LynqNode", name).await?, None);
            let form = match node.held() || !node.is_ready() {
                true => cluster.find("LynqForm", &node.form).await?,
                false => None,
            };
            let form = form.map(|form| Form::of(&form));
            let form = form.filter(|form| form.hub_id == node.hub);
            led.push(node.hub.clone());
            vec![overview::of_node(
                &node,
                form.as_ref().map(of_form).as_ref(),
            )]
        }
        Some(Subject::StatefulSet) => {
            let set = stateful_set::ask(cluster, name).await?;
            led.extend(set.gated.then(|| set.name.clone()));
            vec![overview::of_stateful_set(&set)]
        }
        Some(Subject::Form) => {
            let form = Form::of(&cluster.get("LynqForm", name).await?);
            led.push(form.hub_id.clone());
            vec![of_form(&form)]
        }
        Some(Subject::Hub) => {
            let hub = Hub::of(&cluster.get("LynqHub", name).await?);
            let forms = cluster.list("LynqForm").await?;
            led.push(hub.name.clone());
            of_hub(&hub, &mut forms.iter().map(Form::of).collect())
        }
        None => {
            let all = cluster.list("LynqHub").await?;
            let forms = cluster.list("LynqForm").await?;
            let mut forms = forms.iter().map(Form::of).collect();
            let all: Vec<Hub> = all.iter().map(Hub::of).collect();
            led.extend(all.iter().map(|hub| hub.name.clone()));
            let mut parts: Vec<Part> = all.iter().flat_map(|hub| of_hub(hub, &mut forms)).collect();
            // Their hubs are not there.
            parts.extend(forms.iter().map(of_form));
            if parts.is_empty() {
                let namespace = &cluster.namespace;
                let text = format!(
                    "there is no LynqHub and no LynqForm in namespace {namespace:?}; give another with -n"
                );
                return Err(text.into());
            }
            parts
        }
    };
    let now = clock::now();
    let mut leader = Leader::Leads;
    for name in led.iter().filter(|name| !name.is_empty()) {
        if leader == Leader::Leads {
            leader = cluster.leader(name, now).await;
        }
    }
    Ok(Overview::of(parts, &leader))
}

/// The hub with its forms, which are taken out of `forms`.
fn of_hub(hub: &Hub, forms: &mut Vec<Form>) -> Vec<Part> {
    let mut parts = vec![overview::of_hub(&hub.name, hub.generation, &hub.status)];
    let of_hub = forms.extract_if(.., |form| form.hub_id == hub.name);
    parts.extend(of_hub.map(|form| of_form(&form)));
    parts
}

pub fn of_form(form: &Form) -> Part {
    let reverted = Reverted::of(&form.annotations).map(|reverted| reverted.from);
    let reverts = form.spec.as_ref().is_ok_and(|spec| {
        history::reverts_to(spec, form.generation, &form.status, reverted).is_some()
    });
    overview::of_form(form.told(), reverts, clock::now())
}
