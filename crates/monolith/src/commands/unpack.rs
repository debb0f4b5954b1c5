//! `monolith unpack`

use crate::args::UnpackArgs;
use crate::exit::{Code, Exit};
use crate::progress::Progress;
use crate::source::find;
use crate::text_out::say;
use crate::{interrupt, room};
use monolith_pack::{checkpoint_bytes, write_checkpoint};

/// Writes a pack's weights as a checkpoint folder.
///
/// # Errors
/// A missing or damaged model, weights that the format cannot hold, a folder that exists or is not
/// writable.
pub fn run(args: &UnpackArgs) -> Result<(), Exit> {
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
