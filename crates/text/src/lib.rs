//! Text to token ids and back, for models in the Hugging Face folder layout.
//!
//! There are five parts, all independent of the engine that runs the model:
//!
//! - [`Tokenizer`]: `tokenizer.json`, with an explicit [`EncodePolicy`] for special tokens;
//! - [`StreamDecoder`]: ids one by one to whole UTF-8 characters, losing nothing;
//! - [`ChatTemplate`]: the model's own Jinja chat template, rendered as `transformers` does;
//! - [`StopTokens`]: the ids that end a generation;
//! - [`printable`]: text from files and models, made safe for a terminal.

mod bytes;
mod chat;
mod config;
mod error;
mod file;
pub mod fuzz;
mod guard;
mod printable;
mod stop;
mod stream;
mod tokenizer;

pub use chat::{ChatOptions, ChatTemplate, Json, Message};
pub use error::Error;
pub use printable::{printable, printable_line};
pub use stop::StopTokens;
pub use stream::StreamDecoder;
pub use tokenizer::{EncodePolicy, Lookalike, NamedToken, Tokenizer};
