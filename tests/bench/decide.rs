//! What the pure parts cost: rendering a form, hashing a content, reading a review and deciding on it, planning what a fleet does next.
//! Run by `cargo bench --bench decide`; what a whole request costs is measured by the bench `webhook`.

mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lynqgate::decide::admission::{review, trial};
use lynqgate::decide::gate;
use lynqgate::decide::gate::node::{Node, Sent};
use lynqgate::decide::hub::sync::{self, SyncInputs};
use lynqgate::decide::rollout;
use lynqgate::decide::shared::content;
use samples::State;

fn render(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("render a form");
    for (name, bytes) in samples::SIZES {
        let (form, row) = (
            samples::compile(&samples::form(bytes)),
            samples::row(1, "1.0"),
        );
        let size = samples::render(&form, &row).to_string().len();
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(name, |b| b.iter(|| samples::render(&form, black_box(&row))));
    }
}

fn hash(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash a content");
    for (name, bytes) in samples::SIZES {
        let form = samples::compile(&samples::form(bytes));
        let content = samples::render(&form, &samples::row(1, "1.0"));
        group.throughput(Throughput::Bytes(content.to_string().len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| content::hash(black_box(Some(&content))))
        });
    }
}

fn read(body: &[u8]) -> review::Request<Sent<'_>> {
    review::read(body).expect("a review")
}

fn decide(criterion: &mut Criterion) {
    for (size, bytes) in samples::SIZES {
        let form = samples::compile(&samples::form(bytes));
        let requests = samples::requests(&form, 1);
        let mut group = criterion.benchmark_group(format!("gate decision at {size}"));
        for (name, request) in &requests {
            let body = request.review();
            let review = read(&body);
            let decided = || {
                let new = review.object.as_ref().expect("a node");
                let nodes = Node::both(review.old_object.as_ref(), new);
                let (old, new) = nodes.expect("nodes");
                let write = gate::Write {
                    old: old.as_ref(),
                    new: &new,
                    user: request.user,
                    operator: samples::OPERATOR,
                };
                gate::decide(black_box(&write), samples::now()).expect("a write that is let in")
            };
            assert_eq!(decided().outcome.code(), *name);
            group.bench_function(*name, |b| b.iter(decided));
        }
        let body = requests["held"].review();
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("reading its review", |b| b.iter(|| read(black_box(&body))));
    }
}

/// What an apply of a changed form waits for, and what the sync after it does, over a thousand rows.
fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1,000 rows");
    group.sample_size(20);
    let (change, rows) = (samples::change(5_000), samples::rows(1_000));
    let on = trial::On::rows(&rows);
    let place = ("tenants", "tenants", "web");
    group.bench_function("try a changed form", |b| {
        b.iter(|| {
            let tried = trial::of(black_box(&change), &on, place, &|| true);
            assert_eq!(tried.tried, 1_000);
        })
    });
    let (form, nodes) = (samples::compile(&samples::form(5_000)), []);
    let source = samples::source(form, rows);
    let seen = SyncInputs {
        source: &source,
        broken_forms: &BTreeSet::new(),
        nodes: &nodes,
        foreign: &|_| None,
        moved: &|_| None,
        rendered: &BTreeMap::new(),
    };
    group.bench_function("plan a sync", |b| {
        b.iter(|| sync::plan(black_box(&seen), samples::now()).writes.len())
    });
}

/// What a pass of the release loop decides on, over a fleet of ten thousand; beside it what a copy of that takes.
fn plan(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan of 10,000 nodes in 20 forms");
    let half = |node| match node < 250 {
        true => State::Updated,
        false => State::Held,
    };
    for (name, fleet) in [
        ("settled", samples::fleet(10_000, |_| State::Updated)),
        ("changed", samples::fleet(10_000, |_| State::Held)),
        ("half rolled out", samples::fleet(10_000, half)),
        ("all broken", samples::fleet(10_000, |_| State::Broken)),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| rollout::plan(black_box(&fleet), samples::now()))
        });
    }
    let fleet = samples::fleet(10_000, |_| State::Held);
    group.bench_function("a copy of its nodes", |b| {
        b.iter(|| black_box(&fleet).nodes.clone())
    });
}

criterion_group!(benches, render, hash, decide, rows, plan);
criterion_main!(benches);
