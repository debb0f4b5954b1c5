//! The file of a step that timed out, and its chain of waits: which block waited for which.

use monolith_abi::dump::NO_BLOCK;
use monolith_abi::fault::{BlockWait, FaultDump};
use monolith_abi::{Phase, Role, WaitKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::check::is_short_line;
use crate::names::escaped;

/// Format and version, first in every file.
pub const SCHEMA: &str = "monolith-fault/1";
/// Size limit of a file, far above two waits per block.
const MAX_BYTES: usize = 4 << 20;

/// Why a file was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultFileError {
    /// A file larger than any fault file.
    #[error("the file is longer than {MAX_BYTES} bytes, so it is not a fault file")]
    TooLong,
    /// Not the JSON of a fault.
    #[error("not a fault's JSON: {0}")]
    Json(String),
    /// Another format, or another version of this one.
    #[error("schema is {0:?}, this version reads {SCHEMA:?}")]
    Schema(String),
    /// A name that this version does not know.
    #[error("{field}: unknown name {name:?}")]
    UnknownName {
        /// `role`, `kind` or `phase`.
        field: &'static str,
        /// The name.
        name: String,
    },
    /// A text that is empty, too long, or not safe to print.
    #[error("{0} is not a short line of text")]
    BadText(&'static str),
    /// A wait of, or for, a block that does not exist.
    #[error("a wait names block {block}, but there are {blocks} blocks")]
    UnknownBlock {
        /// The block.
        block: u16,
        /// Number of blocks.
        blocks: u16,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    variant: String,
    device: String,
    model: String,
    blocks: u16,
    position: u32,
    patience_ns: u64,
    cause: FileWait,
    waits: Vec<FileWait>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWait {
    block: u16,
    role: String,
    warp: u32,
    kind: String,
    phase: String,
    layer: Option<u16>,
    producer: u16,
    unit: u32,
    expected: u32,
    seen: u32,
}

#[derive(Deserialize)]
struct FileSchema {
    schema: String,
}

/// Writes the fault as a file: JSON, one wait per line.
pub fn write(dump: &FaultDump) -> Vec<u8> {
    let file = File {
        schema: SCHEMA.to_owned(),
        variant: dump.variant.clone(),
        device: dump.device.clone(),
        model: dump.model.clone(),
        blocks: dump.blocks,
        position: dump.position,
        patience_ns: dump.timeout_ns,
        cause: file_from_wait(&dump.cause),
        waits: dump.waits.iter().map(file_from_wait).collect(),
    };
    let mut bytes = serde_json::to_vec_pretty(&file).expect("plain structures serialize");
    bytes.push(b'\n');
    bytes
}

/// Reads a fault from a file.
///
/// # Errors
/// See [`FaultFileError`].
pub fn read(bytes: &[u8]) -> Result<FaultDump, FaultFileError> {
    if bytes.len() > MAX_BYTES {
        return Err(FaultFileError::TooLong);
    }
    // The message may quote the file, so it is escaped.
    let refuse = |error: serde_json::Error| FaultFileError::Json(escaped(&error.to_string()));
    let FileSchema { schema } = serde_json::from_slice(bytes).map_err(refuse)?;
    if schema != SCHEMA {
        return Err(FaultFileError::Schema(schema));
    }
    let file: File = serde_json::from_slice(bytes).map_err(refuse)?;
    for (field, text) in
        [("variant", &file.variant), ("device", &file.device), ("model", &file.model)]
    {
        if !is_short_line(text) {
            return Err(FaultFileError::BadText(field));
        }
    }
    let dump = FaultDump {
        cause: wait_from_file(&file.cause)?,
        waits: file.waits.iter().map(wait_from_file).collect::<Result<_, _>>()?,
        variant: file.variant,
        device: file.device,
        model: file.model,
        blocks: file.blocks,
        position: file.position,
        timeout_ns: file.patience_ns,
    };
    let producer = |wait: &BlockWait| Some(wait.producer).filter(|&block| block != NO_BLOCK);
    let blocks = |wait: &BlockWait| [Some(wait.block), producer(wait)].into_iter().flatten();
    let stray = |&block: &u16| block >= dump.blocks;
    let stray = dump.waits.iter().chain([&dump.cause]).flat_map(blocks).find(stray);
    match stray {
        Some(block) => Err(FaultFileError::UnknownBlock { block, blocks: dump.blocks }),
        None => Ok(dump),
    }
}

fn file_from_wait(wait: &BlockWait) -> FileWait {
    FileWait {
        block: wait.block,
        role: wait.role.name().to_owned(),
        warp: wait.warp,
        kind: wait.kind.name().to_owned(),
        phase: wait.phase.name().to_owned(),
        layer: wait.layer,
        producer: wait.producer,
        unit: wait.unit,
        expected: wait.expected,
        seen: wait.seen,
    }
}

fn wait_from_file(file: &FileWait) -> Result<BlockWait, FaultFileError> {
    let unknown = |field, name: &str| FaultFileError::UnknownName { field, name: name.to_owned() };
    Ok(BlockWait {
        block: file.block,
        role: Role::from_name(&file.role).ok_or_else(|| unknown("role", &file.role))?,
        warp: file.warp,
        kind: WaitKind::from_name(&file.kind).ok_or_else(|| unknown("kind", &file.kind))?,
        phase: Phase::from_name(&file.phase).ok_or_else(|| unknown("phase", &file.phase))?,
        layer: file.layer,
        producer: file.producer,
        unit: file.unit,
        expected: file.expected,
        seen: file.seen,
    })
}

/// How a chain of waits ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEnd {
    /// The block did not wait: it had not published its value yet, or had failed before that.
    Idle(u16),
    /// The block waited for its own value: it went past the phase without publishing.
    Itself(u16),
    /// The block waited for its own ring, not for another block.
    Ring(u16),
    /// The block waited for a count of blocks, which does not say who is missing.
    Nobody(u16),
    /// Blocks waited for one another (a deadlock); the chain comes back to this block first.
    Circle(u16),
}

/// Returns the chain, beginning with the cause: each block, and what it waited for.
pub fn chain(dump: &FaultDump) -> (Vec<&BlockWait>, ChainEnd) {
    let mut links = vec![&dump.cause];
    let mut met = BTreeSet::from([dump.cause.block]);
    let mut first_of: BTreeMap<u16, &BlockWait> = BTreeMap::new();
    for wait in dump.waits.iter().filter(|wait| wait.role == Role::Consumer) {
        first_of.entry(wait.block).or_insert(wait);
    }
    loop {
        let last = links[links.len() - 1];
        if last.kind != WaitKind::Exchange {
            return (links, ChainEnd::Ring(last.block));
        }
        if last.producer == NO_BLOCK {
            return (links, ChainEnd::Nobody(last.block));
        }
        if last.producer == last.block {
            return (links, ChainEnd::Itself(last.block));
        }
        if !met.insert(last.producer) {
            return (links, ChainEnd::Circle(last.producer));
        }
        match first_of.get(&last.producer) {
            Some(next) => links.push(next),
            None => return (links, ChainEnd::Idle(last.producer)),
        }
    }
}

/// Renders the chain of waits and all other waits, for the terminal.
#[derive(Debug)]
pub struct Report<'a>(pub &'a FaultDump);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dump = self.0;
        writeln!(
            f,
            "{} on {}, {}, {} blocks: the step at position {} did not end; the timeout is {:?}",
            dump.model,
            dump.device,
            dump.variant,
            dump.blocks,
            dump.position,
            std::time::Duration::from_nanos(dump.timeout_ns)
        )?;
        let (links, end) = chain(dump);
        writeln!(f, "\nwho waited for whom, from the cause on:")?;
        for link in links {
            writeln!(f, "  block {} (warp {}) waited for {}", link.block, link.warp, link.what())?;
        }
        writeln!(f, "  {}", words_of(end))?;
        for role in Role::ALL {
            groups(dump, *role, f)?;
        }
        Ok(())
    }
}

fn words_of(end: ChainEnd) -> String {
    match end {
        ChainEnd::Idle(block) => format!(
            "block {block} waited for nothing: it was still working or had stopped, and had not \
             published that value"
        ),
        ChainEnd::Itself(block) => {
            format!("block {block} waited for its own value: it went on without publishing it")
        }
        ChainEnd::Ring(block) => {
            format!("block {block} waited for its own ring, not for another block")
        }
        ChainEnd::Nobody(block) => format!(
            "block {block} had all values that it needed, and waited for others to be counted: \
             nobody in particular"
        ),
        ChainEnd::Circle(block) => {
            format!(
                "block {block} is listed above: from there on the blocks waited for one another"
            )
        }
    }
}

/// Lists the waits of one role, the earliest in the data flow first. Blocks that wait for the same
/// share a line.
fn groups(dump: &FaultDump, role: Role, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut waits: Vec<&BlockWait> = dump.waits.iter().filter(|wait| wait.role == role).collect();
    let place = |wait: &BlockWait| {
        let layer = wait.layer.map_or(u32::MAX, u32::from);
        (layer, wait.phase as u8, wait.kind as u8, wait.kind == WaitKind::Exchange)
    };
    let key = |wait: &BlockWait| (place(wait), if place(wait).3 { wait.producer } else { 0 });
    waits.sort_by_key(|wait| (key(wait), wait.block));
    if waits.is_empty() {
        return Ok(());
    }
    writeln!(f, "\n{}s, {} of {} waiting:", role.name(), waits.len(), dump.blocks)?;
    for group in waits.chunk_by(|a, b| key(a) == key(b)) {
        let blocks: Vec<String> = group.iter().map(|wait| wait.block.to_string()).collect();
        let plural = if group.len() == 1 { "" } else { "s" };
        let what = group[0].what();
        writeln!(f, "  {} block{plural} for {what}: {}", group.len(), blocks.join(" "))?;
    }
    Ok(())
}
