//! The oracle: a phase-by-phase f32 forward pass
