//! `monolith pack`

use crate::args::PackArgs;
use crate::exit::Exit;
use crate::losses;
use crate::source::{find, write_pack};
use crate::text_out::{Kind, check_output, say};
use monolith_pack::Formats;

/// Packs a model folder into a file.
///
/// # Errors
/// A missing or damaged model, weights that the format does not hold, or a folder that cannot be
/// written to.
pub fn run(args: &PackArgs) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    check_output(&args.out, Kind::Pack)?;
    let checkpoint = model.checkpoint_as_stored()?;
    let formats = args.format.format.unwrap_or_else(|| Formats::as_stored(&checkpoint));
    let header = write_pack(&checkpoint, model.source(), formats, &args.out)?;
    if let Some(losses) = losses::table(&header) {
        say(&losses);
    }
    let (name, out) = (&model.name, args.out.display());
    say(&format!("packed {name} as {}: `monolith inspect {out}` shows it", formats.name()));
    Ok(())
}
