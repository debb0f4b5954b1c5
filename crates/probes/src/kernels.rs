//! The probes' kernels: sources, compilation, and a folder of compiled kernels for machines without
//! NVRTC.

use crate::ProbeError;
use monolith_kernels::nvrtc::{Nvrtc, Search};
use monolith_kernels::source::ENTRY;
use monolith_kernels::{Arch, Sources};
use std::path::Path;
use std::{fmt, fs};

/// One of our source files, each compiled separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Module {
    /// e4m3 and e2m1 to f16.
    Convert,
    /// `%globaltimer` and `clock64`.
    Clocks,
    /// Reading memory.
    Bandwidth,
    /// Hand-offs between blocks.
    Handoff,
}

/// The headers for every source, besides the megakernel's own types and assembly.
const HEADERS: [(&str, &str); 2] =
    [("ops.cuh", include_str!("../cu/ops.cuh")), ("bound.cuh", include_str!("../cu/bound.cuh"))];

/// Numbers that host and kernels share, passed to the compiler as defines.
pub(crate) mod shared {
    /// Words of a line of 128 bytes of mail.
    pub(crate) const MAIL_STRIDE: usize = 16;
    /// Words that a block of `probe_rate` writes.
    pub(crate) const RATE_WORDS: usize = 5;
    /// Stages that `probe_read_bulk` has barriers for.
    pub(crate) const STAGES_MAX: u32 = 32;
    /// Warps of `probe_read_bulk` that read the ring; one more fills it.
    pub(crate) const CONSUMER_WARPS: u32 = 8;
    /// Threads of a block in the hand-off probes.
    pub(crate) const HANDOFF_THREADS: u32 = 512;
    /// Maximum number of hand-offs in a launch.
    pub(crate) const EXCHANGES_MAX: u32 = 512;
    /// What a wait is for, in the order of bound.cuh's `What`, which counts from 0.
    pub(crate) const WAITS: [&str; 5] = [
        "the epoch of unit",
        "the grid barrier, exchange",
        "the mail of block",
        "the full ring stage",
        "the empty ring stage",
    ];

    pub(super) const DEFINES: [(&str, u32); 7] = [
        ("PROBE_MAIL_STRIDE", MAIL_STRIDE as u32),
        ("PROBE_RATE_WORDS", RATE_WORDS as u32),
        ("PROBE_STAGES_MAX", STAGES_MAX),
        ("PROBE_CONSUMER_WARPS", CONSUMER_WARPS),
        ("PROBE_HANDOFF_THREADS", HANDOFF_THREADS),
        ("PROBE_EXCHANGES_MAX", EXCHANGES_MAX),
        ("PROBE_WAITS", WAITS.len() as u32),
    ];
}

impl Module {
    /// Every module.
    pub const ALL: [Module; 4] =
        [Module::Convert, Module::Clocks, Module::Bandwidth, Module::Handoff];

    /// The file's name.
    pub fn file(self) -> &'static str {
        match self {
            Module::Convert => "convert.cu",
            Module::Clocks => "clocks.cu",
            Module::Bandwidth => "bandwidth.cu",
            Module::Handoff => "handoff.cu",
        }
    }

    /// Its kernels.
    pub fn kernels(self) -> &'static [&'static str] {
        match self {
            Module::Convert => &["probe_convert"],
            Module::Clocks => &["probe_steps", "probe_rate", "probe_offsets"],
            Module::Bandwidth => {
                &["probe_fill", "probe_expect", "probe_read_plain", "probe_read_bulk"]
            }
            Module::Handoff => &["probe_gather_1024", "probe_gather_3072", "probe_barrier"],
        }
    }

    fn text(self) -> &'static str {
        match self {
            Module::Convert => include_str!("../cu/convert.cu"),
            Module::Clocks => include_str!("../cu/clocks.cu"),
            Module::Bandwidth => include_str!("../cu/bandwidth.cu"),
            Module::Handoff => include_str!("../cu/handoff.cu"),
        }
    }

    fn sources(self) -> Sources {
        let text = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
        // By an include, so that messages name the file.
        let entry = (ENTRY.to_owned(), format!("#include \"../{}\"\n", self.file()));
        let files = HEADERS.into_iter().chain([(self.file(), self.text())]).map(text);
        let ours = Sources::ours();
        let ours =
            ours.files().filter(|(name, _)| *name == "types.cuh" || name.starts_with("ptx/"));
        Sources::new(files.chain(ours.map(text)).chain([entry]))
    }

    fn cubin_file(self, arch: Arch) -> String {
        format!("{}.{arch}.cubin", self.file().trim_end_matches(".cu"))
    }
}

impl fmt::Display for Module {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.file())
    }
}

/// Compiles one module.
///
/// # Errors
/// The module does not compile, or this NVRTC is not suitable.
pub fn compile(nvrtc: &Nvrtc, module: Module, arch: Arch) -> Result<Vec<u8>, ProbeError> {
    let mut options = vec![
        format!("-arch={arch}"),
        "--std=c++17".into(),
        "-default-device".into(),
        format!("-DPROBE_HAS_E2M1={}", u8::from(arch.has_e2m1())),
    ];
    options.extend(shared::DEFINES.map(|(name, value)| format!("-D{name}={value}")));
    let compiled = nvrtc.compile(&module.sources(), arch, &options);
    compiled.map(|compiled| compiled.cubin).map_err(ProbeError::Kernels)
}

/// Compiles every module for every architecture into a folder, which it makes.
///
/// # Errors
/// There is no NVRTC, or the folder cannot be written.
pub fn write(folder: &Path) -> Result<(), ProbeError> {
    let nvrtc = nvrtc("the probes")?;
    fs::create_dir_all(folder).map_err(ProbeError::io(folder))?;
    for arch in Arch::ALL {
        for module in Module::ALL {
            let path = folder.join(module.cubin_file(arch));
            fs::write(&path, compile(&nvrtc, module, arch)?).map_err(ProbeError::io(&path))?;
        }
    }
    Ok(())
}

fn nvrtc(wanted: &str) -> Result<Nvrtc, ProbeError> {
    Nvrtc::load(&Search::from_env()).map_err(|error| ProbeError::Kernels(error.wanted(wanted)))
}

/// Where kernels come from.
pub(crate) enum Store {
    Compiler(Nvrtc),
    Folder(std::path::PathBuf),
}

impl Store {
    pub(crate) fn open(folder: Option<&Path>, arch: Arch) -> Result<Store, ProbeError> {
        match folder {
            Some(folder) => Ok(Store::Folder(folder.to_owned())),
            None => nvrtc(&format!("the probes on {arch}")).map(Store::Compiler),
        }
    }

    pub(crate) fn get(&self, module: Module, arch: Arch) -> Result<Vec<u8>, ProbeError> {
        match self {
            Store::Compiler(nvrtc) => compile(nvrtc, module, arch),
            Store::Folder(folder) => {
                let path = folder.join(module.cubin_file(arch));
                fs::read(&path).map_err(ProbeError::io(path))
            }
        }
    }

    /// Describes the store, for the report.
    pub(crate) fn describe(&self) -> String {
        match self {
            Store::Compiler(nvrtc) => format!("NVRTC {}", nvrtc.version()),
            Store::Folder(_) => "compiled before".into(),
        }
    }
}
