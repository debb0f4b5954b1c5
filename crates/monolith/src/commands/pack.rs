//! `monolith pack`

use crate::args::PackArgs;
use crate::exit::Exit;
use crate::source::{find, write_pack};
use crate::text_out::{Kind, check_output, say};

/// Packs a model folder into a file.
///
/// # Errors
/// A missing or damaged model, or a folder that cannot be written to.
pub fn run(args: &PackArgs) -> Result<(), Exit> {
    let model = find(&args.model.model)?;
    check_output(&args.out, Kind::Pack)?;
    write_pack(&model.checkpoint()?, model.source(), &args.out)?;
    say(&format!("packed {}: `monolith inspect {}` shows it", model.name, args.out.display()));
    Ok(())
}
