//! Finds NVRTC, loads it at run time, and compiles with it.
//!
//! NVRTC opens a second library, libnvrtc-builtins, by its bare name, which the system's loader
//! finds only in its own folders. We load that library first, from NVRTC's folder. The loader then
//! reuses it, and nobody has to set `LD_LIBRARY_PATH`.

use crate::source::Sources;
use crate::{Arch, KernelError};
use libloading::Library;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr;

/// The library's names, in order of preference.
const NAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so"];
const BUILTINS_PREFIX: &str = "libnvrtc-builtins.so.";
/// The library's folder below a given folder: the folder itself, in CUDA, in a PyPI package.
const BELOW: [&str; 4] = ["", "lib64", "lib", "nvidia/cu13/lib"];
/// Where `cargo xtask kernels` installs the PyPI packages, below cargo's target folder.
pub const TOOLS: &str = "tools/cuda";

const SUCCESS: c_int = 0;

/// Where to look for NVRTC.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The library or its folder, if the user names it: then nothing else is tried.
    pub named: Option<PathBuf>,
    /// Folders to search, including the usual folders below them.
    pub folders: Vec<PathBuf>,
    /// Whether to try the library's names with the system's loader first.
    pub system: bool,
}

impl Search {
    /// Searches where `MONOLITH_NVRTC` says; otherwise with the system's loader, in CUDA's usual
    /// folders, in the active Python environment, and where `cargo xtask kernels` installs.
    pub fn from_env() -> Search {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
        let path = |name| variable(name).map(PathBuf::from);
        let mut folders: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path).collect();
        folders.push("/usr/local/cuda".into());
        folders.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).flat_map(
            // For every Python in the environment.
            |home| site_packages(&home.join("lib")),
        ));
        let program = env::current_exe().unwrap_or_default();
        let near = program.ancestors().skip(1).map(|folder| folder.join(TOOLS));
        folders.extend(near.filter(|folder| folder.is_dir()));
        Search { named: path("MONOLITH_NVRTC"), folders, system: true }
    }
}

fn site_packages(lib: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(lib).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join("site-packages")).collect();
    found.retain(|folder| folder.join("nvidia").is_dir());
    found.sort_unstable();
    found
}

/// NVRTC was not found, or does not load.
#[derive(Debug)]
pub struct LoadError {
    looked: Vec<String>,
}

impl LoadError {
    /// Returns the error for a caller that needs this kernel.
    pub fn wanted(self, wanted: &str) -> KernelError {
        KernelError::NvrtcNotFound { wanted: wanted.into(), looked: self.looked }
    }
}

/// The compiler.
pub struct Nvrtc {
    api: Api,
    library: String,
    version: String,
}

/// The result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// The machine code.
    pub cubin: Vec<u8>,
    /// Warnings; empty if there are none.
    pub log: String,
}

type Program = *mut c_void;
type Text = *const c_char;

/// NVRTC's functions, as nvrtc.h declares them. They stay valid: the library is never closed.
struct Api {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> Text,
    arch_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    arches: unsafe extern "C" fn(*mut c_int) -> c_int,
    create:
        unsafe extern "C" fn(*mut Program, Text, Text, c_int, *const Text, *const Text) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const Text) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
}

impl Nvrtc {
    /// For tests: returns the compiler that the environment names.
    ///
    /// # Panics
    /// There is no compiler.
    #[doc(hidden)]
    pub fn for_tests() -> Nvrtc {
        let loaded = Nvrtc::load(&Search::from_env());
        loaded.unwrap_or_else(|error| panic!("{}", error.wanted("the tests")))
    }

    /// For tests: returns why tests that need the compiler are ignored: it is missing. `None` if it
    /// is there, or in CI, where its absence is an error.
    #[doc(hidden)]
    pub fn missing_for_tests() -> Option<String> {
        let message = Nvrtc::load(&Search::from_env()).err()?.wanted("the tests");
        let is_ci = env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        (!is_ci).then(|| format!("{message}; `cargo xtask kernels` installs it"))
    }

    /// Finds and loads the library.
    ///
    /// # Errors
    /// The library was not found; the error lists the searched places.
    pub fn load(search: &Search) -> Result<Nvrtc, LoadError> {
        let mut looked = Vec::new();
        if search.named.is_none() && search.system {
            for name in NAMES {
                match open(Path::new(name)) {
                    Ok(nvrtc) => return Ok(nvrtc),
                    Err(_) => looked.push(format!("{name} (the system's loader)")),
                }
            }
        }
        let places = match &search.named {
            Some(named) => std::slice::from_ref(named),
            None => &search.folders,
        };
        for place in places {
            let found = candidates(place);
            if found.is_empty() {
                looked.push(place.display().to_string());
            }
            for path in found {
                match open(&path) {
                    Ok(nvrtc) => return Ok(nvrtc),
                    Err(why) => looked.push(format!("{} ({why})", path.display())),
                }
            }
        }
        Err(LoadError { looked })
    }

    /// Returns the version and the build: two builds of one version differ in length.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the library's path, if it is known.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Compiles to machine code.
    ///
    /// # Errors
    /// The sources do not compile (with the compiler's messages, by file and line), or this NVRTC
    /// is not suitable.
    pub fn compile(
        &self,
        sources: &Sources,
        arch: Arch,
        options: &[String],
    ) -> Result<Compiled, KernelError> {
        self.check_arch(arch)?;
        let entry = sources.entry().ok_or_else(|| KernelError::Compile {
            log: format!("{} is not among the sources", sources.entry_name()),
        })?;
        let program = self.program(&entry, sources)?;
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect();
        let pointers: Vec<Text> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive; the options have the given number of strings, which outlive
        // the call.
        let status =
            unsafe { (self.api.compile)(program.handle, count(&pointers), pointers.as_ptr()) };
        let log = program.bytes(self.api.log_size, self.api.log)?;
        let log = readable(&String::from_utf8_lossy(&log));
        if log.contains(BUILTINS_PREFIX) {
            return Err(self.unusable(log));
        }
        if status != SUCCESS {
            let log = if log.is_empty() { self.message(status) } else { log };
            return Err(KernelError::Compile { log });
        }
        Ok(Compiled { cubin: program.bytes(self.api.cubin_size, self.api.cubin)?, log })
    }

    fn program(&self, entry: &str, sources: &Sources) -> Result<Created<'_>, KernelError> {
        let (entry, name) = (text(entry), text(sources.entry_name()));
        let headers: Vec<(CString, CString)> =
            sources.headers().map(|(name, content)| (text(name), text(&content))).collect();
        let names: Vec<Text> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let contents: Vec<Text> = headers.iter().map(|(_, content)| content.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: every pointer is to a string or an array that outlives the call, which copies
        // them, and both arrays have the given length.
        self.check(unsafe {
            (self.api.create)(
                &mut handle,
                entry.as_ptr(),
                name.as_ptr(),
                count(&names),
                contents.as_ptr(),
                names.as_ptr(),
            )
        })?;
        Ok(Created { nvrtc: self, handle })
    }

    /// Checks that this NVRTC compiles for the architecture.
    fn check_arch(&self, arch: Arch) -> Result<(), KernelError> {
        let mut length = 0;
        // SAFETY: the function writes one number.
        self.check(unsafe { (self.api.arch_count)(&mut length) })?;
        let mut known = vec![0; usize::try_from(length).unwrap_or_default()];
        // SAFETY: the function writes as many numbers as the call above returned.
        self.check(unsafe { (self.api.arches)(known.as_mut_ptr()) })?;
        if known.iter().any(|known| u32::try_from(*known) == Ok(arch.capability())) {
            return Ok(());
        }
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let version = &self.version;
        Err(self.unusable(format!(
            "version {version} does not support {arch}, only compute capabilities {}",
            known.join(", ")
        )))
    }

    fn check(&self, status: c_int) -> Result<(), KernelError> {
        if status == SUCCESS { Ok(()) } else { Err(self.unusable(self.message(status))) }
    }

    fn unusable(&self, what: String) -> KernelError {
        KernelError::Nvrtc { library: self.library.clone(), what }
    }

    fn message(&self, status: c_int) -> String {
        // SAFETY: the function takes any number, and returns a string that is never freed.
        let message = unsafe { CStr::from_ptr((self.api.error_string)(status)) };
        message.to_string_lossy().into_owned()
    }
}

/// A program of NVRTC's, destroyed when dropped.
struct Created<'a> {
    nvrtc: &'a Nvrtc,
    handle: Program,
}

impl Created<'_> {
    /// Calls a pair of NVRTC's functions: the first returns the length, the second the bytes.
    fn bytes(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        read: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, KernelError> {
        let mut length = 0;
        // SAFETY: the program is alive; the function writes one number.
        self.nvrtc.check(unsafe { size(self.handle, &mut length) })?;
        let mut bytes = vec![0u8; length];
        // SAFETY: the program is alive; the function writes as many bytes as the first returned.
        self.nvrtc.check(unsafe { read(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is alive, and nothing uses it any more.
        unsafe { (self.nvrtc.api.destroy)(&mut self.handle) };
    }
}

/// Returns the library in or below a place, which may also be the library's own path.
fn candidates(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let folders = BELOW.iter().map(|below| place.join(below));
    let files = folders.flat_map(|folder| NAMES.map(|name| folder.join(name)));
    files.filter(|path| path.is_file()).collect()
}

/// Loads the library with this path, or with this name from where the system's loader finds it.
fn open(path: &Path) -> Result<Nvrtc, String> {
    if path.is_absolute() || path.components().nth(1).is_some() {
        open_builtins(path);
    }
    let api = Api::open(path)?;
    let path = mapped(path).unwrap_or_else(|| path.to_owned());
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the function writes two numbers.
    let status = unsafe { (api.version)(&mut major, &mut minor) };
    if status != SUCCESS {
        return Err(format!("it does not report its version: error {status}"));
    }
    if major < 12 {
        return Err(format!("its version is {major}.{minor}, but 13.0 is needed"));
    }
    // The version has no build number; the length tells builds apart.
    let length = fs::metadata(&path).map_or(0, |file| file.len());
    let version = format!("{major}.{minor}-{length}");
    Ok(Nvrtc { api, library: path.display().to_string(), version })
}

/// Loads libnvrtc-builtins from NVRTC's folder. If that fails, NVRTC itself reports it later.
fn open_builtins(nvrtc: &Path) {
    let path = nvrtc.canonicalize().unwrap_or_else(|_| nvrtc.to_owned());
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(BUILTINS_PREFIX) {
            // SAFETY: the library holds data; its only initializers are the C library's.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                // Never closed, since NVRTC reads it in every compilation.
                std::mem::forget(library);
            }
        }
    }
}

/// Returns the path from which the library is loaded, if the system reports it (Linux).
fn mapped(library: &Path) -> Option<PathBuf> {
    if library.is_absolute() {
        return Some(library.to_owned());
    }
    let name = library.file_name()?.to_str()?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| Some(line[line.find('/')?..].into()));
    let mut paths = paths.filter(|path: &PathBuf| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.is_some_and(|file| file.starts_with(name))
    });
    paths.next()
}

impl Api {
    fn open(path: &Path) -> Result<Api, String> {
        // SAFETY: NVRTC's initializers have no preconditions.
        let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
        // Never closed: it may have threads, and its functions must stay valid.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: each name has the type that nvrtc.h declares for it.
        unsafe {
            Ok(Api {
                version: function(library, "nvrtcVersion")?,
                error_string: function(library, "nvrtcGetErrorString")?,
                arch_count: function(library, "nvrtcGetNumSupportedArchs")?,
                arches: function(library, "nvrtcGetSupportedArchs")?,
                create: function(library, "nvrtcCreateProgram")?,
                destroy: function(library, "nvrtcDestroyProgram")?,
                compile: function(library, "nvrtcCompileProgram")?,
                cubin_size: function(library, "nvrtcGetCUBINSize")?,
                cubin: function(library, "nvrtcGetCUBIN")?,
                log_size: function(library, "nvrtcGetProgramLogSize")?,
                log: function(library, "nvrtcGetProgramLog")?,
            })
        }
    }
}

/// Returns the function of this name.
///
/// # Safety
/// `F` is the type of a pointer to that function.
unsafe fn function<F: Copy>(library: &'static Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| format!("it has no function {name}"))
}

/// Returns a C string; it ends at the first zero byte, which no source or option has.
fn text(text: &str) -> CString {
    CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn count<T>(list: &[T]) -> c_int {
    c_int::try_from(list.len()).unwrap_or(c_int::MAX)
}

/// Rewrites the log with places that editors understand: `phases/qkv.cuh:12: error` for
/// `phases/qkv.cuh(12): error`.
fn readable(log: &str) -> String {
    let log = log.trim_end_matches('\0').trim();
    let lines: Vec<String> = log.lines().map(|line| place(line).unwrap_or(line.into())).collect();
    lines.join("\n")
}

fn place(line: &str) -> Option<String> {
    let (file, rest) = line.split_once('(')?;
    let (number, rest) = rest.split_once("):")?;
    number.parse::<u32>().ok()?;
    Some(format!("{file}:{number}:{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nowhere_is_said_to_be_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let search = Search { folders: vec![folder.path().into()], ..Search::default() };
        let error = Nvrtc::load(&search).err().unwrap().wanted("bf16-flag on sm_90a");
        let message = error.to_string();
        for part in ["bf16-flag on sm_90a", &place, "pip install", "MONOLITH_NVRTC"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn what_is_named_is_the_only_place() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        let named = folder.path().join("named.so");
        fs::write(&named, "no library").unwrap();
        let search =
            Search { named: Some(named.clone()), folders: vec![other.clone()], system: true };
        let message = Nvrtc::load(&search).err().unwrap().wanted("any").to_string();
        assert!(message.contains(&named.display().to_string()), "{message}");
        assert!(!message.contains("other") && !message.contains("loader"), "{message}");
    }

    #[test]
    fn the_library_is_found_below_the_usual_layouts() {
        let folder = tempfile::tempdir().unwrap();
        for below in BELOW {
            let home = folder.path().join(below.replace('/', "-"));
            fs::create_dir_all(home.join(below)).unwrap();
            let library = home.join(below).join("libnvrtc.so.13");
            fs::write(&library, "").unwrap();
            assert_eq!(candidates(&home), std::slice::from_ref(&library), "{below}");
            assert_eq!(candidates(&library), std::slice::from_ref(&library));
        }
    }

    #[test]
    fn places_in_the_log_are_as_editors_know_them() {
        let log = "a/b.cuh(12): error: x(1): y\n  f(3);\n1 error detected (3): in it.\0";
        let wanted = "a/b.cuh:12: error: x(1): y\n  f(3);\n1 error detected :3: in it.";
        assert_eq!(readable(log), wanted);
        assert_eq!(readable("\0"), "");
    }
}
