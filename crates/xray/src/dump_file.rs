//! A dump on disk: `MONOXRAY`, the version, the body's length, the body's sha256, the body.
//! All numbers are little endian; a text or a list is its length (64 bits), then its contents.

use monolith_abi::dump::{Anchor, BlockDump, Copied, DUMP_VERSION, Dump, Pace, Stamp};
use monolith_abi::{EventKind, Phase};
use sha2::{Digest, Sha256};

/// First bytes of every dump.
pub const MAGIC: &[u8; 8] = b"MONOXRAY";
/// Magic, version, length, sha256.
const HEADER_BYTES: usize = 8 + 4 + 8 + 32;
/// The fewest bytes that one item takes in the file. A count of items is checked against them.
const STAMP_BYTES: usize = 8 + 2 + 2 + 1 + 1;
const COPY_BYTES: usize = 8 + 8 + 4 + 2 + 1;
const ANCHOR_BYTES: usize = 8 + 8;
const PHASE_BYTES: usize = 1 + 8;
const BLOCK_BYTES: usize = 2 + 8 + 5 * 8;

/// Why a file was refused as a dump. Offsets count from the file's first byte.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DumpError {
    /// Not a dump.
    #[error("not a dump: the file begins with {0:02x?}, a dump with {MAGIC:02x?}")]
    Foreign(Vec<u8>),
    /// A dump of another version.
    #[error("the dump's version is {0}, this program reads {DUMP_VERSION}: record it again")]
    Version(u32),
    /// The file is shorter or longer than it says.
    #[error(
        "the dump's body has {found} bytes, but its header says {expected}: the file was truncated \
         or extended"
    )]
    Length {
        /// Bytes that follow the header.
        found: u64,
        /// Bytes that should follow.
        expected: u64,
    },
    /// The file ends inside its header.
    #[error("the file ends at byte {0}, inside the dump's header")]
    ShortHeader(usize),
    /// The body has changed since it was written.
    #[error("the dump's sha256 does not match its body: the file is damaged")]
    Sha256,
    /// The body ends too early.
    #[error("byte {at}: {what} takes {wanted} bytes, but {left} are left")]
    Short {
        /// Offset.
        at: usize,
        /// The value being read.
        what: &'static str,
        /// Its size.
        wanted: usize,
        /// Bytes left.
        left: usize,
    },
    /// A list that the rest of the file cannot hold.
    #[error("byte {at}: {count} x {what} do not fit into the {left} bytes that are left")]
    Count {
        /// Offset.
        at: usize,
        /// What the list is of.
        what: &'static str,
        /// Its length.
        count: u64,
        /// Bytes left.
        left: usize,
    },
    /// A value that is not one of those allowed.
    #[error("byte {at}: {value} is not a valid {what}")]
    Value {
        /// Offset.
        at: usize,
        /// What the value stands for.
        what: &'static str,
        /// The value.
        value: u8,
    },
    /// A text that is not UTF-8.
    #[error("byte {at}: {what} is not UTF-8 text")]
    Text {
        /// Offset.
        at: usize,
        /// Which text.
        what: &'static str,
    },
    /// The body continues after its last value.
    #[error("byte {at}: {left} bytes follow the last block")]
    Trailing {
        /// Offset.
        at: usize,
        /// Bytes left.
        left: usize,
    },
}

/// Returns whether a file begins with a dump's first bytes.
pub fn is_dump(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Encodes the dump as a file. The same dump gives the same bytes.
pub fn write(dump: &Dump) -> Vec<u8> {
    let body = body(dump);
    let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&DUMP_VERSION.to_le_bytes());
    file.extend_from_slice(&(body.len() as u64).to_le_bytes());
    file.extend_from_slice(&Sha256::digest(&body));
    file.extend_from_slice(&body);
    file
}

fn body(dump: &Dump) -> Vec<u8> {
    let mut to = Vec::new();
    for text in [&dump.engine, &dump.variant, &dump.device, &dump.model, &dump.build] {
        put_count(&mut to, text.len());
        to.extend_from_slice(text.as_bytes());
    }
    to.extend_from_slice(&dump.layers.to_le_bytes());
    to.extend_from_slice(&dump.position.to_le_bytes());
    to.extend_from_slice(&dump.clock_hz.to_le_bytes());
    to.extend_from_slice(&dump.global_step_ns.to_le_bytes());
    put_count(&mut to, dump.phase_bytes.len());
    for &(phase, bytes) in &dump.phase_bytes {
        to.push(phase as u8);
        to.extend_from_slice(&bytes.to_le_bytes());
    }
    to.push(u8::from(dump.pace.is_some()));
    if let Some(Pace { headline_ns, instrumented_ns }) = dump.pace {
        to.extend_from_slice(&headline_ns.to_le_bytes());
        to.extend_from_slice(&instrumented_ns.to_le_bytes());
    }
    put_count(&mut to, dump.blocks.len());
    for block in &dump.blocks {
        put_block(&mut to, block);
    }
    to
}

fn put_count(to: &mut Vec<u8>, count: usize) {
    to.extend_from_slice(&(count as u64).to_le_bytes());
}

fn put_block(to: &mut Vec<u8>, block: &BlockDump) {
    to.extend_from_slice(&block.sm.to_le_bytes());
    to.extend_from_slice(&block.lost.to_le_bytes());
    for stamps in [&block.consumer, &block.loader, &block.epilogue] {
        put_count(to, stamps.len());
        for stamp in stamps {
            to.extend_from_slice(&stamp.clock.to_le_bytes());
            to.extend_from_slice(&stamp.layer.to_le_bytes());
            to.extend_from_slice(&stamp.producer.to_le_bytes());
            to.push(stamp.kind as u8);
            to.push(stamp.phase as u8);
        }
    }
    put_count(to, block.copies.len());
    for copy in &block.copies {
        to.extend_from_slice(&copy.issue_clock.to_le_bytes());
        to.extend_from_slice(&copy.arrival_clock.to_le_bytes());
        to.extend_from_slice(&copy.bytes.to_le_bytes());
        to.extend_from_slice(&copy.layer.to_le_bytes());
        to.push(copy.phase as u8);
    }
    put_count(to, block.anchors.len());
    for anchor in &block.anchors {
        to.extend_from_slice(&anchor.clock.to_le_bytes());
        to.extend_from_slice(&anchor.global_ns.to_le_bytes());
    }
}

/// Reads a dump from a file.
///
/// # Errors
/// A file that is truncated, damaged, of another version, or not a dump.
pub fn read(bytes: &[u8]) -> Result<Dump, DumpError> {
    if !is_dump(bytes) {
        return Err(DumpError::Foreign(bytes.iter().take(MAGIC.len()).copied().collect()));
    }
    let short = |_| DumpError::ShortHeader(bytes.len());
    let mut header = Reader { bytes, at: MAGIC.len() };
    let version = header.u32("the version").map_err(short)?;
    if version != DUMP_VERSION {
        return Err(DumpError::Version(version));
    }
    let expected = header.u64("the body's length").map_err(short)?;
    let sha256: [u8; 32] = header.array("the body's sha256").map_err(short)?;
    let body = &bytes[HEADER_BYTES..];
    if body.len() as u64 != expected {
        return Err(DumpError::Length { found: body.len() as u64, expected });
    }
    if Sha256::digest(body)[..] != sha256 {
        return Err(DumpError::Sha256);
    }
    let mut reader = Reader { bytes, at: HEADER_BYTES };
    let dump = reader.dump()?;
    match bytes.len() - reader.at {
        0 => Ok(dump),
        left => Err(DumpError::Trailing { at: reader.at, left }),
    }
}

/// Reads values in order, and keeps the offset of the next one.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn dump(&mut self) -> Result<Dump, DumpError> {
        Ok(Dump {
            engine: self.text("the engine's name")?,
            variant: self.text("the variant's name")?,
            device: self.text("the device's name")?,
            model: self.text("the model's name")?,
            build: self.text("the build's name")?,
            layers: self.u16("the number of layers")?,
            position: self.u32("the position")?,
            clock_hz: self.u64("clock_hz")?,
            global_step_ns: self.u64("global_step_ns")?,
            phase_bytes: self.list("a phase's bytes", PHASE_BYTES, |from| {
                Ok((from.phase()?, from.u64("a phase's bytes")?))
            })?,
            pace: self.pace()?,
            blocks: self.list("block", BLOCK_BYTES, Self::block)?,
        })
    }

    fn pace(&mut self) -> Result<Option<Pace>, DumpError> {
        let at = self.at;
        match self.u8("the pace flag")? {
            0 => Ok(None),
            1 => {
                let headline_ns = f64::from_bits(self.u64("the headline pace")?);
                let instrumented_ns = f64::from_bits(self.u64("the instrumented pace")?);
                Ok(Some(Pace { headline_ns, instrumented_ns }))
            }
            value => Err(DumpError::Value { at, what: "pace flag (0 or 1)", value }),
        }
    }

    fn block(&mut self) -> Result<BlockDump, DumpError> {
        Ok(BlockDump {
            sm: self.u16("a block's SM")?,
            lost: self.u64("a block's lost stamps")?,
            consumer: self.list("consumer stamp", STAMP_BYTES, Self::stamp)?,
            loader: self.list("loader stamp", STAMP_BYTES, Self::stamp)?,
            epilogue: self.list("epilogue stamp", STAMP_BYTES, Self::stamp)?,
            copies: self.list("copy", COPY_BYTES, Self::copy)?,
            anchors: self.list("anchor", ANCHOR_BYTES, |from| {
                let clock = from.u64("an anchor's clock")?;
                Ok(Anchor { clock, global_ns: from.u64("an anchor's shared clock")? })
            })?,
        })
    }

    fn stamp(&mut self) -> Result<Stamp, DumpError> {
        let clock = self.u64("a stamp's clock")?;
        let layer = self.u16("a stamp's layer")?;
        let producer = self.u16("a stamp's producer")?;
        Ok(Stamp { clock, kind: self.kind()?, phase: self.phase()?, layer, producer })
    }

    fn copy(&mut self) -> Result<Copied, DumpError> {
        let issue_clock = self.u64("a copy's issue")?;
        let arrival_clock = self.u64("a copy's arrival")?;
        let bytes = self.u32("a copy's size")?;
        let layer = self.u16("a copy's layer")?;
        Ok(Copied { issue_clock, arrival_clock, bytes, phase: self.phase()?, layer })
    }

    fn phase(&mut self) -> Result<Phase, DumpError> {
        let (at, value) = (self.at, self.u8("a phase")?);
        Phase::from_id(value).ok_or(DumpError::Value { at, what: "phase", value })
    }

    fn kind(&mut self) -> Result<EventKind, DumpError> {
        let (at, value) = (self.at, self.u8("a kind")?);
        EventKind::from_id(value).ok_or(DumpError::Value { at, what: "kind", value })
    }

    fn text(&mut self, what: &'static str) -> Result<String, DumpError> {
        let length = self.count(what, 1)?;
        let at = self.at;
        let text = self.slice(length, what)?.to_vec();
        String::from_utf8(text).map_err(|_| DumpError::Text { at, what })
    }

    fn list<T>(
        &mut self,
        what: &'static str,
        least_bytes: usize,
        one: impl Fn(&mut Self) -> Result<T, DumpError>,
    ) -> Result<Vec<T>, DumpError> {
        let count = self.count(what, least_bytes)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Reads a count of items of at least `least_bytes` each. A count that the rest of the file
    /// cannot hold is refused, so that it is safe to reserve memory for the items.
    fn count(&mut self, what: &'static str, least_bytes: usize) -> Result<usize, DumpError> {
        let at = self.at;
        let count = self.u64(what)?;
        let left = self.bytes.len() - self.at;
        let fits = usize::try_from(count).ok().filter(|&count| count <= left / least_bytes);
        fits.ok_or(DumpError::Count { at, what, count, left })
    }

    fn u8(&mut self, what: &'static str) -> Result<u8, DumpError> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    fn u16(&mut self, what: &'static str) -> Result<u16, DumpError> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, DumpError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, DumpError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DumpError> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N, what)?);
        Ok(array)
    }

    fn slice(&mut self, wanted: usize, what: &'static str) -> Result<&[u8], DumpError> {
        let (at, left) = (self.at, self.bytes.len() - self.at);
        if wanted > left {
            return Err(DumpError::Short { at, what, wanted, left });
        }
        self.at += wanted;
        Ok(&self.bytes[at..self.at])
    }
}
