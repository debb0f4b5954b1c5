//! `monolith completions` and `monolith man`.

use crate::args::Cli;
use crate::exit::Exit;
use crate::text_out::put;
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints a completion script.
///
/// # Errors
/// The reader went away.
pub fn completions(shell: Shell) -> Result<(), Exit> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "monolith", &mut script);
    put(&String::from_utf8_lossy(&script))?;
    Ok(())
}

/// Prints the manual page, one section a command.
///
/// # Errors
/// The reader went away.
pub fn man() -> Result<(), Exit> {
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    for sub in command.get_subcommands() {
        let name = format!("monolith {}", sub.get_name());
        let man = clap_mangen::Man::new(sub.clone().display_name(&name).bin_name(&name));
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
    }
    put(&String::from_utf8_lossy(&page))?;
    Ok(())
}
