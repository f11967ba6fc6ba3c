//! Metrics of the process itself, under the names that Prometheus' client libraries share.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, WithCurrentSystemInfo, boot_time_secs, ticks_per_second};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

#[derive(Debug)]
pub struct ProcessMetrics;

struct Seen {
    cpu_seconds: f64,
    started: f64,
    resident: i64,
    virtual_: i64,
    open_files: i64,
    max_files: i64,
}

fn look() -> ProcResult<Seen> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = ticks_per_second() as f64;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let max_files = match process.limits()?.max_open_files.soft_limit {
        LimitValue::Value(number) => signed(number),
        LimitValue::Unlimited => i64::MAX,
    };
    Ok(Seen {
        cpu_seconds: (stat.utime + stat.stime) as f64 / ticks,
        started: boot_time_secs()? as f64 + stat.starttime as f64 / ticks,
        resident: signed(stat.rss_bytes().get()),
        virtual_: signed(stat.vsize),
        open_files: signed(process.fd_count()? as u64),
        max_files,
    })
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        // Without /proc there are no such metrics.
        let Ok(seen) = look() else {
            return Ok(());
        };
        let cpu = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Seconds of processor time that the process used",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(seen.cpu_seconds).encode(cpu)?;
        let mut gauge = |name, help, value: f64| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        let started = "When the process started, in seconds since 1970";
        gauge("process_start_time_seconds", started, seen.started)?;
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Memory of the process in RAM",
                seen.resident,
            ),
            (
                "process_virtual_memory_bytes",
                "Address space of the process",
                seen.virtual_,
            ),
            (
                "process_open_fds",
                "Open file descriptors, sockets included",
                seen.open_files,
            ),
            (
                "process_max_fds",
                "Most file descriptors that may be open",
                seen.max_files,
            ),
        ] {
            gauge(name, help, value as f64)?;
        }
        Ok(())
    }
}
