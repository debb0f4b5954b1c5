//! Append-only files of lines.

use crate::whole::sync_folder;
use crate::{Error, folder_of};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// What [`append_lines`] found at the end of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Whole lines, or no file.
    Clean,
    /// A last line that only lacked its newline, which was added.
    Completed,
    /// Part of a line, left by an interrupted write. It was removed.
    Removed(Vec<u8>),
}

/// Appends whole lines to a file, which is created if missing; the lines are on the disk when this
/// returns. Two processes that append to one file take turns.
///
/// A last line without a newline was left by an interrupted write. If `is_whole` accepts it, it
/// gets its newline; otherwise it is removed.
///
/// # Errors
/// A file that cannot be read or written, or text that does not end with a newline. If writing
/// fails, none of the text stays in the file, as far as the system allows.
pub fn append_lines(
    path: &Path,
    text: &str,
    is_whole: impl Fn(&[u8]) -> bool,
) -> Result<Appended, Error> {
    append(path, text, is_whole).map_err(Error::of(path))
}

fn append(path: &Path, text: &str, is_whole: impl Fn(&[u8]) -> bool) -> io::Result<Appended> {
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a line without its end"));
    }
    let mut file =
        File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    match file.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
        _ => {}
    }
    let (length, torn) = last_line(&mut file)?;
    let (keep, prefix, found) = if torn.is_empty() {
        (length, "", Appended::Clean)
    } else if is_whole(&torn) {
        (length, "\n", Appended::Completed)
    } else {
        (length - torn.len() as u64, "", Appended::Removed(torn))
    };
    let write = |file: &mut File| {
        file.set_len(keep)?;
        file.seek(SeekFrom::Start(keep))?;
        file.write_all(&[prefix.as_bytes(), text.as_bytes()].concat())?;
        file.sync_all()
    };
    if let Err(error) = write(&mut file) {
        let _ = file.set_len(keep);
        return Err(error);
    }
    sync_folder(folder_of(path))?;
    Ok(found)
}

/// Returns the file's length, and the bytes after its last newline.
fn last_line(file: &mut File) -> io::Result<(u64, Vec<u8>)> {
    const PART: u64 = 1 << 16;
    let length = file.metadata()?.len();
    let (mut begin, mut tail) = (length, Vec::new());
    while begin > 0 {
        let from = begin.saturating_sub(PART);
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(file).take(begin - from).read_to_end(&mut part)?;
        if let Some(at) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok((length, [&part[at + 1..], &tail].concat()));
        }
        tail = [part, tail].concat();
        begin = from;
    }
    Ok((length, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn is_braced(line: &[u8]) -> bool {
        line.starts_with(b"{") && line.ends_with(b"}")
    }

    #[test]
    fn lines_follow_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        assert_eq!(append_lines(&path, "{1}\n", is_braced).unwrap(), Appended::Clean);
        assert_eq!(append_lines(&path, "{2}\n{3}\n", is_braced).unwrap(), Appended::Clean);
        assert_eq!(append_lines(&path, "", is_braced).unwrap(), Appended::Clean);
        assert_eq!(fs::read_to_string(&path).unwrap(), "{1}\n{2}\n{3}\n");
    }

    #[test]
    fn a_torn_line_swallows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        // Every place where a write may have ended.
        let (kept, torn) = ("{first}\n", "{a row of é}");
        for end in 1..=torn.len() {
            let torn = &torn.as_bytes()[..end];
            fs::write(&path, [kept.as_bytes(), torn].concat()).unwrap();
            let found = append_lines(&path, "{next}\n", is_braced).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            if is_braced(torn) {
                assert_eq!(found, Appended::Completed);
                assert_eq!(text, "{first}\n{a row of é}\n{next}\n");
            } else {
                assert_eq!(found, Appended::Removed(torn.to_vec()));
                assert_eq!(text, "{first}\n{next}\n");
            }
        }
    }

    #[test]
    fn a_long_torn_line_is_found_from_its_begin() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        for length in [1usize << 16, (1 << 16) + 1, 200_000] {
            let torn = "x".repeat(length);
            for kept in ["", "{1}\n"] {
                fs::write(&path, format!("{kept}{torn}")).unwrap();
                let found = append_lines(&path, "{2}\n", is_braced).unwrap();
                assert_eq!(found, Appended::Removed(torn.clone().into_bytes()));
                assert_eq!(fs::read_to_string(&path).unwrap(), format!("{kept}{{2}}\n"));
            }
        }
    }

    #[test]
    fn half_a_line_is_refused_and_errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        assert!(append_lines(&path, "{1}", is_braced).is_err());
        assert!(!path.exists());
        let error = append_lines(&folder.path().join("no/rows.jsonl"), "{1}\n", is_braced);
        assert!(error.unwrap_err().to_string().contains("no/rows.jsonl"));
    }

    #[test]
    fn many_writers_leave_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.jsonl");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for line in 0..20 {
                        append_lines(path, &format!("{{{writer} {line}}}\n"), is_braced).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 80);
        assert!(text.lines().all(|line| is_braced(line.as_bytes())));
    }
}
