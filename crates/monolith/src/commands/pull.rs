//! `monolith pull`

use crate::args::PullArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::progress;
use crate::source::hub_settings;
use crate::text_out::{put, say};
use monolith_hub::{Error, Files, Progress, PullRequest, RepoId, Revision};
use std::time::Duration;

/// Downloads a model and prints its folder.
///
/// # Errors
/// Code 6 if the hub or the network fails, code 2 for an impossible name.
pub fn run(args: &PullArgs) -> Result<(), Exit> {
    let request = PullRequest {
        repo: args.model.parse::<RepoId>().or_exit(Code::Usage)?,
        revision: args.revision.parse::<Revision>().or_exit(Code::Usage)?,
        files: Files::Model,
    };
    let settings = hub_settings()?;
    let mut shown = Shown::new(args.quiet);
    let snapshot = monolith_hub::pull(&request, &settings, &mut shown).map_err(|error| {
        let code = match &error {
            Error::Disk { .. } | Error::NoCacheDir => Code::Failure,
            Error::NotCached { .. } => Code::NoModel,
            Error::Authorities { .. } => Code::Usage,
            _ => Code::Remote,
        };
        Exit::new(code, error)
    })?;
    if !args.quiet {
        let (files, new) = (snapshot.files.len(), snapshot.downloaded);
        say(&format!("{} at {}: {files} files, {new} downloaded", args.model, snapshot.commit));
    }
    put(&format!("{}\n", snapshot.dir.display()))?;
    Ok(())
}

/// The progress of the current download.
struct Shown {
    progress: progress::Progress,
    file: String,
    quiet: bool,
}

impl Shown {
    fn new(quiet: bool) -> Shown {
        let progress =
            if quiet { progress::Progress::hidden() } else { progress::Progress::bytes("pull") };
        Shown { progress, file: String::new(), quiet }
    }
}

impl Progress for Shown {
    fn planned(&mut self, files: usize, bytes: u64) {
        if !self.quiet && files > 0 {
            say(&format!("{files} files, {:.1} MB to download", bytes as f64 / 1e6));
        }
    }

    fn advanced(&mut self, file: &str, done: u64, total: u64) {
        if self.file != file {
            file.clone_into(&mut self.file);
            self.progress.doing(file);
        }
        self.progress.at(done, total);
    }

    fn waiting(&mut self, file: &str) {
        if !self.quiet {
            say(&format!("waiting for another process that downloads {file}"));
        }
    }

    fn retrying(&mut self, error: &Error, pause: Duration) {
        if self.quiet {
            return;
        }
        say(&format!("{error}; next try in {:.1} s", pause.as_secs_f64()));
    }
}
