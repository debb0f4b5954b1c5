//! `monolith ids`

use crate::args::IdsArgs;
use crate::exit::Exit;
use crate::measure::input_exit;
use crate::progress::Progress;
use crate::source;
use crate::text_out::{Kind, check_output, say};
use monolith_harness::prompts::write_ids;

/// Writes the prompts' token ids.
///
/// # Errors
/// A missing model or prompt set, or a file that cannot be written.
pub fn run(args: &IdsArgs) -> Result<(), Exit> {
    let _progress = Progress::new("ids");
    let model = source::find(&args.model.model)?;
    check_output(&args.out, Kind::Ids)?;
    let vocab = model.config()?.vocab;
    let ids = write_ids(&args.prompts, &model.dir, vocab, &args.out).map_err(input_exit)?;
    let count: usize = ids.ids.iter().map(Vec::len).sum();
    let (prompts, out) = (ids.ids.len(), args.out.display());
    say(&format!("{out}: {prompts} prompts, {count} ids ({})", ids.rule));
    Ok(())
}
