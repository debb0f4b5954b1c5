//! The prompt: its text, its tokens, and whether the model can take them.

use super::Args;
use crate::exit::{Code, Exit, OrExit};
use crate::source::Model;
use crate::text_out::say;
use anyhow::Context;
use monolith_engine::Engine;
use monolith_text::{ChatOptions, ChatTemplate, EncodePolicy, Message, Tokenizer};
use std::io::{IsTerminal, Read};

/// Size limit of a prompt from a file or a pipe: more text than any context holds.
const PROMPT_BYTES_MAX: u64 = 16 << 20;

/// Reads the prompt's text from the command line, a file, or standard input.
///
/// # Errors
/// Code 2 for a prompt that is missing, empty, too long or not UTF-8.
pub fn read(args: &Args) -> Result<String, Exit> {
    let (what, bytes) = if let Some(prompt) = &args.prompt {
        ("the prompt".into(), prompt.clone().into_encoded_bytes())
    } else if let Some(path) = &args.file {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).with_context(|| name.clone()).or_exit(Code::Usage)?;
        let bytes = read_bounded(file, &name)?;
        (name, bytes)
    } else if std::io::stdin().is_terminal() {
        return Err(Exit::message(Code::Usage, "no prompt: give one with -p, -f or a pipe"));
    } else {
        let what = "standard input";
        (what.into(), read_bounded(std::io::stdin().lock(), what)?)
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Exit::message(Code::Usage, format!("{what} is not UTF-8: see the byte at offset {at}"))
    })?;
    if text.is_empty() {
        return Err(Exit::message(Code::Usage, format!("{what} is empty: give a prompt")));
    }
    Ok(text)
}

fn read_bounded(from: impl Read, what: &str) -> Result<Vec<u8>, Exit> {
    let mut bytes = Vec::new();
    let mut from = from.take(PROMPT_BYTES_MAX + 1);
    from.read_to_end(&mut bytes).with_context(|| what.to_owned()).or_exit(Code::Usage)?;
    if bytes.len() as u64 > PROMPT_BYTES_MAX {
        let what = format!("{what} is longer than {PROMPT_BYTES_MAX} bytes: no context holds it");
        return Err(Exit::message(Code::Usage, what));
    }
    Ok(bytes)
}

/// Encodes the prompt; `--chat` renders it with the model's chat template first.
///
/// # Errors
/// The model has no chat template, or the template refuses the messages.
pub fn encode(
    text: String,
    args: &Args,
    model: &Model,
    tokenizer: &Tokenizer,
) -> Result<Vec<u32>, Exit> {
    let literal = args.literal;
    for lookalike in tokenizer.lookalikes(&text) {
        say(&format!(
            "monolith: {} at byte {} of the prompt is not a special token of this model: it is \
             read as text",
            lookalike.text, lookalike.offset
        ));
    }
    let system = args.chat.system.as_deref();
    if !literal {
        name_special("the prompt", &text, tokenizer)?;
        name_special("--system", system.unwrap_or_default(), tokenizer)?;
    }
    if !args.chat.chat {
        let policy = if literal { EncodePolicy::LiteralPrompt } else { EncodePolicy::Prompt };
        return Ok(tokenizer.encode(&text, policy)?);
    }
    let template = ChatTemplate::load(&model.dir)?;
    let system = system.map(|text| Message::new("system", text));
    let messages: Vec<Message> = system.into_iter().chain([Message::new("user", text)]).collect();
    let options = ChatOptions {
        add_generation_prompt: true,
        enable_thinking: args.chat.no_think.then_some(false),
        ..ChatOptions::default()
    };
    if literal {
        return Ok(template.encode_literal(tokenizer, &messages, &options)?);
    }
    let rendered = template.render(&messages, &options)?;
    Ok(tokenizer.encode(&rendered, EncodePolicy::Rendered)?)
}

/// Warns of special tokens in the user's text: the model reads each as the start or end of a turn,
/// but the user may have meant plain text.
fn name_special(what: &str, text: &str, tokenizer: &Tokenizer) -> Result<(), Exit> {
    let found = tokenizer.special_in(text)?;
    if !found.is_empty() {
        let names: Vec<&str> = found.iter().map(|token| &*token.text).collect();
        say(&format!(
            "monolith: {what} has special tokens of this model: {}; --literal makes them text",
            names.join(" ")
        ));
    }
    Ok(())
}

/// Checks that the engine can take these tokens.
///
/// # Errors
/// Code 2 if there are no tokens, or more than the context holds; code 1 if a token is not in the
/// model's vocabulary.
pub fn check(prompt: &[u32], engine: &dyn Engine) -> Result<(), Exit> {
    if prompt.is_empty() {
        return Err(Exit::message(Code::Usage, "the prompt has no tokens"));
    }
    let (context, config) = (engine.info().context, engine.config());
    if prompt.len() > context {
        let cure = if context < config.max_positions {
            format!("shorten it or raise --context (this model goes to {})", config.max_positions)
        } else {
            "shorten it (this model takes no more)".into()
        };
        let what = format!("the prompt has {} tokens, the context {context}: {cure}", prompt.len());
        return Err(Exit::message(Code::Usage, what));
    }
    if let Some(token) = prompt.iter().find(|&&token| token as usize >= config.vocab) {
        let what = format!(
            "the tokenizer gave token {token}, but the model has {} rows: they do not match",
            config.vocab
        );
        return Err(Exit::message(Code::Failure, what));
    }
    Ok(())
}
