//! The environment of a measurement, and the processor's state.

use crate::identity::{run_id, short};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};

/// The processor that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The processor that runs this program.
    Cpu,
    /// The GPU with this index in NVML's order.
    Gpu(u32),
}

/// The GPU's side of the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Name, as the driver reports it.
    pub name: String,
    /// 16 digits of the UUID's sha256.
    pub uuid_sha256: Option<String>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Version of the video BIOS.
    pub vbios: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Whether ECC is on.
    pub ecc: Option<bool>,
    /// Largest SM clock in MHz.
    pub sm_clock_max_mhz: Option<u32>,
    /// Largest memory clock in MHz.
    pub memory_clock_max_mhz: Option<u32>,
    /// Enforced power limit in watts.
    pub power_limit_w: Option<f64>,
    /// PCIe generation and number of lanes.
    pub pcie: Option<String>,
}

/// The host's side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the processor.
    pub cpu: String,
    /// Hardware threads that this process may use.
    pub threads: usize,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Kernel's release.
    pub kernel: Option<String>,
    /// Frequency governor of the first processor.
    pub governor: Option<String>,
}

/// The facts that one run shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// `gpu` or `cpu`: what was measured.
    pub kind: String,
    /// Name of what was measured.
    pub gpu: String,
    /// One boot of it.
    pub run_id: String,
    /// The time of this lookup, UTC.
    pub date: String,
    /// The host.
    pub host: Host,
    /// The GPU, if NVML reports it.
    pub nvml: Option<Gpu>,
    /// Why NVML does not report the GPU.
    pub nvml_absent: Option<String>,
}

impl Environment {
    /// Returns the day of the date, or the whole date if it is too short.
    pub fn day(&self) -> &str {
        self.date.get(..10).unwrap_or(&self.date)
    }
}

/// The processor's state at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Memory clock in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Power of the board in watts.
    pub power_w: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Performance state, 0 is the fastest.
    pub pstate: Option<u32>,
    /// Why clocks are throttled, other than by being idle.
    pub throttle_reasons: Vec<String>,
}

/// A summary of a test's samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Number of samples, one right after each timed run.
    pub samples: usize,
    /// Median SM clock in MHz.
    pub sm_clock_mhz: Option<u32>,
    /// Median memory clock in MHz.
    pub memory_clock_mhz: Option<u32>,
    /// Median power of the board in watts (NVML).
    pub power_w: Option<f64>,
    /// Highest temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Slowest performance state.
    pub pstate: Option<u32>,
    /// Every reason for throttled clocks that was seen, other than being idle.
    pub throttle_reasons: Vec<String>,
}

impl Telemetry {
    /// Summarizes samples; `None` if there are none.
    pub fn of(samples: &[Sample]) -> Option<Telemetry> {
        if samples.is_empty() {
            return None;
        }
        let mut reasons: Vec<String> =
            samples.iter().flat_map(|sample| sample.throttle_reasons.clone()).collect();
        reasons.sort();
        reasons.dedup();
        let of = |value: fn(&Sample) -> Option<u32>| samples.iter().filter_map(value);
        let median = |value: fn(&Sample) -> Option<u32>| {
            let mut all: Vec<u32> = of(value).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        let mut watts: Vec<f64> = samples.iter().filter_map(|sample| sample.power_w).collect();
        watts.sort_by(f64::total_cmp);
        Some(Telemetry {
            samples: samples.len(),
            sm_clock_mhz: median(|sample| sample.sm_clock_mhz),
            memory_clock_mhz: median(|sample| sample.memory_clock_mhz),
            power_w: watts.get(watts.len() / 2).copied(),
            temperature_c: of(|sample| sample.temperature_c).max(),
            pstate: of(|sample| sample.pstate).max(),
            throttle_reasons: reasons,
        })
    }
}

/// Looks up the environment, and keeps NVML open for samples.
pub struct Probe {
    target: Target,
    nvml: Result<Nvml, String>,
}

impl Probe {
    /// Opens NVML if a GPU is measured. A missing NVML is no error.
    pub fn new(target: Target) -> Probe {
        let nvml = match target {
            Target::Cpu => Err("a CPU is measured".into()),
            Target::Gpu(_) => Nvml::init().map_err(|error| format!("NVML: {error}")),
        };
        Probe { target, nvml }
    }

    fn device(&self) -> Option<Device<'_>> {
        match (self.target, &self.nvml) {
            (Target::Gpu(index), Ok(nvml)) => nvml.device_by_index(index).ok(),
            _ => None,
        }
    }

    /// Returns the environment; `device` is the engine's name for its processor.
    pub fn environment(&self, device: &str) -> Environment {
        let found = self.device().zip(self.nvml.as_ref().ok()).map(|(d, nvml)| gpu(&d, nvml));
        let is_gpu = matches!(self.target, Target::Gpu(_));
        let absent = match (&found, &self.nvml) {
            (Some(_), _) => None,
            (None, Err(reason)) => Some(reason.clone()),
            (None, Ok(_)) => Some("NVML: no such device".into()),
        };
        let uuid = self.device().and_then(|device| device.uuid().ok());
        Environment {
            kind: if is_gpu { "gpu" } else { "cpu" }.into(),
            gpu: device.into(),
            run_id: run_id(uuid.as_deref().unwrap_or(device)),
            date: crate::now(),
            host: host(),
            nvml: found,
            nvml_absent: absent,
        }
    }

    /// Returns the joules that the board has used since the driver was loaded; `None` if NVML does
    /// not report them.
    pub fn energy_j(&self) -> Option<f64> {
        let millijoules = self.device()?.total_energy_consumption().ok()?;
        Some(millijoules as f64 / 1e3)
    }

    /// Returns the memory in use now.
    pub fn memory(&self) -> Memory {
        let status = std::fs::read_to_string("/proc/self/status").ok();
        let info = self.device().and_then(|device| device.memory_info().ok());
        Memory {
            host_bytes: status.and_then(|text| kib_of(&text, "VmRSS:")).map(|kib| kib << 10),
            gpu_bytes: info.map(|memory| memory.used),
        }
    }

    /// Returns the GPU's state now; `None` if NVML does not report it.
    pub fn sample(&self) -> Option<Sample> {
        let device = self.device()?;
        let throttle = device.current_throttle_reasons().ok();
        Some(Sample {
            sm_clock_mhz: device.clock_info(Clock::SM).ok(),
            memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
            power_w: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            pstate: device.performance_state().ok().map(|state| state.as_c()),
            throttle_reasons: throttle.map_or(Vec::new(), reasons),
        })
    }
}

/// Memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Of this process: its resident pages. `None` if the system does not tell.
    pub host_bytes: Option<u64>,
    /// Of the GPU, by all programs. `None` on a CPU, or if NVML does not report it.
    pub gpu_bytes: Option<u64>,
}

/// Energy of a long stretch of decoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Joules of the whole board.
    pub joules: f64,
    /// Seconds over which they were counted.
    pub window_s: f64,
    /// Tokens decoded in that time.
    pub tokens: u64,
    /// `tokens` per `joules`.
    pub tokens_per_joule: f64,
    /// How the energy was measured.
    pub method: String,
}

fn gpu(device: &Device, nvml: &Nvml) -> Gpu {
    let cuda = nvml.sys_cuda_driver_version().ok();
    let link = device.current_pcie_link_gen().ok().zip(device.current_pcie_link_width().ok());
    Gpu {
        name: device.name().unwrap_or_default(),
        uuid_sha256: device.uuid().ok().map(|uuid| short(&uuid)),
        driver: nvml.sys_driver_version().ok(),
        cuda: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        vbios: device.vbios_version().ok(),
        memory_bytes: device.memory_info().ok().map(|memory| memory.total),
        ecc: device.is_ecc_enabled().ok().map(|state| state.currently_enabled),
        sm_clock_max_mhz: device.max_clock_info(Clock::SM).ok(),
        memory_clock_max_mhz: device.max_clock_info(Clock::Memory).ok(),
        power_limit_w: device.enforced_power_limit().ok().map(|limit| f64::from(limit) / 1e3),
        pcie: link.map(|(generation, width)| format!("gen {generation} x{width}")),
    }
}

/// Returns the throttle reasons by their NVML names, without the idle state.
fn reasons(mask: ThrottleReasons) -> Vec<String> {
    let held = mask.difference(ThrottleReasons::GPU_IDLE);
    held.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

/// A value in KiB of one of the system's tables.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn host() -> Host {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let memory = read("/proc/meminfo").and_then(|text| kib_of(&text, "MemTotal:"));
    Host {
        cpu: monolith_engine::cpu::device_name(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory.map(|kib| kib << 10),
        kernel: read("/proc/sys/kernel/osrelease"),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
}

/// Checks, for `doctor`, that NVML's library can be found.
pub fn nvml_state() -> Result<(), String> {
    Nvml::init().map(drop).map_err(|error| error.to_string())
}

/// Returns a short name for files: `h200`, `rtx5090`, `cpu`.
pub fn slug(kind: &str, name: &str) -> String {
    if kind == "cpu" {
        return "cpu".into();
    }
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let vendor = ["nvidia", "geforce", "tesla", "gpu", "graphics", "device"];
    let kept = words.map(str::to_ascii_lowercase).filter(|word| !vendor.contains(&word.as_str()));
    let slug: String = kept.collect();
    if slug.is_empty() { "gpu".into() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_files() {
        assert_eq!(slug("gpu", "NVIDIA GeForce RTX 5090"), "rtx5090");
        assert_eq!(slug("gpu", "NVIDIA H200"), "h200");
        assert_eq!(slug("cpu", "Some Processor 3000"), "cpu");
    }

    #[test]
    fn a_cpu_has_an_environment_without_nvml() {
        let environment = Probe::new(Target::Cpu).environment("a processor");
        assert_eq!((environment.kind.as_str(), environment.gpu.as_str()), ("cpu", "a processor"));
        assert_eq!(environment.nvml, None);
        assert!(environment.nvml_absent.is_some() && environment.host.threads > 0);
    }

    #[test]
    fn an_absent_nvml_has_a_reason() {
        let probe = Probe::new(Target::Gpu(u32::MAX));
        assert_eq!(probe.sample(), None);
        assert!(probe.environment("a GPU").nvml_absent.unwrap().starts_with("NVML"));
    }

    #[test]
    fn samples_are_summed_up() {
        let sample = |clock, reason: &str| Sample {
            sm_clock_mhz: Some(clock),
            temperature_c: Some(clock / 100),
            throttle_reasons: vec![reason.into()],
            ..Sample::default()
        };
        let all = [sample(1900, "b"), sample(1700, "a"), sample(1800, "b")];
        let telemetry = Telemetry::of(&all).unwrap();
        assert_eq!((telemetry.samples, telemetry.sm_clock_mhz), (3, Some(1800)));
        assert_eq!(telemetry.temperature_c, Some(19));
        assert_eq!(telemetry.throttle_reasons, ["a", "b"]);
        assert_eq!(Telemetry::of(&[]), None);
    }
}
