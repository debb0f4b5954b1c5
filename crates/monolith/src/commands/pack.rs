//! `monolith pack`

use crate::args::PackArgs;
use crate::exit::Exit;
use crate::source::find;
use crate::text_out::{Kind, check_output, say};
use crate::{losses, packing};

/// Packs a model folder into a file.
///
/// # Errors
/// A missing or damaged model, weights that the format cannot hold, or a folder that is not
/// writable.
pub fn run(args: &PackArgs) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    check_output(&args.out, Kind::Pack)?;
    let header = packing::to_file(&model, args)?;
    if let Some(losses) = losses::table(&header) {
        say(&losses);
    }
    let (name, out) = (&model.name, args.out.display());
    say(&format!("packed {name} as {}: `monolith inspect {out}` shows it", header.formats.name()));
    Ok(())
}
