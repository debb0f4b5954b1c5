//! `monolith unpack`

use crate::exit::{Code, Exit};
use crate::options::{FormatArgs, ModelArgs};
use crate::progress::Progress;
use crate::source::find;
use crate::text_out::say;
use crate::{interrupt, room};
use monolith_pack::{checkpoint_bytes, write_checkpoint};
use std::path::PathBuf;

/// Write the values of a pack's weights as a checkpoint, for programs that do not read packs
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub format: FormatArgs,
    /// The folder to make; it must not exist
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
}

const EXAMPLES: &str = "Examples:
  monolith unpack -m data/tiny --format fp8 -o tiny-fp8
  python3 tools/reference.py --model tiny-fp8 --ids ids.json --out reference

bf16 weights are copied; other weights are written as the f32 values of their codes and scales. The
folder is for tools/reference.py, which makes a gate's reference. It has no tokenizer.";

/// Writes a pack's weights as a checkpoint folder.
///
/// # Errors
/// A missing or damaged model, weights that the format cannot hold, a folder that exists or is not
/// writable.
pub fn run(args: &Args) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    let pack = model.pack((&args.format).into())?;
    room::check(&args.out, checkpoint_bytes(&pack))?;
    let _guard = interrupt::guard();
    let progress = Progress::bytes("unpack");
    let written = write_checkpoint(&pack, &args.out, |done, total| {
        progress.at(done, total);
        interrupt::check()
    });
    drop(progress);
    if written.is_err() && interrupt::raised() {
        let what = format!("interrupted: {} was not written", args.out.display());
        return Err(Exit::message(Code::Interrupted, what));
    }
    written?;
    let (formats, out) = (pack.header().formats.name(), args.out.display());
    say(&format!("{out}: the values of {} in {formats}", model.name));
    Ok(())
}
