//! The report on disk and on the screen, and the program without a GPU.

#![allow(clippy::unwrap_used, reason = "a test, helpers and all")]

use assert_cmd::Command;
use monolith_probes::Report;
use monolith_probes::report::{
    Bandwidth, Clock, Comparison, Convert, Counters, GpuInfo, Handoff, Mismatch, Offsets, Outcome,
    SCHEMA_VERSION, Timer,
};

/// Against hanging for ever, and far from deciding anything.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(240);

fn convert() -> Convert {
    let exact = Comparison { inputs: 65_536, ..Comparison::default() };
    let wrong = Comparison {
        inputs: 256,
        mismatches: 2,
        first_mismatch: Some(Mismatch {
            input_hex: "0x0012".into(),
            expected_hex: [Some("0x4000".into()), None],
            got_hex: ["0x4001".into(), "0x3c00".into()],
        }),
        nan_f16_hex: Vec::new(),
    };
    Convert {
        e4m3_by_cvt: Comparison { nan_f16_hex: vec!["0x7fff".into()], ..exact.clone() },
        e4m3_by_shift: exact,
        e2m1_by_cvt: None,
        e2m1_by_shift: wrong,
    }
}

fn offsets() -> Offsets {
    Offsets {
        multiprocessors: 132,
        rounds: 32,
        round_trip_ns_median: 1500.0,
        timer_ns_bound: 800,
        timer_ns_spread: 32.0,
        timer_ns_uncertainty: 700.0,
        clock64_clocks_spread: 90.0,
        clock64_clocks_uncertainty: 1400.0,
    }
}

/// Invented numbers: the report of no GPU.
fn report() -> Report {
    let bandwidth = Bandwidth {
        way: "loads of 16 bytes, 1 block an SM".into(),
        bytes: 400_000_000,
        launches: 5,
        us_median: 100.0,
        gb_per_s_median: 4000.0,
        gb_per_s_min: 3900.0,
        gb_per_s_max: 4100.0,
    };
    let handoff = Handoff {
        way: "grid barrier".into(),
        blocks: 132,
        exchanges: 256,
        launches: 5,
        us_median: 1.25,
        us_median_min: 1.2,
        us_median_max: 1.5,
        us_mean: 1.375,
    };
    let why = Some("ERR_NVGPUCTRPERM".to_owned());
    Report {
        schema_version: SCHEMA_VERSION,
        date: "2026-01-02T03:04:05Z".into(),
        gpu: GpuInfo {
            name: "Imaginary GPU".into(),
            arch: "sm_90a".into(),
            compute_capability: "9.0".into(),
            driver: None,
            cuda: "13.0".into(),
            multiprocessors: 132,
            l2_bytes: 50_000_000,
            kernels: "compiled before".into(),
        },
        convert: Outcome::Measured(convert()),
        timer: Outcome::Measured(Timer {
            reads: 1000,
            steps_seen: 30,
            step_sizes: 2,
            step_ns_min: 32,
            step_ns_median: 32,
            step_ns_max: 64,
            steps_backward: 0,
            read_ns: 11.5,
        }),
        clock: Outcome::Measured(Clock {
            window_ms: 60.0,
            multiprocessors: 132,
            rate_mhz_min: 1979.5,
            rate_mhz_median: 1980.0,
            rate_mhz_max: 1980.5,
        }),
        offsets: Outcome::Measured(offsets()),
        bandwidth: Outcome::Measured(vec![bandwidth]),
        handoff: Outcome::Measured(vec![handoff]),
        counters: Outcome::Measured(Counters {
            work: false,
            ncu: Some("2025.3".into()),
            sm_cycles_elapsed_max: None,
            why,
        }),
        seconds: 1.5,
    }
}

#[test]
fn the_report_is_the_same_after_json() {
    let mut report = report();
    let back: Report = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(back, report);
    report.timer = Outcome::Failed("it stood still".into());
    let json = report.to_json();
    assert!(json.contains("\"failed\": \"it stood still\""), "{json}");
    let back: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(back.failures(), [("timer", "it stood still")]);
    assert!(json.starts_with("{\n  \"schema_version\": 1,") && json.ends_with("}\n"), "{json}");
}

#[test]
fn the_table_says_what_was_found_and_what_failed() {
    let mut report = report();
    report.clock = Outcome::Failed("no clock".into());
    let text = report.to_string();
    for part in [
        "Imaginary GPU (sm_90a, 132 SMs, L2 50 MB), driver unknown, CUDA 13.0",
        "all 65536 inputs exact; NaN becomes 0x7fff",
        "this GPU has no such instruction",
        "WRONG: 2 of 256 inputs, first 0x0012 gives 0x4001 0x3c00",
        "32 ns (min 32, max 64)",
        "FAILED",
        "no clock",
        "within 800 ns",
        "4000 GB/s (min 3900, max 4100), 100.0 us",
        "1.250 us (launches 1.200 to 1.500), mean 1.375",
        "no: ERR_NVGPUCTRPERM",
        "1.5 s",
    ] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
}

#[test]
fn without_a_gpu_the_program_says_why_and_what_helps() {
    // No machine has as many.
    let mut command = Command::cargo_bin("monolith-probe").unwrap();
    let output = command.args(["--device", "4096"]).timeout(PATIENCE).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("--gpus all"), "{message}");
    assert!(output.stdout.is_empty());
}
