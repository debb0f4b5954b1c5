//! `monolith man`

use crate::cli::{Cli, ENVIRONMENT};
use crate::exit::{self, Exit};
use crate::text_out::put;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

/// Print the manual page
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

const EXAMPLES: &str = "Examples:
  monolith man | man -l -
  monolith man > ~/.local/share/man/man1/monolith.1";

/// Prints the manual page, with one section per command.
///
/// # Errors
/// The reader closed the pipe.
pub fn run(_: &Args) -> Result<(), Exit> {
    let command = Cli::command();
    let mut page = Vec::new();
    let whole = Man::new(command.clone());
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_options_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for command in command.get_subcommands() {
        page.push_str(&section("monolith", command)?);
    }
    for (title, text) in [("EXIT STATUS", exit::TABLE), ("ENVIRONMENT", ENVIRONMENT)] {
        let lines: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
        page.push_str(&format!(".SH {title}\n.nf\n{}.fi\n", lines.replace('-', "\\-")));
    }
    put(&page)?;
    Ok(())
}

/// Renders a command's part of the page; its sections become subsections.
fn section(above: &str, command: &Command) -> std::io::Result<String> {
    let name = format!("{above} {}", command.get_name());
    let man = Man::new(command.clone().display_name(&name).bin_name(&name));
    let mut parts = Vec::new();
    man.render_synopsis_section(&mut parts)?;
    man.render_description_section(&mut parts)?;
    man.render_options_section(&mut parts)?;
    if command.get_after_help().is_some() {
        man.render_extra_section(&mut parts)?;
    }
    let parts = String::from_utf8_lossy(&parts).replace(".SH EXTRA", ".SS EXAMPLES AND NOTES");
    let mut text = format!(".SH {}\n{}", name.to_uppercase(), parts.replace(".SH ", ".SS "));
    for below in command.get_subcommands() {
        text.push_str(&section(&name, below)?);
    }
    Ok(text)
}
