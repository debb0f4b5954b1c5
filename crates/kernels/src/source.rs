//! The CUDA sources, the compiler's options, and the hash over both.

use crate::{Arch, Shape, Variant, embedded};
use monolith_files::hex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The file that is compiled. It includes the others, by their path from its folder.
pub const ENTRY: &str = "entry/megakernel.cu";
/// The file that is compiled for a row whose step is a kernel a phase.
pub const ENTRY_OF_PHASES: &str = "entry/phases.cu";
/// The kernel's name in the cubin.
pub const KERNEL: &str = "monolith_step";
/// Both kernels' names: of short texts, and of long ones.
pub const KERNELS: [&str; 2] = [KERNEL, "monolith_step_split"];
/// The kernels' names where every phase is one, in order of use; attention and the O projection of
/// short texts, then of long ones.
pub const KERNELS_OF_PHASES: [&str; 8] = [
    "monolith_qkv",
    "monolith_attention",
    "monolith_o_proj",
    "monolith_attention_split",
    "monolith_o_proj_split",
    "monolith_gate_up",
    "monolith_down",
    "monolith_head",
];
/// Options that do not depend on the kernel. NVRTC lacks two builtins of nvcc and clang: the
/// generated header checks itself with one, and the sources write minus infinity with the other.
const COMMON_OPTIONS: [&str; 4] = [
    "--std=c++17",
    "-default-device",
    "-D__builtin_offsetof(type,member)=__INTADDR__(&((type*)0)->member)",
    "-D__builtin_huge_valf()=__builtin_bit_cast(float,0x7f800000)",
];
/// Changes when the meaning of a key changes.
const KEY_VERSION: &str = "monolith kernel 1";

/// A set of CUDA sources, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    entry: &'static str,
    files: BTreeMap<Cow<'static, str>, Cow<'static, str>>,
}

impl Sources {
    /// Returns the sources in cu/.
    pub fn ours() -> Sources {
        let files = embedded::SOURCES.iter();
        let files = files.map(|(name, text)| ((*name).into(), (*text).into())).collect();
        Sources { entry: ENTRY, files }
    }

    /// Returns the same sources with the entry of a row of the table.
    #[must_use]
    pub fn of(&self, variant: &Variant) -> Sources {
        Sources { entry: variant.entry(), files: self.files.clone() }
    }

    /// The path of the file that is compiled: [`ENTRY`], or another row's.
    pub const fn entry_name(&self) -> &'static str {
        self.entry
    }

    /// Returns other sources, for tests: path and text. One of them is [`ENTRY`].
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Sources {
        let files = files.into_iter();
        let files = files.map(|(name, text)| (name.into(), text.into())).collect();
        Sources { entry: ENTRY, files }
    }

    /// Returns the path and text of every file.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(name, text)| (&**name, &**text))
    }

    /// Returns the entry's text, if it exists, as the compiler gets it.
    pub(crate) fn entry(&self) -> Option<String> {
        self.files.get(self.entry).map(|text| self.resolved(self.entry, text))
    }

    /// Returns the other files, as the compiler gets them: path and text.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, String)> {
        let files = self.files.iter().filter(|(name, _)| *name != self.entry);
        files.map(|(name, text)| (&**name, self.resolved(name, text)))
    }

    /// Rewrites every include to its path from cu/, by which NVRTC finds files in memory; the
    /// sources name it relative to their own folder. Line numbers do not change.
    fn resolved(&self, file: &str, text: &str) -> String {
        let lines = text.split_inclusive('\n').map(|line| {
            self.include(file, line)
                .map_or(Cow::Borrowed(line), |path| Cow::Owned(format!("#include \"{path}\"\n")))
        });
        lines.collect()
    }

    /// Returns the path from cu/ of the file that the line includes, if it is one of ours.
    fn include(&self, file: &str, line: &str) -> Option<String> {
        let name = line.trim().strip_prefix("#include")?.trim().strip_prefix('"')?;
        let name = name.strip_suffix('"')?;
        let mut path: Vec<&str> = file.split('/').collect();
        path.pop();
        for part in name.split('/') {
            match part {
                "." => {}
                ".." => drop(path.pop()?),
                part => path.push(part),
            }
        }
        let path = path.join("/");
        self.files.contains_key(&*path).then_some(path)
    }

    /// Returns the hash over the sources and the options, which does not depend on the compiler.
    pub fn key(&self, options: &[String]) -> String {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            // With its length, so that no two lists give the same bytes.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        add(KEY_VERSION);
        add(&self.files.len().to_string());
        for (name, text) in &self.files {
            add(name);
            add(text);
        }
        options.iter().for_each(|option| add(option));
        hex(&hash.finalize())
    }
}

/// Returns the compiler's options for a row of the table, a shape and an architecture.
pub fn options(arch: Arch, shape: &Shape, variant: &Variant) -> Vec<String> {
    let mut options = vec![format!("-arch={arch}")];
    options.extend(COMMON_OPTIONS.map(String::from));
    let defines = variant.defines(arch, shape).into_iter();
    options.extend(defines.map(|(name, value)| format!("-D{name}={value}")));
    options
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variant::TABLE;
    use monolith_model::Config;
    use std::collections::HashSet;

    fn sources(files: &[(&str, &str)]) -> Sources {
        Sources::new(files.iter().map(|(name, text)| ((*name).into(), (*text).into())))
    }

    #[test]
    fn the_key_is_stable_and_sensitive_to_everything() {
        let options = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let base = sources(&[(ENTRY, "abc"), ("a.cuh", "def")]);
        let key = base.key(&options(&["-x", "-y"]));
        assert_eq!(key, base.clone().key(&options(&["-x", "-y"])));
        assert_eq!(key.len(), 64);
        let others = [
            sources(&[(ENTRY, "abd"), ("a.cuh", "def")]).key(&options(&["-x", "-y"])),
            sources(&[(ENTRY, "abc"), ("b.cuh", "def")]).key(&options(&["-x", "-y"])),
            sources(&[(ENTRY, "abc"), ("a.cuh", "deg")]).key(&options(&["-x", "-y"])),
            sources(&[(ENTRY, "abc")]).key(&options(&["-x", "-y"])),
            sources(&[(ENTRY, "abc"), ("a.cuh", "def"), ("-x", "-y")]).key(&[]),
            base.key(&options(&["-y", "-x"])),
            base.key(&options(&["-x-y"])),
            base.key(&options(&["-x"])),
        ];
        let all: HashSet<_> = others.iter().chain([&key]).collect();
        assert_eq!(all.len(), others.len() + 1);
    }

    #[test]
    fn includes_are_resolved_from_the_folder_of_the_file() {
        let text = "// x\n#include \"../a.cuh\"\n  #include \"./c.cuh\"\n#include <m>\n\
                    #include \"gone.cuh\"\n#include \"../../a.cuh\"\nint x;";
        let sources = sources(
            &[(ENTRY, "#include \"../b/b.cuh\""), ("b/b.cuh", text)]
                .into_iter()
                .chain([("a.cuh", ""), ("b/c.cuh", "")])
                .collect::<Vec<_>>(),
        );
        assert_eq!(sources.entry().unwrap(), "#include \"b/b.cuh\"\n");
        let (_, resolved) = sources.headers().find(|(name, _)| *name == "b/b.cuh").unwrap();
        let wanted = text.replace("../a.cuh", "a.cuh").replace("./c.cuh", "b/c.cuh");
        let wanted =
            wanted.replace("  #include", "#include").replace("\"../a.cuh", "\"../../a.cuh");
        assert_eq!(resolved, wanted);
    }

    #[test]
    fn options_name_the_row_the_shape_and_the_architecture() {
        let shape = Shape::of(&Config::qwen3_0_6b()).unwrap();
        let options = |arch| options(arch, &shape, &TABLE[0]).join(" ");
        let text = options(Arch::SM_90A);
        assert_eq!(text, options(Arch::SM_90A));
        assert!(text.starts_with("-arch=sm_90a --std=c++17 -default-device "), "{text}");
        for (name, value) in TABLE[0].defines(Arch::SM_90A, &shape) {
            assert!(text.contains(&format!(" -D{name}={value}")), "{name} in: {text}");
        }
        assert!(options(Arch::SM_120A).starts_with("-arch=sm_120a "));
        assert_ne!(options(Arch::SM_120A).replace("sm_120a", "sm_90a"), text);
    }
}
