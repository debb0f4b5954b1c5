//! Every GPU kernel, compiled without a GPU, and its machine code checked.

use anyhow::{Context, Result, bail};
use monolith_kernels::bundle::{self, Built};
use monolith_kernels::cubin::Function;
use monolith_kernels::cubin::{SHARED_BYTES, THREADS};
use monolith_kernels::nvrtc::{Search, TOOLS};
use monolith_kernels::source::{KERNEL, KERNELS};
use monolith_kernels::{Arch, NVRTC_PACKAGE, Shape, Sources, Variant, variant};
use monolith_model::synth;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repo::Repo;
use crate::sass::Sass;
use crate::{command, install, say};

/// NVIDIA's compiler library and disassembler; neither needs a driver.
const WHEELS: [&str; 2] = [NVRTC_PACKAGE, "nvidia-cuda-nvdisasm==13.4.92"];
/// The model shapes to compile for.
const SHAPES: [&str; 2] = ["qwen3-0.6b", "tiny"];

/// The installed NVIDIA tools.
pub struct Tools {
    home: PathBuf,
}

/// Finds the tools, or installs them.
pub fn tools(repo: &Repo) -> Result<Tools> {
    let tools = Tools { home: repo.target.join(TOOLS) };
    let why = "they compile and disassemble the kernels (NVIDIA's licence applies)";
    install::wheels_once(&WHEELS, &tools.home, why)?;
    Ok(tools)
}

/// Compiles every released row of the variant table into target/kernels, prints a table of the
/// kernels, and fails if a kernel fails a check.
pub fn run(repo: &Repo, tools: &Tools) -> Result<()> {
    let search = Search { named: Some(tools.home.clone()), ..Search::default() };
    let out = repo.target.join("kernels");
    let mut shapes = Vec::new();
    for name in SHAPES {
        let config = synth::shape(name).with_context(|| format!("there is no shape {name}"))?;
        shapes.push(Shape::of(&config)?);
    }
    let mut tell = |kernel: &str, done: usize, total: usize| {
        say::line(format_args!("compiling {kernel} ({} of {total})", done + 1));
    };
    let (sources, rows) = (Sources::ours(), variant::released().collect::<Vec<_>>());
    let built = bundle::build(&sources, &search, &rows, &Arch::ALL, &shapes, &out, &mut tell)?;
    let mut problems = Vec::new();
    say::line(heading());
    for kernel in &built {
        let sass = disassemble(tools, &out.join(&kernel.row.file))?;
        let (arch, variant) = (kernel.row.arch.parse()?, Variant::find(&kernel.row.variant)?);
        say::line(row(kernel, arch, &sass));
        let what = wrong(kernel, arch, variant, &sass);
        let place = format!("{} {arch} {}", variant.name, kernel.row.shape);
        problems.extend(what.into_iter().map(|what| format!("{place}: {what}")));
    }
    for problem in &problems {
        say::line(problem);
    }
    if !problems.is_empty() {
        bail!("kernels: {} problems", problems.len());
    }
    say::line(format_args!("kernels: {} compiled, all checks passed", built.len()));
    Ok(())
}

fn disassemble(tools: &Tools, cubin: &Path) -> Result<Sass> {
    let mut nvdisasm = Command::new(tools.home.join("nvidia/cu13/bin/nvdisasm"));
    Ok(Sass::parse(&command::output(nvdisasm.arg("--print-code").arg(cubin))?))
}

fn heading() -> String {
    format!(
        "{:<24}{:<9}{:<34}{:>9}{:>16}{:>13}{:>9}{:>10}",
        "variant", "arch", "shape", "registers", "shared / max", "instructions", "KB", "compile"
    )
}

fn row(kernel: &Built, arch: Arch, sass: &Sass) -> String {
    let function = kernel.info.kernel(KERNEL);
    let mut line = format!("{:<24}{arch:<9}{:<34}", kernel.row.variant, kernel.row.shape);
    let (registers, bytes) =
        function.map_or((0, 0), |function| (function.registers, function.code_bytes));
    let shared = format!("{} / {}", kernel.info.shared_bytes(KERNEL), arch.shared_bytes_max());
    let _ = write!(
        line,
        "{registers:>9}{shared:>16}{:>13}{:>9}{:>8.2} s",
        sass.instructions,
        bytes / 1024,
        kernel.took.as_secs_f64()
    );
    line
}

/// The checks that one of a cubin's two kernels fails.
fn wrong_in(function: &Function, arch: Arch, variant: &Variant) -> Vec<String> {
    let (mut found, name) = (Vec::new(), &function.name);
    // With 200 KB of shared memory there is hardly any L1: a spilled register is a trip to L2
    // (notes/chain.md).
    let bytes = function.frame_bytes;
    if bytes > 0 {
        found.push(format!("{bytes} bytes of local memory in {name}: spills, or indexed arrays"));
    }
    let threads = variant.threads(arch);
    let limit = arch.registers_max(threads);
    if function.registers > limit {
        let registers = function.registers;
        found.push(format!("{name}: {registers} registers, {limit} fit {threads} threads"));
    }
    if function.threads_max.is_some_and(|bound| bound < threads) {
        found.push(format!("{name}: launch bounds below the variant's {threads} threads"));
    }
    found
}

/// The checks that the kernel fails.
fn wrong(kernel: &Built, arch: Arch, variant: &Variant, sass: &Sass) -> Vec<String> {
    let mut found = Vec::new();
    if !kernel.log.is_empty() {
        found.push(format!("the compiler warns:\n{}", kernel.log));
    }
    for name in [SHARED_BYTES, THREADS] {
        found.extend(kernel.info.constant(name).err().map(|error| error.to_string()));
    }
    for name in KERNELS {
        match kernel.info.kernel(name) {
            Some(function) => found.extend(wrong_in(function, arch, variant)),
            None => found.push(format!("there is no kernel {name}")),
        }
    }
    // A called function has a frame of its own, unless it counts in the kernel's.
    let called = kernel.info.functions.iter().filter(|function| !function.is_kernel);
    for function in called.filter(|function| function.frame_bytes > 0) {
        found.push(format!("{} has {} bytes of stack", function.name, function.frame_bytes));
    }
    let threads = variant.threads(arch);
    if kernel.info.constants.get(THREADS).is_some_and(|told| *told != u64::from(threads)) {
        found.push(format!("{THREADS} is not the variant's {threads} threads"));
    }
    let (shared, limit) = (kernel.info.shared_bytes(KERNEL), arch.shared_bytes_max());
    if shared > u64::from(limit) {
        found.push(format!("{shared} bytes of shared memory; a block can have {limit}"));
    }
    for wanted in variant.instructions.iter().filter(|wanted| sass.count(wanted) == 0) {
        found.push(format!("its machine code has no {wanted}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use monolith_kernels::CubinInfo;
    use monolith_kernels::bundle::Row;
    use monolith_kernels::variant::TABLE;
    use std::time::Duration;

    const GOOD_SASS: &str = "/*0000*/ HMMA.16816 R0 ; /*0010*/\n/*0010*/ @P0 UBLKCP [UR4] ;\n\
                             /*0020*/ SYNCS.EXCH.64 URZ ;";

    fn good() -> Built {
        let text = || String::new();
        let row = Row {
            file: text(),
            key: text(),
            variant: TABLE[0].name.into(),
            arch: "sm_90a".into(),
            shape: text(),
            compiler: text(),
            sha256: text(),
        };
        let function = |name: &str| Function {
            name: name.into(),
            is_kernel: true,
            registers: 96,
            threads_max: Some(TABLE[0].threads(Arch::SM_90A)),
            ..Function::default()
        };
        let constants =
            [(SHARED_BYTES, 200_000), (THREADS, u64::from(TABLE[0].threads(Arch::SM_90A)))];
        let info = CubinInfo {
            capability: 90,
            functions: KERNELS.map(function).into(),
            constants: constants.map(|(name, value)| (name.into(), value)).into(),
            compiler: None,
        };
        Built { row, info, log: text(), took: Duration::ZERO }
    }

    fn found(kernel: &Built, sass: &str) -> String {
        wrong(kernel, Arch::SM_90A, &TABLE[0], &Sass::parse(sass)).join("\n")
    }

    #[test]
    fn a_good_kernel_passes() {
        assert_eq!(found(&good(), GOOD_SASS), "");
    }

    #[test]
    fn what_is_not_as_wanted_is_named() {
        let function = |change: fn(&mut Function)| {
            let mut kernel = good();
            change(&mut kernel.info.functions[0]);
            found(&kernel, GOOD_SASS)
        };
        assert!(function(|f| f.registers = 97).contains("97 registers, 96 fit"));
        assert!(function(|f| f.frame_bytes = 8).contains("8 bytes of local memory"));
        assert!(function(|f| f.threads_max = Some(512)).contains("launch bounds"));
        assert!(function(|f| f.static_shared_bytes = 40_000).contains("240000 bytes of shared"));
        assert!(function(|f| f.is_kernel = false).contains("no kernel"));
        let mut kernel = good();
        kernel.info.constants.insert(THREADS.into(), 512);
        kernel.info.constants.remove(SHARED_BYTES);
        kernel.log = "a.cu:1: warning: unused".into();
        let text = found(&kernel, GOOD_SASS);
        for part in [THREADS, SHARED_BYTES, "a.cu:1: warning"] {
            assert!(text.contains(part), "{text}");
        }
        for wanted in TABLE[0].instructions {
            let without = GOOD_SASS.replace(wanted, "NOP");
            assert!(found(&good(), &without).contains(&format!("no {wanted}")));
        }
        let mut kernel = good();
        kernel.info.functions[1].frame_bytes = 33;
        kernel.info.functions.push(Function { frame_bytes: 8, ..Function::default() });
        let text = found(&kernel, GOOD_SASS);
        assert!(text.contains("33 bytes of local memory in monolith_step_split"), "{text}");
        assert!(text.contains("8 bytes of stack"), "{text}");
    }
}
