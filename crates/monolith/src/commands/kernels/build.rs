//! `monolith kernels build`: the variants, compiled into a folder.

use super::trimmed;
use crate::exit::{Code, Exit, OrExit};
use crate::progress::{Progress, Unit};
use crate::text_out::{put, say};
use crate::{source, values};
use comfy_table::{Table, presets::NOTHING};
use monolith_kernels::bundle::Built;
use monolith_kernels::source::KERNEL;
use monolith_kernels::variant::TABLE;
use monolith_kernels::{Arch, Shape, kernels_build};
use std::ffi::OsString;
use std::path::PathBuf;

/// Compile the variants into a folder, with a manifest; this needs NVRTC and no GPU
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// GPU architectures
    #[arg(long, value_name = "ARCH,...", value_delimiter = ',')]
    #[arg(default_values_t = Arch::ALL, value_parser = values::arch)]
    pub arch: Vec<Arch>,
    /// Named shapes (qwen3-0.6b, tiny), or paths of a config.json
    #[arg(long, value_name = "SHAPE,...", value_delimiter = ',')]
    #[arg(default_value = "qwen3-0.6b,tiny")]
    pub shape: Vec<OsString>,
    /// Also the variants that only the ablation measures, which a release does not embed
    #[arg(long)]
    pub ablation: bool,
    /// The folder to write to
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:
  monolith kernels build --out kernels
  monolith kernels build --arch sm_120a --shape model/config.json --out kernels
  MONOLITH_KERNELS_DIR=kernels cargo build --release -p monolith    embeds them";

/// Compiles the kernels for every shape and architecture.
///
/// # Errors
/// Code 2 for a shape that no kernel runs; code 1 where NVRTC is not found, or a kernel does not
/// compile.
pub fn run(args: &Args) -> Result<(), Exit> {
    let mut shapes = Vec::new();
    for name in &args.shape {
        shapes.push(Shape::of(&source::shape(name)?).or_exit(Code::Usage)?);
    }
    let progress = Progress::of("kernels", Unit::Of("kernels"));
    let mut tell = |kernel: &str, done: usize, total: usize| {
        progress.doing(format!("compiling {kernel}"));
        progress.at(done as u64, total as u64);
    };
    let rows: Vec<_> = TABLE.iter().filter(|row| args.ablation || row.is_released()).collect();
    let built = kernels_build(&rows, &args.arch, &shapes, &args.out, &mut tell)?;
    drop(progress);
    for kernel in built.iter().filter(|kernel| !kernel.log.is_empty()) {
        say(&format!("{}: the compiler warns:\n{}", kernel.row.file, kernel.log));
    }
    put(&built_table(&built))?;
    Ok(())
}

fn built_table(built: &[Built]) -> String {
    let mut table = Table::new();
    let columns = ["file", "registers", "shared", "local", "code KB", "compiler", "took"];
    table.load_style(NOTHING).set_header(columns);
    for kernel in built {
        let function = kernel.info.kernel(KERNEL).cloned().unwrap_or_default();
        table.add_row([
            kernel.row.file.clone(),
            function.registers.to_string(),
            kernel.info.shared_bytes(KERNEL).to_string(),
            function.frame_bytes.to_string(),
            (function.code_bytes / 1024).to_string(),
            kernel.row.compiler.clone(),
            format!("{:.1} s", kernel.took.as_secs_f64()),
        ]);
    }
    format!("{}\n", trimmed(&table))
}
