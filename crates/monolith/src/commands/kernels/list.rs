//! `monolith kernels list`: the variant table.

use super::trimmed;
use crate::exit::Exit;
use crate::text_out::put;
use comfy_table::{Table, presets::NOTHING};
use monolith_kernels::Arch;
use monolith_kernels::variant::TABLE;

/// Show the variant table: one row per kernel
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints one row for each kernel.
///
/// # Errors
/// The reader closed the pipe.
pub fn run(_: &Args) -> Result<(), Exit> {
    Ok(put(&list())?)
}

/// Renders one row for each variant and architecture: the compiled-in constants depend on both.
fn list() -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "variant",
        "format",
        "hand-off",
        "attention",
        "launch",
        "arch",
        "threads",
        "ring",
        "KV chunk",
        "KV splits",
        "X-ray",
    ]);
    for variant in TABLE {
        for arch in Arch::ALL {
            let tuning = arch.tuning(variant);
            table.add_row([
                variant.name.to_owned(),
                variant.formats(),
                variant.handoff.name().to_owned(),
                variant.attention.name().to_owned(),
                variant.launch.name().to_owned(),
                arch.to_string(),
                variant.threads(arch).to_string(),
                format!("{} x {} KiB", tuning.stages, tuning.stage_bytes >> 10),
                tuning.kv_chunk.to_string(),
                tuning.kv_splits.to_string(),
                if variant.xray { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    format!("{}\n", trimmed(&table))
}
