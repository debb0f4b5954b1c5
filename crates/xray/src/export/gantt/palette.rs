//! The colours and patterns of the web page (its light theme). The patterns distinguish waits from
//! work and from one another for readers who cannot tell the colours apart.

use crate::Span;
use crate::export::wait_name;
use monolith_abi::{EventKind, Phase};
use plotters::style::RGBColor;

pub(super) const SURFACE: RGBColor = rgb(0xffffff);
pub(super) const INK: RGBColor = rgb(0x16181d);
pub(super) const QUIET: RGBColor = rgb(0x555b66);
pub(super) const LINE: RGBColor = rgb(0xd5d9e0);

/// Distance between the lines of a pattern, in pixels.
const PITCH: u32 = 6;

const fn rgb(code: u32) -> RGBColor {
    RGBColor((code >> 16) as u8, (code >> 8) as u8, code as u8)
}

const fn phase_colour(phase: Phase) -> RGBColor {
    match phase {
        Phase::Embed => rgb(0x50545c),
        Phase::Qkv => rgb(0x2a2fd8),
        Phase::Attention => rgb(0x733a02),
        Phase::OProj => rgb(0x45a4cc),
        Phase::GateUp => rgb(0x168369),
        Phase::Down => rgb(0x9ca10b),
        Phase::LmHead => rgb(0x6b3a8f),
        Phase::Argmax => rgb(0x101216),
    }
}

/// The lines of a wait's pattern, and the colour between them.
const fn wait_colours(kind: EventKind) -> (RGBColor, RGBColor) {
    match kind {
        EventKind::WaitExchange => (rgb(0xd72540), rgb(0xfbe3e6)),
        EventKind::WaitRingFull | EventKind::WaitRingEmpty | EventKind::WaitCopies => {
            (rgb(0xc048fc), rgb(0xf9e6ff))
        }
        EventKind::WaitBarrier => (rgb(0x54003c), rgb(0xf1dcea)),
        // Neither is a wait.
        EventKind::Work | EventKind::Unrecorded => (INK, SURFACE),
    }
}

/// Whether a wait's pattern has a line at this pixel: hatched for an exchange, upright for
/// weights that are not there, hatched downwards for what the loader waits for, checked for the
/// block's own warps.
const fn is_line(kind: EventKind, x: u32, y: u32) -> bool {
    match kind {
        EventKind::WaitRingFull => x % PITCH < 2,
        EventKind::WaitRingEmpty | EventKind::WaitCopies => (x + PITCH - y % PITCH) % PITCH < 2,
        EventKind::WaitBarrier => (x / 2 + y / 2).is_multiple_of(2),
        EventKind::WaitExchange | EventKind::Work | EventKind::Unrecorded => (x + y) % PITCH < 2,
    }
}

/// What a pixel can show: a phase's work, or a kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shade {
    Work(Phase),
    Wait(EventKind),
}

impl Shade {
    /// Number of shades.
    pub(super) const COUNT: usize = Phase::ALL.len() + EventKind::ALL.len();

    pub(super) fn of(span: &Span) -> Shade {
        if span.kind.is_wait() { Shade::Wait(span.kind) } else { Shade::Work(span.phase) }
    }

    /// Its number, below [`Shade::COUNT`].
    pub(super) fn index(self) -> usize {
        match self {
            Shade::Work(phase) => phase as usize,
            Shade::Wait(kind) => Phase::ALL.len() + kind as usize,
        }
    }

    pub(super) fn from_index(index: usize) -> Shade {
        match Phase::ALL.get(index) {
            Some(&phase) => Shade::Work(phase),
            None => Shade::Wait(EventKind::ALL[index - Phase::ALL.len()]),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Shade::Work(phase) => phase.name(),
            Shade::Wait(kind) => wait_name(kind).unwrap_or(kind.name()),
        }
    }

    /// The colour of this pixel.
    pub(super) fn colour(self, x: u32, y: u32) -> RGBColor {
        match self {
            Shade::Work(phase) => phase_colour(phase),
            Shade::Wait(kind) => {
                let (line, ground) = wait_colours(kind);
                if is_line(kind, x, y) { line } else { ground }
            }
        }
    }
}
