//! The phases of a step: what each gathers, multiplies and publishes.

use super::{Step, Width, tiles};
use crate::Phase;

/// What a phase publishes for the next one.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The phase.
    pub phase: Phase,
    /// Values.
    pub width: Width,
    /// Values of one piece, which one block owns: a tile's rows, or the heads of one KV head.
    pub piece: Width,
    /// First unit of its slot within a layer's.
    pub slot: Width,
    /// Pairs of values of a block at the grid of the row, and units from one block's to the next's.
    pub lines: Option<(Width, Width)>,
}

impl Output {
    /// The unit of a pair of values within the slot.
    pub fn place(&self, step: &Step, pair: usize) -> usize {
        let Some((per, line)) = self.lines else { return pair };
        let (per, line) = (per.of(step), line.of(step));
        pair / per * line + pair % per
    }

    /// The pair of values of a unit within the slot: the inverse of [`Output::place`]. Units behind a
    /// block's last count as its last.
    pub fn pair(&self, step: &Step, unit: usize) -> usize {
        let Some((per, line)) = self.lines else { return unit };
        let (per, line) = (per.of(step), line.of(step));
        unit / line * per + (unit % line).min(per - 1)
    }

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
        slot: size!(qkv_slot),
        lines: Some((size!(qkv_per), size!(qkv_line))),
    },
    Output {
        phase: Phase::Attention,
        width: size!(q_dim),
        piece: size!(group_dim),
        slot: size!(attention_slot),
        lines: None,
    },
    Output {
        phase: Phase::OProj,
        width: dim!(hidden),
        piece: size!(tile_rows),
        slot: size!(o_proj_slot),
        lines: Some((size!(o_proj_per), size!(o_proj_line))),
    },
    Output {
        phase: Phase::GateUp,
        width: dim!(intermediate),
        piece: size!(gate_rows),
        slot: size!(gate_up_slot),
        lines: Some((size!(gate_up_per), size!(gate_up_line))),
    },
    Output {
        phase: Phase::Down,
        width: dim!(hidden),
        piece: size!(tile_rows),
        slot: size!(down_slot),
        lines: Some((size!(down_per), size!(down_line))),
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
        /// Plus the residual stream.
        Residual = 1, "residual";
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
    /// Whether the activation is normed.
    pub normed: bool,
    /// The copy of the residual stream that keeps a normed activation, or is added.
    pub residual: usize,
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
        normed: true,
        residual: 0,
        rows: size!(qkv_dim),
        epilogue: Epilogue::Scale,
    },
    Matvec {
        phase: Phase::OProj,
        from: Phase::Attention,
        columns: size!(q_dim),
        normed: false,
        residual: 0,
        rows: dim!(hidden),
        epilogue: Epilogue::Residual,
    },
    Matvec {
        phase: Phase::GateUp,
        from: Phase::OProj,
        columns: dim!(hidden),
        normed: true,
        residual: 1,
        rows: size!(gate_up_dim),
        epilogue: Epilogue::Gate,
    },
    Matvec {
        phase: Phase::Down,
        from: Phase::GateUp,
        columns: dim!(intermediate),
        normed: false,
        residual: 1,
        rows: dim!(hidden),
        epilogue: Epilogue::Residual,
    },
];

/// Matvecs per layer; the LM head counts as the first matvec of one more layer.
pub const LAYER_MATVECS: usize = MATVECS.len();

/// The LM head.
pub const HEAD: Matvec = Matvec {
    phase: Phase::LmHead,
    from: Phase::Down,
    columns: dim!(hidden),
    normed: true,
    residual: 0,
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
