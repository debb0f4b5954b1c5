//! The analysis as a table for the terminal.

use crate::{Analysis, PhaseTime, WaitTime};
use std::fmt;

/// Rows of waits that the table prints; the rest is one line.
const WAIT_ROWS: usize = 10;

impl fmt::Display for Analysis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        summary(self, f)?;
        phases(self, f)?;
        waits(self, f)
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn summary(analysis: &Analysis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let whole = analysis.available_ns();
    let unrecorded: u64 = analysis.unrecorded_ns.iter().sum();
    let count = analysis.unrecorded_ns.len();
    let plural = if count == 1 { "" } else { "s" };
    writeln!(
        f,
        "token {:.1} us on {count} {}{plural}: {:.1} % work, {:.1} % waits, {:.1} % unrecorded",
        us(analysis.token_ns),
        analysis.unit,
        percent(analysis.work_ns(), whole),
        percent(analysis.wait_ns(), whole),
        percent(unrecorded, whole),
    )?;
    if analysis.overflow > 0 {
        writeln!(f, "{} records did not fit: their time counts as unrecorded", analysis.overflow)?;
    }
    Ok(())
}

fn phases(analysis: &Analysis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let max = format!("max {}", analysis.unit);
    writeln!(f, "\n{:<10} {:>12} {max:>12} {:>14} {max:>12}", "phase", "work us", "waited-for us")?;
    for PhaseTime { phase, work_ns, work_max_ns, wait_ns, wait_max_ns } in &analysis.phases {
        writeln!(
            f,
            "{:<10} {:>12.1} {:>12.1} {:>14.1} {:>12.1}",
            phase.name(),
            us(*work_ns),
            us(*work_max_ns),
            us(*wait_ns),
            us(*wait_max_ns)
        )?;
    }
    Ok(())
}

fn waits(analysis: &Analysis, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if analysis.waits.is_empty() {
        return writeln!(f, "\nno waits");
    }
    writeln!(f, "\n{:<24} {:>8} {:>12} {:>12}", "waits for", "waits", "total us", "longest us")?;
    for wait in analysis.waits.iter().take(WAIT_ROWS) {
        let WaitTime { waits, total_ns, longest_ns, .. } = wait;
        let (total, longest) = (us(*total_ns), us(*longest_ns));
        writeln!(f, "{:<24} {waits:>8} {total:>12.1} {longest:>12.1}", awaited(analysis, wait))?;
    }
    let rest = analysis.waits.iter().skip(WAIT_ROWS);
    match rest.clone().count() {
        0 => Ok(()),
        count => {
            let total = us(rest.map(|wait| wait.total_ns).sum());
            writeln!(f, "{:<24} {:>8} {total:>12.1}", format!("and {count} more"), "")
        }
    }
}

fn awaited(analysis: &Analysis, wait: &WaitTime) -> String {
    match wait.producer {
        Some(producer) => format!("{} from {} {producer}", wait.phase.name(), analysis.unit),
        None => wait.phase.name().to_owned(),
    }
}
