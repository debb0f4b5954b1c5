use std::path::PathBuf;

/// What can go wrong between text and token ids. Every message names the file at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that the model folder must hold is not there.
    #[error("{}: no such file; the model folder is incomplete, pull it again", path.display())]
    Missing {
        /// The file looked for.
        path: PathBuf,
    },
    /// A file is there and cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file was read and its contents make no sense.
    #[error("{}: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// The tokenizer is sound and of a kind that this crate does not handle.
    #[error("{}: unsupported tokenizer: {reason}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Which part is not handled.
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
        /// Line within the template, from 1 (0 where the engine could not tell).
        line: usize,
        /// What the template engine said.
        reason: String,
    },
}

fn at_line(line: usize) -> String {
    if line == 0 { String::new() } else { format!(" line {line}") }
}
