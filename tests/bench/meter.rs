//! What a process takes, as the kernel tells.

use std::time::Duration;

use anyhow::{Context, Result};

/// What the process has used so far, in user and kernel mode.
pub fn cpu(process: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = |number: usize| -> Result<u64> { Ok(fields.get(number).context("stat")?.parse()?) };
    let ticks = ticks(11)? + ticks(12)?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
    ))
}

/// The most that was resident since [`forget_peak`], in KiB.
pub fn peak_kib(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.split_whitespace().next());
    Ok(peak.context("VmHWM")?.parse()?)
}

pub fn forget_peak(process: u32) -> Result<()> {
    Ok(std::fs::write(format!("/proc/{process}/clear_refs"), "5")?)
}
