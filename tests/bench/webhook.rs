//! The webhook over real TLS, next to a handler that does nothing, on the same server in the same run.
//! Run by `cargo bench --bench webhook`. It prints what it measured, and asserts nothing: a busy machine is no error.
//!
//! The null handler reads bodies of the same size and answers with the gate's own answer, so what is between the two is
//! the decision. The server has two threads and the load one more, all on the machine's cores as the kernel puts them. The
//! processor time of the server's threads alone says what two cores do if the load comes from another machine.

#[allow(dead_code)]
mod samples;

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{Request, StatusCode};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lynqgate::api::names;
use lynqgate::server::{tls, webhook};
use prometheus_client::registry::Registry;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_rustls::TlsConnector;

const HOST_NAME: &str = "lynq-webhook-service.lynq-system.svc";
/// Each measurement is made this often, null handler and gate by turns; what is printed is the median of each column.
const ROUNDS: usize = 5;
const ROUND_SECONDS: f64 = 2.0;
/// Requests sent before anything is measured.
const WARM_UP: usize = 2_000;
const SERVER_THREADS: usize = 2;
/// By which its processor time is found.
const SERVER_THREAD: &str = "server";
/// Different nodes, so that no branch of the gate learns one by heart.
const NODES: usize = 32;

/// How the load is put on.
#[derive(Clone, Copy)]
enum Load {
    /// Each connection sends its next request when it has the answer.
    AsFastAsPossible { connections: usize },
    /// So many requests a second in all.
    Steady { connections: usize, rate: f64 },
}

const LOADS: [(&str, Load); 3] = [
    // Nothing waits for anything else: the time that a write waits for the gate.
    (
        "as fast as possible, 1 connection",
        Load::AsFastAsPossible { connections: 1 },
    ),
    (
        "as fast as possible, 16 connections",
        Load::AsFastAsPossible { connections: 16 },
    ),
    (
        "1,000 requests/s, 16 connections",
        Load::Steady {
            connections: 16,
            rate: 1_000.0,
        },
    ),
];
const CASES: [(&str, usize, &str); 4] = [
    ("5 KB", 5_000, "held"),
    ("5 KB", 5_000, "released"),
    ("5 KB", 5_000, "unchanged"),
    ("64 KB", 64_000, "held"),
];

fn main() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([HOST_NAME.to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a server's configuration");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a root");
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let load = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the load");
    for (size, bytes, case) in CASES {
        let bodies = bodies(bytes, case);
        let null_answer = Arc::new(std::sync::OnceLock::<Bytes>::new());
        let address = serve(server.clone(), null_answer.clone());
        let target = |path| Target {
            address,
            tls: TlsConnector::from(Arc::new(client.clone())),
            path,
        };
        let (gate, null) = (target(names::MUTATE_NODE_PATH), target("/null"));
        let answer = load.block_on(gate.one(&bodies[0]));
        assert!(answer.starts_with(b"{"), "the gate answers {answer:?}");
        println!(
            "\n{case} at {size}: {} bytes in, {} bytes out",
            bodies[0].len(),
            answer.len()
        );
        null_answer.set(answer).expect("it was empty");
        println!(
            "{:40} {:>8} {:>10} {:>10} {:>12} {:>12}",
            "", "", "p50", "p99", "requests/s", "server's CPU"
        );
        for target in [&null, &gate] {
            load.block_on(target.load(&bodies, LOADS[1].1, Until::Requests(WARM_UP)));
        }
        for (name, how) in LOADS {
            let (mut of_null, mut of_gate) = (vec![], vec![]);
            for _ in 0..ROUNDS {
                for (target, figures) in [(&null, &mut of_null), (&gate, &mut of_gate)] {
                    let until = Until::Elapsed(Duration::from_secs_f64(ROUND_SECONDS));
                    figures.push(load.block_on(target.load(&bodies, how, until)));
                }
            }
            let (null, gate) = (Figures::median(&of_null), Figures::median(&of_gate));
            null.print(name, "null");
            gate.print("", "gate");
            println!(
                "{:49} {:>9.2}x {:>9.2}x {:>11.2}x {:>11.2}x",
                "",
                gate.p50 / null.p50,
                gate.p99 / null.p99,
                gate.rate / null.rate,
                gate.cpu / null.cpu
            );
        }
    }
}

fn bodies(bytes: usize, case: &str) -> Vec<Bytes> {
    let form = samples::compile(&samples::form(bytes));
    (0..NODES)
        .map(|number| samples::requests(&form, number)[case].review().into())
        .collect()
}

/// The operator's server with one more route, on threads of its own until the process ends.
fn serve(config: ServerConfig, null_answer: Arc<std::sync::OnceLock<Bytes>>) -> SocketAddr {
    let null = move |request: Request<Body>| async move {
        match to_bytes(request.into_body(), webhook::bodies::BODY_MAX).await {
            Ok(_) => Ok((
                [(CONTENT_TYPE, "application/json")],
                null_answer.get().cloned().unwrap_or_default(),
            )),
            Err(_) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        }
    };
    let webhook = webhook::Webhook {
        operator: samples::OPERATOR.to_owned(),
        authors: None,
        policy_of: Arc::new(|_, _| Some(webhook::Policy::default())),
        metrics: webhook::Metrics::register(&mut Registry::default()),
    };
    let app = webhook::router(webhook).route("/null", post(null));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(SERVER_THREADS)
            .thread_name(SERVER_THREAD)
            .enable_all()
            .build()
            .expect("a runtime for the server");
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender
                .send(listener.local_addr().expect("an address"))
                .expect("somebody waits");
            tls::serve(listener, Arc::new(config), app, std::future::pending()).await;
        });
    });
    receiver.recv().expect("the server's address")
}

struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    path: &'static str,
}

#[derive(Clone, Copy)]
enum Until {
    Requests(usize),
    Elapsed(Duration),
}

impl Target {
    async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let name = ServerName::try_from(HOST_NAME).expect("a name");
        let stream = self
            .tls
            .connect(name, stream)
            .await
            .expect("a TLS handshake");
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        tokio::task::spawn(connection);
        sender
    }

    async fn send(&self, connection: &mut http1::SendRequest<Full<Bytes>>, body: &Bytes) -> Bytes {
        let request = Request::post(format!("{}?timeout=5s", self.path))
            .header(HOST, HOST_NAME)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()))
            .expect("a request");
        connection.ready().await.expect("a connection that is kept");
        let answer = connection.send_request(request).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        answer
            .into_body()
            .collect()
            .await
            .expect("a whole answer")
            .to_bytes()
    }

    async fn one(&self, body: &Bytes) -> Bytes {
        self.send(&mut self.connect().await, body).await
    }

    async fn load(&self, bodies: &[Bytes], how: Load, until: Until) -> Figures {
        let (connections, interval) = match how {
            Load::AsFastAsPossible { connections } => (connections, None),
            Load::Steady { connections, rate } => (
                connections,
                Some(Duration::from_secs_f64(connections as f64 / rate)),
            ),
        };
        let mut open = vec![];
        for _ in 0..connections {
            open.push(self.connect().await);
        }
        let (start, cpu) = (Instant::now(), server_cpu());
        let each = open
            .into_iter()
            .enumerate()
            .map(|(number, mut connection)| async move {
                let mut latencies = vec![];
                let offset = interval
                    .unwrap_or_default()
                    .mul_f64(number as f64 / connections as f64);
                let mut due = start + offset;
                loop {
                    let over = match until {
                        Until::Requests(requests) => latencies.len() >= requests / connections,
                        Until::Elapsed(time) => start.elapsed() >= time,
                    };
                    if over {
                        return latencies;
                    }
                    let mut sent = Instant::now();
                    if let Some(interval) = interval {
                        if sent < due {
                            tokio::time::sleep_until(due.into()).await;
                            // The timer's own lateness is not the server's.
                            sent = Instant::now();
                        } else {
                            // Whoever had to wait for the answer before this one has waited for this one, too.
                            sent = due;
                        }
                        due += interval;
                    }
                    self.send(
                        &mut connection,
                        &bodies[(number + latencies.len()) % bodies.len()],
                    )
                    .await;
                    latencies.push(sent.elapsed().as_secs_f64());
                }
            });
        let latencies = futures::future::join_all(each).await.concat();
        Figures::of(latencies, start.elapsed(), server_cpu() - cpu)
    }
}

/// Seconds of processor time that the threads of all servers have had.
fn server_cpu() -> f64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux lists threads");
    let of_thread = |thread: std::io::Result<fs::DirEntry>| {
        let path = thread.ok()?.path();
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let times = fs::read_to_string(path.join("schedstat")).ok()?;
        let nanoseconds: f64 = times.split(' ').next()?.parse().ok()?;
        (name.trim_end() == SERVER_THREAD).then_some(nanoseconds / 1e9)
    };
    threads.filter_map(of_thread).sum()
}

/// Latencies and processor time of a request in seconds, and requests per second.
struct Figures {
    p50: f64,
    p99: f64,
    rate: f64,
    cpu: f64,
}

impl Figures {
    fn of(mut latencies: Vec<f64>, elapsed: Duration, cpu: f64) -> Figures {
        latencies.sort_by(f64::total_cmp);
        let quantile = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize];
        Figures {
            p50: quantile(0.5),
            p99: quantile(0.99),
            rate: latencies.len() as f64 / elapsed.as_secs_f64(),
            cpu: cpu / latencies.len() as f64,
        }
    }

    fn median(rounds: &[Figures]) -> Figures {
        let median = |column: fn(&Figures) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(column).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Figures {
            p50: median(|f| f.p50),
            p99: median(|f| f.p99),
            rate: median(|f| f.rate),
            cpu: median(|f| f.cpu),
        }
    }

    fn print(&self, load: &str, handler: &str) {
        println!(
            "{load:40} {handler:>8} {:>7.2} ms {:>7.2} ms {:>12.0} {:>9.0} us",
            self.p50 * 1e3,
            self.p99 * 1e3,
            self.rate,
            self.cpu * 1e6
        );
    }
}
