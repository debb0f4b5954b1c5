//! Whether a disk has room for what is to be written, found out before the work.

use crate::exit::{Code, Exit};
use std::path::Path;

/// Refuses what does not fit on the disk of `out`, and says the size. What the system does not
/// tell is no reason to refuse.
///
/// # Errors
/// Code 1 for a disk that is too small.
pub fn check(out: &Path, bytes: u64) -> Result<(), Exit> {
    match free(out) {
        Some(free) if free < bytes => {
            let what = format!(
                "{} would take {} ({bytes} bytes), but its disk has {} free",
                out.display(),
                shown(bytes),
                shown(free)
            );
            Err(Exit::message(Code::Failure, what))
        }
        _ => Ok(()),
    }
}

/// Bytes that are free on the disk where `out` is, or will be.
fn free(out: &Path) -> Option<u64> {
    let here = Path::new(".");
    let parents = out.ancestors().map(|path| if path.as_os_str().is_empty() { here } else { path });
    let disk = parents.into_iter().find_map(|path| rustix::fs::statvfs(path).ok())?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn shown(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.1} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} TB", bytes as f64 / 1e12),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_disk_holds_is_refused_with_its_size() {
        for out in ["out", "not/yet/there", "/tmp/out"] {
            check(Path::new(out), 0).unwrap();
            let error = check(Path::new(out), u64::MAX).unwrap_err().to_string();
            assert!(error.contains("18446744.1 TB (18446744073709551615 bytes)"), "{error}");
        }
    }
}
