//! `monolith pull`

use crate::exit::{Code, Exit, OrExit};
use crate::hub;
use crate::options::DEFAULT_MODEL;
use crate::progress;
use crate::text_out::{put, say};
use monolith_hub::{Error, Files, Progress, PullRequest, RepoId, Revision};
use std::time::Duration;

/// Download a model from a Hugging Face compatible hub
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The model's name on the hub, ORGANISATION/NAME
    #[arg(default_value = DEFAULT_MODEL)]
    pub model: String,
    /// Branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "main")]
    pub revision: String,
    /// Print no progress
    #[arg(short, long)]
    pub quiet: bool,
}

const EXAMPLES: &str = "Examples:
  monolith pull
  monolith pull Qwen/Qwen3-0.6B --revision main
  monolith run -m \"$(monolith pull -q)\" -p Hello

The command prints the folder on stdout. It downloads only files that are missing.";

/// Downloads a model and prints its folder.
///
/// # Errors
/// Code 6 if the hub or the network fails, code 2 for an impossible name.
pub fn run(args: &Args) -> Result<(), Exit> {
    let request = PullRequest {
        repo: args.model.parse::<RepoId>().or_exit(Code::Usage)?,
        revision: args.revision.parse::<Revision>().or_exit(Code::Usage)?,
        files: Files::Model,
    };
    let settings = hub::settings()?;
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
