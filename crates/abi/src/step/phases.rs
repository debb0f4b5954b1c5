//! The phases of a step: what each gathers, multiplies and publishes.

use super::{Step, Width, tiles, unit_of_pair};
use crate::Phase;

/// What a phase gives the next one.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The phase.
    pub phase: Phase,
    /// Values.
    pub width: Width,
    /// Values of one piece: a tile's rows, or the heads of one KV head.
    pub piece: Width,
    /// Where they lie in the GPU's exchange; `None`: they do not leave the block.
    pub slot: Option<Slot>,
}

/// The place of a phase's values in a layer's slots, as pairs of values, or of partial sums of
/// them.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// First unit within a layer's.
    pub begin: Width,
    /// Pairs that a block publishes side by side.
    pub per: Width,
    /// Units from one block's to the next one's: whole lines.
    pub line: Width,
    /// Partial sums of each value, each published by another block; `None`: the value itself.
    pub sums: Option<Width>,
}

impl Slot {
    /// Partial sums of each value.
    pub fn sums(&self, step: &Step) -> usize {
        self.sums.map_or(1, |sums| sums.of(step))
    }

    /// The unit of a pair's partial sum within the slot.
    pub fn place(&self, step: &Step, pair: usize, sum: usize) -> usize {
        unit_of_pair(pair, sum, self.per.of(step), self.line.of(step), self.sums(step))
    }

    /// The pair of values of a unit within the slot, and which sum it is: the inverse of
    /// [`Slot::place`]. Units behind a block's last count as its last.
    pub fn pair(&self, step: &Step, unit: usize) -> (usize, usize) {
        let (per, line, sums) = (self.per.of(step), self.line.of(step), self.sums(step));
        (unit / line / sums * per + (unit % line).min(per - 1), unit / line % sums)
    }
}

impl Output {
    /// Pieces of the output.
    pub fn pieces(&self, step: &Step) -> usize {
        tiles(self.width.of(step), self.piece.of(step))
    }
}

/// The outputs of a layer's phases, in [`Phase::LAYER`] order.
pub const OUTPUTS: [Output; Phase::LAYER.len()] = [
    Output {
        phase: Phase::Qkv,
        width: size!(qkv_dim),
        piece: size!(tile_rows),
        slot: Some(Slot {
            begin: size!(qkv_slot),
            per: size!(qkv_per),
            line: size!(qkv_line),
            sums: None,
        }),
    },
    Output { phase: Phase::Attention, width: size!(q_dim), piece: size!(group_dim), slot: None },
    Output {
        phase: Phase::OProj,
        width: dim!(hidden),
        piece: size!(tile_rows),
        slot: Some(Slot {
            begin: size!(o_proj_slot),
            per: size!(o_proj_per),
            line: size!(o_proj_line),
            sums: Some(dim!(kv_heads)),
        }),
    },
    Output {
        phase: Phase::GateUp,
        width: dim!(intermediate),
        piece: size!(gate_rows),
        slot: Some(Slot {
            begin: size!(gate_up_slot),
            per: size!(gate_up_per),
            line: size!(gate_up_line),
            sums: None,
        }),
    },
    Output {
        phase: Phase::Down,
        width: dim!(hidden),
        piece: size!(tile_rows),
        slot: Some(Slot {
            begin: size!(down_slot),
            per: size!(down_per),
            line: size!(down_line),
            sums: Some(size!(down_splits)),
        }),
    },
];

/// The output of a layer's phase.
pub fn output_of(phase: Phase) -> Option<&'static Output> {
    OUTPUTS.iter().find(|output| output.phase == phase)
}

wire_enum! {
    /// The epilogue: what is done with a matvec's sums.
    Epilogue {
        /// Times the reciprocal RMS of the gathered activation.
        Scale = 0, "scale";
        /// Published as a partial sum, which the next gather adds to the residual stream.
        Partial = 1, "partial";
        /// silu(gate) * up, both times the reciprocal RMS.
        Gate = 2, "gate";
        /// Scaled, and kept if it is the largest.
        Logits = 3, "logits";
    }
}

/// A phase that is a matrix-vector product (matvec).
#[derive(Clone, Copy, Debug)]
pub struct Matvec {
    /// The phase.
    pub phase: Phase,
    /// The phase whose output it gathers; that of the layer before, if it is a later phase.
    pub from: Phase,
    /// Width of the gathered activation.
    pub columns: Width,
    /// Rows of the matrix.
    pub rows: Width,
    /// What is done with the sums.
    pub epilogue: Epilogue,
}

/// A layer's matvecs, in order of use.
pub const MATVECS: [Matvec; 4] = [
    Matvec {
        phase: Phase::Qkv,
        from: Phase::Down,
        columns: dim!(hidden),
        rows: size!(qkv_dim),
        epilogue: Epilogue::Scale,
    },
    Matvec {
        phase: Phase::OProj,
        from: Phase::Attention,
        columns: size!(q_dim),
        rows: dim!(hidden),
        epilogue: Epilogue::Partial,
    },
    Matvec {
        phase: Phase::GateUp,
        from: Phase::OProj,
        columns: dim!(hidden),
        rows: size!(gate_up_dim),
        epilogue: Epilogue::Gate,
    },
    Matvec {
        phase: Phase::Down,
        from: Phase::GateUp,
        columns: dim!(intermediate),
        rows: dim!(hidden),
        epilogue: Epilogue::Partial,
    },
];

/// Matvecs per layer; the LM head counts as the first matvec of one more layer.
pub const LAYER_MATVECS: usize = MATVECS.len();

/// The LM head.
pub const HEAD: Matvec = Matvec {
    phase: Phase::LmHead,
    from: Phase::Down,
    columns: dim!(hidden),
    rows: dim!(vocab),
    epilogue: Epilogue::Logits,
};

impl Matvec {
    /// Whether it gathers the output of the layer before.
    pub fn is_from_the_layer_before(&self) -> bool {
        self.from > self.phase || self.phase == Phase::LmHead
    }
}

/// The matvec of an index, counted from the first layer's `qkv`, and its layer, which for the LM
/// head is the number of layers. `None` beyond the LM head.
pub fn matvec_at(index: usize, layers: usize) -> Option<(&'static Matvec, usize)> {
    let (layer, at) = (index / LAYER_MATVECS, index % LAYER_MATVECS);
    if index == LAYER_MATVECS * layers {
        return Some((&HEAD, layer));
    }
    (layer < layers).then_some((&MATVECS[at], layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_in_order_of_the_phases() {
        assert_eq!(OUTPUTS.map(|output| output.phase), Phase::LAYER);
        for matvec in MATVECS.iter().chain([&HEAD]) {
            assert!(output_of(matvec.from).is_some(), "{matvec:?}");
        }
    }

    #[test]
    fn matvecs_are_four_a_layer_and_the_head() {
        let phase = |index| matvec_at(index, 28).map(|(matvec, layer)| (matvec.phase, layer));
        assert_eq!(phase(0), Some((Phase::Qkv, 0)));
        assert_eq!(phase(7), Some((Phase::Down, 1)));
        assert_eq!(phase(112), Some((Phase::LmHead, 28)));
        assert_eq!(phase(113), None);
    }
}
