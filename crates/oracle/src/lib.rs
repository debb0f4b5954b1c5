//! Tests of the reference against an independent implementation: candle-transformers' Qwen3, on
//! the CPU, in f32, from the same bf16 values. The tests have their own crate because candle
//! is a large dependency that nothing else needs.
