use std::path::PathBuf;

/// The errors between text and token ids. Every message names the file at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model folder lacks a file that it needs.
    #[error("{}: no such file; the model folder is incomplete, pull it again", path.display())]
    Missing {
        /// Path of the missing file.
        path: PathBuf,
    },
    /// The system could not read a file.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The contents of a file are invalid.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The tokenizer is valid, but this crate does not support its kind.
    #[error("{}: unsupported tokenizer: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The part that is not supported.
        reason: String,
    },
    /// The text could not be tokenized.
    #[error("cannot tokenize the text: {reason}")]
    Encode {
        /// What the tokenizer said.
        reason: String,
    },
    /// The model has no chat template.
    #[error(
        "{}: no chat template (neither chat_template.jinja nor chat_template in \
         tokenizer_config.json); this model takes plain prompts only", dir.display()
    )]
    NoTemplate {
        /// The model folder.
        dir: PathBuf,
    },
    /// The chat template does not parse, or it refused these messages.
    #[error("{}, chat template{}: {reason}", path.display(), at_line(*line))]
    Template {
        /// The file that holds the template.
        path: PathBuf,
        /// Line within the template, counted from 1; 0 if the line is unknown.
        line: usize,
        /// What the template engine said.
        reason: String,
    },
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(" line {line}") }
}
