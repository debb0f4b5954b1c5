//! `monolith unpack`

use crate::args::UnpackArgs;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::source::find;
use crate::text_out::say;
use monolith_pack::write_checkpoint;

/// Writes a pack's weights as a checkpoint folder.
///
/// # Errors
/// A missing or damaged model, weights that the format does not hold, a folder that exists or
/// cannot be written to.
pub fn run(args: &UnpackArgs) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    let pack = model.pack(args.format.format)?;
    let progress = Progress::new("unpack");
    write_checkpoint(&pack, &args.out)?;
    drop(progress);
    let (formats, out) = (pack.header().formats.name(), args.out.display());
    say(&format!("{out}: {} as its weights in {formats} are worth", model.name));
    Ok(())
}
