//! `monolith kernels`: the variant table, and its compilation.

use crate::args::{KernelsBuildArgs, KernelsCommand};
use crate::exit::{Code, Exit, OrExit};
use crate::progress::{Progress, Unit};
use crate::source;
use crate::text_out::{put, say};
use comfy_table::{Table, presets::NOTHING};
use monolith_kernels::bundle::Built;
use monolith_kernels::source::KERNEL;
use monolith_kernels::variant::TABLE;
use monolith_kernels::{Arch, Shape, kernels_build};

/// Shows or compiles the kernels.
///
/// # Errors
/// Code 2 for a shape that no kernel runs; code 1 where NVRTC is not found, or a kernel does not
/// compile.
pub fn run(command: &KernelsCommand) -> Result<(), Exit> {
    match command {
        KernelsCommand::List => put(&list())?,
        KernelsCommand::Build(args) => build(args)?,
    }
    Ok(())
}

/// Renders one row for each variant and architecture: the compiled-in constants depend on both.
fn list() -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header([
        "variant",
        "format",
        "hand-off",
        "arch",
        "threads",
        "ring",
        "KV chunk",
        "KV splits",
        "KV ahead",
        "X-ray",
    ]);
    for variant in TABLE {
        for arch in Arch::ALL {
            let tuning = arch.tuning(variant);
            table.add_row([
                variant.name.to_owned(),
                variant.formats(),
                variant.handoff.name().to_owned(),
                arch.to_string(),
                variant.threads(arch).to_string(),
                format!("{} x {} KiB", tuning.stages, tuning.stage_bytes >> 10),
                tuning.kv_chunk.to_string(),
                tuning.kv_splits.to_string(),
                tuning.kv_ahead.to_string(),
                if variant.xray { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    format!("{}\n", trimmed(&table))
}

fn build(args: &KernelsBuildArgs) -> Result<(), Exit> {
    let mut shapes = Vec::new();
    for name in &args.shape {
        shapes.push(Shape::of(&source::shape(name)?).or_exit(Code::Usage)?);
    }
    let progress = Progress::of("kernels", Unit::Of("kernels"));
    let mut tell = |kernel: &str, done: usize, total: usize| {
        progress.doing(format!("compiling {kernel}"));
        progress.at(done as u64, total as u64);
    };
    let built = kernels_build(&args.arch, &shapes, &args.out, &mut tell)?;
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

fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
