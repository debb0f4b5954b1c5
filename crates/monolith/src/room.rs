//! Checks, before the work, that the disk has room for the output.

use crate::exit::{Code, Exit};
use std::path::Path;

/// Fails if `bytes` do not fit on the disk of `out`; the message has both sizes. An unknown free
/// size is no error.
///
/// # Errors
/// Code 1 for a disk with too little space.
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

/// Returns the free bytes on the disk where `out` is, or will be.
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
