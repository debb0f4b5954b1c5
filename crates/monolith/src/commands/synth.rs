//! `monolith synth`

use crate::exit::{Code, Exit, OrExit};
use crate::text_out::say;
use crate::{interrupt, progress, room, source};
use monolith_model::synth::{self, Deltas, Progress};
use monolith_model::{Config, ModelError};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Make a model with synthetic weights; the same seed gives the same weights
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A named shape (qwen3-0.6b, tiny), or the path of a config.json
    #[arg(long, value_name = "SHAPE", default_value = "qwen3-0.6b")]
    pub shape: OsString,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Rebuild the trained model from the deltas in this folder (data/standin), and check its hash
    #[arg(long, value_name = "DIR", conflicts_with_all = ["shape", "seed"])]
    pub deltas: Option<PathBuf>,
    /// The folder to make; if it exists, it must be empty
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:
  monolith synth -o synthetic
  monolith synth --shape tiny --seed 7 -o small
  monolith diff -m small
  monolith synth --deltas data/standin -o standin
  monolith run -m standin -p \"He opened the door and\"

A synthetic model has no tokenizer: `diff` and `pack` accept it, but `run` needs a tokenizer beside
it. A model rebuilt from deltas has one; it is kept only if its sha256 is the recorded one.";

/// Writes a model with synthetic weights, or one made of such weights and deltas.
///
/// # Errors
/// An unknown shape, deltas that are damaged, a folder that exists, a full disk.
pub fn run(args: &Args) -> Result<(), Exit> {
    match &args.deltas {
        Some(dir) => {
            let metadata = std::fs::metadata(dir);
            if metadata.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                let what = format!("--deltas {}: no such folder", dir.display());
                return Err(Exit::message(Code::NoModel, what));
            }
            refuse_existing(&args.out)?;
            let deltas = Deltas::open(dir).or_exit(Code::Failure)?;
            let what = format!("{}, over seed {}", dir.display(), deltas.seed());
            written(args, deltas.config(), &what, |progress| deltas.write(&args.out, progress))
        }
        None => {
            let config = source::shape(&args.shape)?;
            refuse_existing(&args.out)?;
            let what = format!("{} of seed {}", args.shape.display(), args.seed);
            written(args, &config, &what, |progress| {
                synth::write(&config, args.seed, &args.out, progress)
            })
        }
    }
}

/// Writes with a progress bar, then prints the size and the speed.
fn written(
    args: &Args,
    config: &Config,
    what: &str,
    write: impl FnOnce(Progress) -> Result<(), ModelError>,
) -> Result<(), Exit> {
    let total = synth::file_bytes(config);
    room::check(&args.out, total)?;
    let _guard = interrupt::guard();
    let shown = progress::Progress::bytes("writing");
    let begin = Instant::now();
    let progress = |done| {
        shown.at(done, total);
        interrupt::check()
    };
    let written = write(&progress);
    drop(shown);
    match written {
        Err(_) if interrupt::raised() => {
            let what = format!("interrupted: {} was not written", args.out.display());
            return Err(Exit::message(Code::Interrupted, what));
        }
        written => written.or_exit(Code::Failure)?,
    }
    let seconds = begin.elapsed().as_secs_f64();
    say(&format!(
        "{}: {what}, {total} bytes in {seconds:.1} s ({:.2} GB/s)",
        args.out.display(),
        total as f64 / 1e9 / seconds
    ));
    Ok(())
}

fn refuse_existing(out: &Path) -> Result<(), Exit> {
    let occupied = match std::fs::read_dir(out) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => out.exists(),
    };
    if occupied {
        let what = format!("{} exists and is not empty: name a new folder", out.display());
        return Err(Exit::message(Code::Failure, what));
    }
    Ok(())
}
