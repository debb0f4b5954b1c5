//! Reads from a cubin its registers, shared memory, stack and compiler, without NVIDIA's tools.

use crate::KernelError;
use object::elf::{EM_CUDA, FileHeader64};
use object::read::elf::{ElfFile64, ElfSymbol64, FileHeader, Sym};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use std::collections::BTreeMap;

/// The constant in which the sources state the dynamic shared memory of a launch.
pub const SHARED_BYTES: &str = "monolith_shared_bytes";
/// The constant in which the sources state the threads of a block.
pub const THREADS: &str = "monolith_threads";
/// Prefix of the constants by which the sources tell the host facts.
const CONSTANT_PREFIX: &str = "monolith_";

/// ELF's number for CUDA.
const MACHINE_CUDA: u16 = EM_CUDA.0;
/// From this version on, the second byte of the header's flags is the architecture.
const ABI_VERSION_SECOND_BYTE: u8 = 8;
/// Shared memory that the system reserves in every block; it does not count towards the limit.
const RESERVED_SHARED_BYTES: u64 = 1024;

/// In a symbol's `st_other`: the host can launch this function.
const OTHER_ENTRY: u8 = 0x10;

/// Attributes of `.nv.info`: a function's index in the symbol table, then a number.
const ATTRIBUTE_REGISTERS: u8 = 0x2f;
const ATTRIBUTE_FRAME_BYTES: u8 = 0x11;
const ATTRIBUTE_STACK_BYTES: u8 = 0x12;
/// Attribute of `.nv.info.<kernel>`: threads of a block, in three dimensions.
const ATTRIBUTE_THREADS_MAX: u8 = 0x05;
/// The format of an attribute that states its length.
const FORMAT_SIZED: u8 = 0x04;

/// The facts that a cubin states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CubinInfo {
    /// Compute capability, major times ten plus minor.
    pub capability: u32,
    /// The kernels and the functions that they call, by name.
    pub functions: Vec<Function>,
    /// The facts that the sources tell the host: `extern "C" __device__ const` numbers of 32 or 64
    /// bits whose names begin with `monolith_`.
    pub constants: BTreeMap<String, u64>,
    /// The compiler's version: `13.0.88`.
    pub compiler: Option<String>,
}

/// A kernel, or a function that a kernel calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether the host can launch it.
    pub is_kernel: bool,
    /// Registers per thread.
    pub registers: u32,
    /// Local memory of its frame: arrays that are indexed at run time, and spills.
    pub frame_bytes: u32,
    /// Minimum stack, including the functions that it calls.
    pub stack_bytes: u32,
    /// Static shared memory, without the kilobyte that the system reserves.
    pub static_shared_bytes: u32,
    /// Most threads of a block, if the sources bound them.
    pub threads_max: Option<u32>,
    /// Bytes of machine code.
    pub code_bytes: u64,
}

type Elf<'a> = ElfFile64<'a, Endianness>;

impl CubinInfo {
    /// Reads a cubin.
    ///
    /// # Errors
    /// The file is not an ELF file for CUDA.
    pub fn read(bytes: &[u8]) -> Result<CubinInfo, KernelError> {
        let elf = Elf::parse(bytes).map_err(|error| KernelError::cubin(error.to_string()))?;
        let header = elf.elf_header();
        let machine = header.e_machine(elf.endian()).0;
        if machine != MACHINE_CUDA {
            return Err(KernelError::cubin(format!("it is for machine {machine}, not for CUDA")));
        }
        let mut functions = functions(&elf);
        for (attribute, index, value) in function_attributes(section(&elf, ".nv.info")) {
            let Some(function) = functions.get_mut(&index) else { continue };
            match attribute {
                ATTRIBUTE_REGISTERS => function.registers = value,
                ATTRIBUTE_FRAME_BYTES => function.frame_bytes = value,
                ATTRIBUTE_STACK_BYTES => function.stack_bytes = value,
                _ => {}
            }
        }
        Ok(CubinInfo {
            capability: capability(header, elf.endian()),
            functions: functions.into_values().collect(),
            constants: constants(&elf),
            compiler: compiler(section(&elf, ".note.nv.tkinfo")),
        })
    }

    /// Returns a number that the sources tell the host.
    ///
    /// # Errors
    /// The sources have no such constant; the error names it.
    pub fn constant(&self, name: &str) -> Result<u64, KernelError> {
        let value = self.constants.get(name).copied();
        value.ok_or_else(|| KernelError::cubin(format!("it has no constant {name}")))
    }

    /// Returns the shared memory of a launch of the kernel: its static size, and the dynamic size
    /// that the sources tell the host.
    pub fn shared_bytes(&self, kernel: &str) -> u64 {
        let declared = self.kernel(kernel).map_or(0, |kernel| kernel.static_shared_bytes);
        self.constants.get(SHARED_BYTES).copied().unwrap_or(0).saturating_add(declared.into())
    }

    /// Returns the kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.is_kernel && function.name == name)
    }
}

fn capability(header: &FileHeader64<Endianness>, endian: Endianness) -> u32 {
    let flags = header.e_flags(endian).0;
    let second = header.e_ident().abi_version >= ABI_VERSION_SECOND_BYTE;
    if second { flags >> 8 & 0xff } else { flags & 0xff }
}

/// Returns the functions by their index in the symbol table, with the facts from the sections.
fn functions(elf: &Elf) -> BTreeMap<u32, Function> {
    let mut found = BTreeMap::new();
    for symbol in elf.symbols() {
        let (Ok(name), Ok(index)) = (symbol.name(), u32::try_from(symbol.index().0)) else {
            continue;
        };
        let in_text = symbol.section_index().and_then(|at| elf.section_by_index(at).ok());
        let text = in_text.as_ref().and_then(|text| text.name().ok()).unwrap_or_default();
        if symbol.kind() != object::SymbolKind::Text || !text.starts_with(".text.") {
            continue;
        }
        let info = format!(".nv.info.{name}");
        found.insert(
            index,
            Function {
                name: name.into(),
                is_kernel: is_entry(&symbol),
                static_shared_bytes: static_shared_bytes(elf, name),
                threads_max: threads_max(section(elf, &info)),
                code_bytes: symbol.size(),
                ..Function::default()
            },
        );
    }
    found
}

fn is_entry(symbol: &ElfSymbol64<'_, '_, Endianness>) -> bool {
    symbol.elf_symbol().st_other().0 & OTHER_ENTRY != 0
}

fn section<'a>(elf: &Elf<'a>, name: &str) -> &'a [u8] {
    elf.section_by_name(name).and_then(|section| section.data().ok()).unwrap_or_default()
}

fn static_shared_bytes(elf: &Elf, kernel: &str) -> u32 {
    let section = elf.section_by_name(&format!(".nv.shared.{kernel}"));
    let bytes = section.map_or(0, |section| section.size());
    u32::try_from(bytes.saturating_sub(RESERVED_SHARED_BYTES)).unwrap_or(u32::MAX)
}

/// Returns the attributes that state their length: number and content.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let (&[format, attribute, low, high], tail) = rest.split_first_chunk()?;
            rest = tail;
            if format == FORMAT_SIZED {
                let (content, tail) =
                    rest.split_at_checked(usize::from(u16::from_le_bytes([low, high])))?;
                rest = tail;
                return Some((attribute, content));
            }
        }
    })
}

/// Returns the attributes of functions: number, index in the symbol table, value.
fn function_attributes(info: &[u8]) -> impl Iterator<Item = (u8, u32, u32)> {
    attributes(info).filter_map(|(attribute, content)| {
        let (index, value) = content.split_first_chunk()?;
        let value = value.try_into().ok()?;
        Some((attribute, u32::from_le_bytes(*index), u32::from_le_bytes(value)))
    })
}

fn threads_max(info: &[u8]) -> Option<u32> {
    let (_, content) = attributes(info).find(|(number, _)| *number == ATTRIBUTE_THREADS_MAX)?;
    let (sizes, _) = content.as_chunks();
    sizes.iter().try_fold(1u32, |all, size| all.checked_mul(u32::from_le_bytes(*size)))
}

/// Returns the numbers that the sources tell the host.
fn constants(elf: &Elf) -> BTreeMap<String, u64> {
    let ours = elf.symbols().filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| name.starts_with(CONSTANT_PREFIX))?;
        let section = elf.section_by_index(symbol.section_index()?).ok()?;
        let at = usize::try_from(symbol.address().checked_sub(section.address())?).ok()?;
        let bytes = section.data().ok()?.get(at..)?;
        let value = match symbol.size() {
            4 => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
            8 => u64::from_le_bytes(*bytes.first_chunk()?),
            _ => return None,
        };
        Some((name.into(), value))
    });
    ours.collect()
}

/// Returns the version in `Cuda compilation tools, release 13.0, V13.0.88`.
fn compiler(note: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"release ";
    let at = note.windows(BEFORE.len()).position(|window| window == BEFORE)?;
    let text = note[at..].split(|byte| *byte == 0).next()?;
    let (_, version) = std::str::from_utf8(text).ok()?.rsplit_once(", V")?;
    Some(version.into())
}
