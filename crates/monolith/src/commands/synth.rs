//! `monolith synth`

use crate::args::SynthArgs;
use crate::exit::{Code, Exit, OrExit};
use crate::interrupt;
use crate::progress::bytes_bar;
use crate::source;
use crate::text_out::say;
use monolith_model::synth;
use std::path::Path;
use std::time::Instant;

/// Writes a model of synthetic weights.
///
/// # Errors
/// An unknown shape, a folder that exists, a full disk.
pub fn run(args: &SynthArgs) -> Result<(), Exit> {
    let shape = args.shape.display();
    let config = source::shape(&args.shape)?;
    refuse_existing(&args.out)?;
    let total = synth::file_bytes(&config);
    let bar = bytes_bar("writing", total);
    let begin = Instant::now();
    interrupt::catch();
    let progress = |done| {
        bar.set_position(done);
        if interrupt::raised() { Err(std::io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    };
    synth::write(&config, args.seed, &args.out, &progress).or_exit(Code::Failure)?;
    bar.finish_and_clear();
    let seconds = begin.elapsed().as_secs_f64();
    say(&format!(
        "{}: {shape} of seed {}, {total} bytes in {seconds:.1} s ({:.2} GB/s)",
        args.out.display(),
        args.seed,
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
