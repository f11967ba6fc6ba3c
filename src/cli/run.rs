//! `lynqgate run`: puts the parts together and takes them apart again in order.

mod flags;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use flags::{OfLynq, OfMaintenance, WebhookUrl};
use prometheus_client::registry::Registry;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use webhook_certs::WebhookCerts;

use crate::api::names;
use crate::cli::manifests::{self, Address};
use crate::cli::webhooks;
use crate::cluster::client;
use crate::cluster::events::Events;
use crate::cluster::lease::{Election, Leader, identity};
use crate::cluster::objects::{ApiError, Objects};
use crate::cluster::vital;
use crate::controller::decisions::Decide;
use crate::controller::hub::Databases;
use crate::controller::installation::Installation;
use crate::controller::maintenance::metrics::Metrics as MaintenanceMetrics;
use crate::controller::maintenance::{Maintenance, lead_with};
use crate::controller::metrics::Metrics;
use crate::controller::metrics::lynq::LynqMetrics;
use crate::controller::metrics::process::ProcessMetrics;
use crate::controller::{Workers, World};
use crate::datasource::database::panics;
use crate::decide::child::key_of;
use crate::decide::hub::hosts::{Hosts, Listed};
use crate::decide::operator::watched::WatchedNamespaces;
use crate::server::webhook::authors::Authors;
use crate::server::webhook::definitions;
use crate::server::{access, files, metrics, probes, state, tls, webhook};

/// Of a flag that is given twice, the last counts, as with Go's flags.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Kubeconfig to use. Default: the KUBECONFIG variable, ~/.kube/config, or the service account of the pod.
    #[arg(long, value_parser = flags::path())]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the operator, with its lease and its certificate Secret.
    #[arg(long, env = "POD_NAMESPACE", default_value = "lynq-system")]
    namespace: String,
    /// Address of the metrics; 0 disables them.
    #[arg(long, default_value = "0", value_parser = flags::address_or_none)]
    metrics_bind_address: String,
    /// Serve metrics and /debug/state over TLS, and only to clients that the API server allows to get that path.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = flags::truth)]
    metrics_secure: bool,
    /// Directory of the metrics' certificate. Default: the certificate of the webhooks.
    #[arg(long, value_parser = flags::path())]
    metrics_cert_path: Option<PathBuf>,
    /// File name of the metrics' certificate in that directory.
    #[arg(long, default_value = "tls.crt")]
    metrics_cert_name: String,
    /// File name of the certificate's key in that directory.
    #[arg(long, default_value = "tls.key")]
    metrics_cert_key: String,
    /// Whether each node has its own metric series, under Lynq's names. With false, the number of series depends on the number
    /// of forms only.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = flags::truth)]
    node_metrics: bool,
    /// Address of /healthz and /readyz; 0 disables them.
    #[arg(long, default_value = ":8081", value_parser = flags::address_or_none)]
    health_probe_bind_address: String,
    /// Address of the webhooks.
    #[arg(long, default_value = ":9443", value_parser = flags::address)]
    webhook_bind_address: String,
    /// Register the webhooks under this URL (https://10.0.0.5:9443), for an operator outside the cluster. Default: use the
    /// installed configurations, which name the Service.
    #[arg(long, value_parser = flags::webhook_url)]
    webhook_url: Option<WebhookUrl>,
    /// Watch these namespaces only, separated by commas. The operator needs its rights on namespaced objects in these only.
    /// Default: all. See docs/OPERATING.md, "Watch some namespaces only".
    #[arg(long, value_delimiter = ',', value_parser = flags::namespace)]
    watch_namespaces: Vec<String>,
    /// Name of the Service in front of the webhooks.
    #[arg(long, default_value = "lynq-webhook-service")]
    webhook_service: String,
    /// Take part in the leader election, for more than one replica. By the lease, the process also detects that the API
    /// server's storage was restored from a backup, and restarts. Without the lease, restart the process yourself.
    #[arg(long, num_args = 0..=1, default_value = "false", default_missing_value = "true", action = clap::ArgAction::Set, value_parser = flags::truth)]
    leader_elect: bool,
    /// Number of shards among which lynqgate divides the hubs, by a hash of namespace and name. Each shard has its own lease
    /// and leader. More than 1 needs --leader-elect. See docs/OPERATING.md, "Several replicas share the work".
    #[arg(long, default_value = "1", value_parser = flags::shards)]
    shards: usize,
    /// Number of hubs whose nodes lynqgate renders and writes at a time, at least 1.
    #[arg(long, default_value = "3", value_parser = flags::count)]
    hub_concurrency: usize,
    /// Number of nodes to reconcile at a time, at least 1.
    #[arg(long, default_value = "10", value_parser = flags::count)]
    node_concurrency: usize,
    /// What happens if the author of a form, or of a node's content by hand, may not create or change the objects in it, or if
    /// the author of a hub may not get the Secrets or the ConfigMap that it names.
    #[arg(long, default_value = "enforce")]
    authorize_forms: Authorize,
    /// What happens to a form that lynqgate could not try on all rows within a few seconds, for example because the database is
    /// down.
    #[arg(long, default_value = "warn")]
    untried_forms: Untried,
    /// Hosts to which hubs may connect, separated by commas: host names (* stands for any text), addresses, and networks such
    /// as 10.0.0.0/8. Default: all except link-local addresses and the API server.
    #[arg(long, value_delimiter = ',', value_parser = flags::listed)]
    allow_datasource_hosts: Vec<Listed>,
    /// User name of the operator, if it differs from that of its credentials.
    #[arg(long)]
    operator_user: Option<String>,
    /// Seconds to serve the webhooks after the signal to stop, until Services send requests to other replicas.
    #[arg(long, default_value_t = 5)]
    shutdown_settle_seconds: u64,
    /// Log level: error, warn, info, debug, trace, a number of zap, or a filter such as lynqgate=debug. Default: info.
    #[arg(long, value_parser = flags::log_level)]
    zap_log_level: Option<String>,
    /// Log format. Default: json.
    #[arg(long, ignore_case = true)]
    zap_encoder: Option<Encoder>,
    #[command(flatten)]
    of_maintenance: OfMaintenance,
    #[command(flatten)]
    of_lynq: OfLynq,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Authorize {
    /// Reject the change.
    Enforce,
    /// Store the change, with a warning.
    Warn,
    /// Do not check the author's rights.
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Untried {
    /// Store the change, with a warning.
    Warn,
    /// Reject the change.
    Deny,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Encoder {
    Json,
    Console,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("--{flag}: cannot listen on {address:?}: {reason}; give HOST:PORT or :PORT")]
    Listen {
        flag: &'static str,
        address: String,
        reason: std::io::Error,
    },
    #[error("--metrics-cert-path: {0}")]
    MetricsCertificate(#[from] files::Unreadable),
    #[error("the webhook configuration {name} could not be registered: {reason}")]
    Register { name: String, reason: String },
    #[error("--shards {0} needs --leader-elect: leases divide the work. Add --leader-elect")]
    ShardsAlone(usize),
    #[error(
        "--shards {0} and --node-maintenance exclude each other: one replica must know all tenants of a Kubernetes node. Leave one of the two out"
    )]
    ShardsAndMaintenance(usize),
    #[error(
        "--watch-namespaces and --node-maintenance exclude each other: a Kubernetes node has pods of all namespaces. Leave one of the \
         two out"
    )]
    NamespacesAndMaintenance,
    #[error("lost the leader election; exiting")]
    LostLease,
}

type AnyError = Box<dyn std::error::Error>;

pub fn run(arguments: Arguments) -> Result<(), AnyError> {
    // The client logs replies that it cannot read, whole: what is in them is nobody's business.
    let (level, encoder) = match arguments.of_lynq.zap_devel {
        true => ("debug", Encoder::Console),
        false => ("info", Encoder::Json),
    };
    let level = arguments.zap_log_level.as_deref().unwrap_or(level);
    let filter = flags::log_filter(level)?.add_directive("kube_client::client=off".parse()?);
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match arguments.zap_encoder.unwrap_or(encoder) {
        Encoder::Json => log.json().flatten_event(true).init(),
        Encoder::Console => log.init(),
    }
    panics::hide();
    tokio::runtime::Runtime::new()?.block_on(operate(arguments))
}

impl Arguments {
    /// Whether the flags go together.
    fn check(&self) -> Result<(), Error> {
        let maintains = self.of_maintenance.settings().is_some();
        if maintains && !self.watch_namespaces.is_empty() {
            return Err(Error::NamespacesAndMaintenance);
        }
        match self.shards {
            0 | 1 => Ok(()),
            shards if !self.leader_elect => Err(Error::ShardsAlone(shards)),
            shards if maintains => Err(Error::ShardsAndMaintenance(shards)),
            _ => Ok(()),
        }
    }
}

async fn operate(arguments: Arguments) -> Result<(), AnyError> {
    arguments.check()?;
    let (stop_sender, stop) = watch::channel(Stage::Running);
    let kubeconfig = flags::given(&arguments.kubeconfig);
    let kubeconfig = kubeconfig.map(|path| path.display().to_string());
    let (kube, user) = client::connect(kubeconfig.as_deref(), None).await?;
    let hosts = Hosts {
        listed: arguments.allow_datasource_hosts.clone(),
        api_server: client::addresses(kubeconfig.as_deref()).await?,
    };
    let operator = arguments.operator_user.clone().unwrap_or(user);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), operator, "starting");
    for said in arguments.of_lynq.unused() {
        tracing::warn!("{said}");
    }

    let mut registry = Registry::default();
    let metrics = Metrics::default();
    metrics.register(&mut registry);
    let webhook_metrics = webhook::Metrics::register(&mut registry);
    let hostname = std::env::var("HOSTNAME").unwrap_or_else(|_| "lynqgate".to_owned());
    let watched = WatchedNamespaces::of(arguments.watch_namespaces.iter().cloned());
    if let Some(namespaces) = watched.names() {
        tracing::info!(?namespaces, "watching these namespaces only");
    }
    let objects = Objects::new(kube.clone()).watching(watched);
    let events = Events::start(kube.clone(), Some(hostname.clone()));
    events.register(&mut registry);
    let world = World::new(
        Arc::new(Decide),
        &arguments.namespace,
        objects.clone(),
        events,
        metrics,
        Databases::new(hosts),
    );

    registry.register_collector(Box::new(LynqMetrics {
        world: world.clone(),
        nodes: arguments.node_metrics,
    }));
    registry.register_collector(Box::new(ProcessMetrics));
    let maintenance = arguments.of_maintenance.settings().map(|settings| {
        let metrics = MaintenanceMetrics::default();
        metrics.register(&mut registry);
        Maintenance::new(world.clone(), settings, metrics)
    });
    let registry = Arc::new(registry);
    if let Some(url) = &arguments.webhook_url {
        register(&objects, &url.base).await?;
    }
    let (certs, keep_certs) = WebhookCerts::start(kube.clone(), certificates(&arguments))?;
    vital::spawn(keep_certs);
    tokio::spawn(report_certificate(certs.clone(), world.clone()));
    world.follow_definitions();

    let stopping = Arc::new(AtomicBool::new(false));
    let installation = Installation::follow(&objects, &arguments.namespace, &operator);
    let not_ready = readiness(certs.clone(), installation.clone(), stopping.clone());
    serve_probes(&arguments, not_ready, stop.clone()).await?;
    if let Some(listener) = metrics_listener(&arguments).await? {
        let app = metrics::router(registry).merge(state::router(recordings(&world)));
        let stop = reached(stop.clone(), Stage::Ended);
        match arguments.metrics_secure {
            true => {
                let tls = metrics_certificate(&arguments)?.unwrap_or_else(|| certs.server_config());
                let app = access::guarded(app, objects.clone());
                tokio::spawn(tls::serve(listener, tls, app, stop));
            }
            false => drop(tokio::spawn(probes::serve(listener, app, stop))),
        }
    }
    let listener = listen("webhook-bind-address", &arguments.webhook_bind_address).await?;
    let webhooks = tokio::spawn(tls::serve(
        listener,
        certs.server_config(),
        webhook_router(&arguments, &world, operator, webhook_metrics),
        reached(stop, Stage::Settled),
    ));

    let mut election = Election::new(
        objects,
        &arguments.namespace,
        arguments.shards,
        identity(&hostname),
    );
    world.divide(arguments.shards);
    let workers = Workers {
        hubs: arguments.hub_concurrency.max(1),
        nodes: arguments.node_concurrency.max(1),
    };
    let loops = lead_with(world.clone(), workers, maintenance);
    let elected = arguments.leader_elect.then_some(&mut election);
    let led = tokio::select! {
        led = lead((&world, loops), elected, (certs, installation)) => led,
        () = signalled() => Ok(()),
    };
    stopping.store(true, Ordering::Relaxed);
    // The loops have ended with the select above; the webhooks go on until nobody sends them requests any more.
    if arguments.leader_elect && led.is_ok() {
        election.release().await;
    }
    tracing::info!("stopping");
    if led.is_ok() {
        tokio::time::sleep(Duration::from_secs(arguments.shutdown_settle_seconds)).await;
    }
    stop_sender.send_replace(Stage::Settled);
    let _ = webhooks.await;
    stop_sender.send_replace(Stage::Ended);
    led
}

/// Serves the probes, unless their address is 0 or, as in Lynq, empty.
async fn serve_probes(
    arguments: &Arguments,
    not_ready: probes::NotReady,
    stop: watch::Receiver<Stage>,
) -> Result<(), AnyError> {
    let address = arguments.health_probe_bind_address.as_str();
    if ["", "0"].contains(&address) {
        return Ok(());
    }
    let listener = listen("health-probe-bind-address", address).await?;
    let app = probes::probes(not_ready);
    tokio::spawn(probes::serve(listener, app, reached(stop, Stage::Ended)));
    Ok(())
}

/// None where the address is 0. As in Lynq, an empty one is the default of Lynq's library.
async fn metrics_listener(arguments: &Arguments) -> Result<Option<TcpListener>, AnyError> {
    let address = match arguments.metrics_bind_address.as_str() {
        "0" => return Ok(None),
        "" => ":8080",
        address => address,
    };
    Ok(Some(listen("metrics-bind-address", address).await?))
}

/// The webhooks of nodes and StatefulSets, and those of hubs and forms.
fn webhook_router(
    arguments: &Arguments,
    world: &Arc<World>,
    operator: String,
    metrics: webhook::Metrics,
) -> Router {
    let authors = (arguments.authorize_forms != Authorize::Off).then(|| Authors {
        operator: operator.clone(),
        objects: world.objects.clone(),
        enforce: arguments.authorize_forms == Authorize::Enforce,
    });
    let of_definitions = webhooks::definitions(
        world,
        authors.clone(),
        metrics.clone(),
        arguments.untried_forms == Untried::Deny,
    );
    let of_nodes = webhook::router(webhook::Webhook {
        operator,
        policy_of: webhooks::policy_of(world),
        authors,
        metrics,
    });
    of_nodes.merge(definitions::router(of_definitions))
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// Requests go to other replicas by now.
    Settled,
    Ended,
}

async fn reached(mut stop: watch::Receiver<Stage>, stage: Stage) {
    // A dropped sender means that the process ends.
    let _ = stop.wait_for(|now| *now >= stage).await;
}

async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be listened to");
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be listened to");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Runs the loops once its own gate answers, what it writes is stored, and this process leads; returns only when it must not
/// lead any more.
async fn lead(
    (world, loops): (&World, impl Future<Output = ()>),
    election: Option<&mut Election>,
    (certs, installation): (WebhookCerts, Installation),
) -> Result<(), AnyError> {
    let mut status = certs.watch_status();
    // Without the gate every write of a node would be refused. A lease that is not renewed meanwhile would be another's.
    let _ = status.wait_for(|status| status.ready()).await;
    installation.wait().await;
    let Some(election) = election else {
        world.take(0);
        loops.await;
        return Ok(());
    };
    tokio::select! {
        () = loops => Ok(()),
        () = election.run(world) => Err(Error::LostLease.into()),
    }
}

/// For as long as the process runs.
async fn report_certificate(certs: WebhookCerts, world: Arc<World>) {
    let mut status = certs.watch_status();
    loop {
        let ends = status.borrow_and_update().leaf_not_after;
        world.metrics.certificate(ends);
        if status.changed().await.is_err() {
            return;
        }
    }
}

fn readiness(
    certs: WebhookCerts,
    installation: Installation,
    stopping: Arc<AtomicBool>,
) -> probes::NotReady {
    Arc::new(move || {
        if stopping.load(Ordering::Relaxed) {
            return Some("stopping".to_owned());
        }
        if let Some(problem) = installation.problem() {
            return Some(problem);
        }
        let status = certs.status();
        (!status.ready()).then(|| format!("webhook certificate: {}", status.reason))
    })
}

fn recordings(world: &Arc<World>) -> state::Recordings {
    let world = world.clone();
    Arc::new(move || world.recordings.all())
}

/// The certificate that somebody else keeps in files, if there is one.
fn metrics_certificate(arguments: &Arguments) -> Result<Option<Arc<ServerConfig>>, Error> {
    let Some(directory) = flags::given(&arguments.metrics_cert_path) else {
        return Ok(None);
    };
    let certificate = directory.join(&arguments.metrics_cert_name);
    let key = directory.join(&arguments.metrics_cert_key);
    Ok(Some(files::server_config(certificate, key)?))
}

fn certificates(arguments: &Arguments) -> webhook_certs::Config {
    let (mut dns_names, mut ip_addresses) = (vec![], vec![]);
    match &arguments.webhook_url {
        None => {
            let base = format!("{}.{}.svc", arguments.webhook_service, arguments.namespace);
            dns_names.push(format!("{base}.cluster.local"));
            dns_names.push(base);
        }
        Some(url) => match url.host.parse::<IpAddr>() {
            Ok(address) => ip_addresses.push(address),
            Err(_) => dns_names.push(url.host.clone()),
        },
    }
    webhook_certs::Config {
        namespace: arguments.namespace.clone(),
        secret_name: names::CERTIFICATE_SECRET.to_owned(),
        field_manager: names::CERTIFICATE_MANAGER.to_owned(),
        dns_names,
        ip_addresses,
        mutating: vec![names::MUTATING_CONFIGURATION.to_owned()],
        validating: vec![names::VALIDATING_CONFIGURATION.to_owned()],
        lifetimes: webhook_certs::Lifetimes::default(),
    }
}

/// Installs the webhook configurations with the URL; in a cluster the manifests do that, with the Service. Where they were
/// installed before, the URL replaces the Service: an apply alone would leave both.
async fn register(objects: &Objects, url: &str) -> Result<(), Error> {
    let address = Address::Url(url.to_owned());
    for configuration in manifests::webhook_configurations(&address, objects.watched()) {
        let key = key_of(&configuration);
        let registered = async {
            let installed = match objects.get(&key).await {
                Err(ApiError::NotFound(_)) => Value::Null,
                installed => installed?,
            };
            if let Some(patch) = manifests::without_services(&installed, &configuration) {
                objects.merge(&key, &patch).await?;
            }
            objects.apply(&key, &configuration, true).await
        };
        registered
            .await
            .map_err(|reason: ApiError| Error::Register {
                name: key.name.clone(),
                reason: reason.to_string(),
            })?;
    }
    Ok(())
}

/// Without a host it is every address of both families, as in Go; a machine may have only one of them.
async fn listen(flag: &'static str, value: &str) -> Result<TcpListener, Error> {
    let refused = |reason| Error::Listen {
        flag,
        address: value.to_owned(),
        reason,
    };
    if !value.starts_with(':') {
        return TcpListener::bind(value).await.map_err(refused);
    }
    match TcpListener::bind(format!("[::]{value}")).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(format!("0.0.0.0{value}"))
            .await
            .map_err(refused),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[tokio::test]
    async fn without_a_host_both_families_are_listened_to() {
        let listener = listen("x-bind-address", ":0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let reached = |address: IpAddr| tokio::net::TcpStream::connect((address, port));
        assert!(reached(Ipv4Addr::LOCALHOST.into()).await.is_ok());
        let has_v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        assert_eq!(reached(Ipv6Addr::LOCALHOST.into()).await.is_ok(), has_v6);
    }
}
