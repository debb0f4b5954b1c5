//! The report as a table for people.

use crate::report::{Comparison, Convert, Counters, Outcome, Report};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use std::fmt;

type Row = (String, String);

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpu = &self.gpu;
        let driver = gpu.driver.as_deref().unwrap_or("unknown");
        writeln!(
            out,
            "{} ({}, {} SMs, L2 {:.0} MB), driver {driver}, CUDA {}, {}",
            gpu.name,
            gpu.arch,
            gpu.multiprocessors,
            gpu.l2_bytes as f64 / 1e6,
            gpu.cuda,
            self.date
        )?;
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["probe", "what", "found"]);
        for (probe, rows) in self.sections() {
            for (what, found) in rows {
                table.add_row([probe, &what, &found]);
            }
        }
        writeln!(out, "{table}")?;
        write!(out, "{:.1} s", self.seconds)
    }
}

impl Report {
    fn sections(&self) -> [(&'static str, Vec<Row>); 7] {
        [
            ("convert", rows(&self.convert, convert)),
            ("timer", rows(&self.timer, timer)),
            ("clock", rows(&self.clock, clock)),
            ("offsets", rows(&self.offsets, offsets)),
            ("bandwidth", rows(&self.bandwidth, |rows| rows.iter().map(bandwidth).collect())),
            ("hand-off", rows(&self.handoff, |rows| rows.iter().map(handoff).collect())),
            ("counters", rows(&self.counters, counters)),
        ]
    }
}

fn rows<T>(outcome: &Outcome<T>, describe: impl FnOnce(&T) -> Vec<Row>) -> Vec<Row> {
    match outcome {
        Outcome::Measured(measured) => describe(measured),
        Outcome::Failed(why) => vec![row("FAILED", why)],
    }
}

fn row(what: impl Into<String>, found: impl Into<String>) -> Row {
    (what.into(), found.into())
}

fn convert(convert: &Convert) -> Vec<Row> {
    let none = "this GPU has no such instruction".to_owned();
    vec![
        row("cvt.rn.f16x2.e4m3x2", comparison(&convert.e4m3_by_cvt)),
        row("e4m3 by shift", comparison(&convert.e4m3_by_shift)),
        row("cvt.rn.f16x2.e2m1x2", convert.e2m1_by_cvt.as_ref().map_or(none, comparison)),
        row("e2m1 by shift", comparison(&convert.e2m1_by_shift)),
    ]
}

fn comparison(comparison: &Comparison) -> String {
    let inputs = comparison.inputs;
    let nan = match comparison.nan_f16_hex.is_empty() {
        true => String::new(),
        false => format!("; NaN becomes {}", comparison.nan_f16_hex.join(", ")),
    };
    match &comparison.first_mismatch {
        None => format!("all {inputs} inputs exact{nan}"),
        Some(first) => format!(
            "WRONG: {} of {inputs} inputs, first {} gives {}{nan}",
            comparison.mismatches,
            first.input_hex,
            first.got_hex.join(" ")
        ),
    }
}

fn timer(timer: &crate::report::Timer) -> Vec<Row> {
    let (least, most) = (timer.step_ns_min, timer.step_ns_max);
    let steps = format!("{} ns (min {least}, max {most})", timer.step_ns_median);
    let seen = format!(
        "{} of {} sizes in {} reads, {} backward",
        timer.steps_seen, timer.step_sizes, timer.reads, timer.steps_backward
    );
    vec![
        row("%globaltimer step", steps),
        row("steps seen", seen),
        row("time of a read", format!("{:.1} ns", timer.read_ns)),
    ]
}

fn clock(clock: &crate::report::Clock) -> Vec<Row> {
    let rate = format!(
        "{:.2} MHz (min {:.2}, max {:.2}) on {} SMs in {:.0} ms",
        clock.rate_mhz_median,
        clock.rate_mhz_min,
        clock.rate_mhz_max,
        clock.multiprocessors,
        clock.window_ms
    );
    vec![row("clock64 rate", rate)]
}

fn offsets(offsets: &crate::report::Offsets) -> Vec<Row> {
    let timer = format!(
        "within {} ns, spread {:.0} ns +- {:.0}",
        offsets.timer_ns_bound, offsets.timer_ns_spread, offsets.timer_ns_uncertainty
    );
    let clock = format!(
        "spread {:.0} clocks +- {:.0}",
        offsets.clock64_clocks_spread, offsets.clock64_clocks_uncertainty
    );
    let count = offsets.multiprocessors;
    vec![
        row(format!("%globaltimer of {count} SMs"), timer),
        row(format!("clock64 of {count} SMs"), clock),
        row("message and answer", format!("{:.0} ns", offsets.round_trip_ns_median)),
    ]
}

fn bandwidth(bandwidth: &crate::report::Bandwidth) -> Row {
    let what = format!("{} MB by {}", bandwidth.bytes / 1_000_000, bandwidth.way);
    let found = format!(
        "{:.0} GB/s (min {:.0}, max {:.0}), {:.1} us",
        bandwidth.gb_per_s_median,
        bandwidth.gb_per_s_min,
        bandwidth.gb_per_s_max,
        bandwidth.us_median
    );
    row(what, found)
}

fn handoff(handoff: &crate::report::Handoff) -> Row {
    let found = format!(
        "{:.3} us (launches {:.3} to {:.3}), mean {:.3}",
        handoff.us_median, handoff.us_median_min, handoff.us_median_max, handoff.us_mean
    );
    row(format!("{}, {} blocks", handoff.way, handoff.blocks), found)
}

fn counters(counters: &Counters) -> Vec<Row> {
    let version = counters.ncu.as_deref().unwrap_or("not found");
    let found = match (counters.work, counters.sm_cycles_elapsed_max, &counters.why) {
        (true, Some(cycles), _) => format!("yes: {cycles:.0} cycles of a small kernel"),
        (.., Some(why)) => format!("no: {why}"),
        _ => "no".into(),
    };
    vec![row(format!("ncu {version} reads counters"), found)]
}
