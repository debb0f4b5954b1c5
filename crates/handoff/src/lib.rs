//! The (slot, epoch) hand-off protocol on CPU atomics, and its model check
