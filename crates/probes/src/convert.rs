//! Checks the conversion of every pair of e4m3 codes and of e2m1 codes to f16, bit for bit.

use crate::gpu::Gpu;
use crate::kernels::Module;
use crate::report::{Comparison, Convert, Mismatch};
use crate::{ProbeError, reference};
use cudarc::driver::PushKernelArg;
use half::f16;
use std::collections::BTreeSet;

const E4M3_PAIRS: usize = 1 << 16;
const E2M1_PAIRS: usize = 1 << 8;
const THREADS: u32 = 256;

pub(crate) fn probe(gpu: &Gpu) -> Result<Convert, ProbeError> {
    let module = gpu.load(Module::Convert)?;
    let kernel = module.load_function("probe_convert")?;
    // Bits that no conversion gives, which show unwritten words.
    let buffer = |pairs| gpu.stream.clone_htod(&vec![u32::MAX; pairs]);
    let mut e4m3_cvt = buffer(E4M3_PAIRS)?;
    let mut e4m3_shift = buffer(E4M3_PAIRS)?;
    let mut e2m1_cvt = buffer(E2M1_PAIRS)?;
    let mut e2m1_shift = buffer(E2M1_PAIRS)?;
    let config = gpu.blocks(E4M3_PAIRS / THREADS as usize, THREADS, 0);
    let mut launch = gpu.stream.launch_builder(&kernel);
    launch.arg(&mut e4m3_cvt).arg(&mut e4m3_shift).arg(&mut e2m1_cvt).arg(&mut e2m1_shift);
    // SAFETY: four pointers, as the kernel declares; it writes one word per thread, and the buffers
    // hold one per thread.
    unsafe { launch.launch(config) }?;
    let read = |words| gpu.stream.clone_dtoh(words);
    let e2m1 = |words: &[u32], by: fn(u8) -> u16| {
        compare(words, |input| [input & 15, input >> 4].map(|code| Some(by(code as u8))))
    };
    let e4m3 = |words: &[u32], by: fn(u8) -> Option<u16>| {
        compare(words, |input| [input & 255, input >> 8].map(|code| by(code as u8)))
    };
    let native = gpu.arch.has_e2m1();
    Ok(Convert {
        e4m3_by_cvt: e4m3(&read(&e4m3_cvt)?, reference::e4m3_by_cvt),
        e4m3_by_shift: e4m3(&read(&e4m3_shift)?, |code| Some(reference::e4m3_by_shift(code))),
        e2m1_by_cvt: match native {
            true => Some(e2m1(&read(&e2m1_cvt)?, reference::e2m1_by_cvt)),
            false => None,
        },
        e2m1_by_shift: e2m1(&read(&e2m1_shift)?, reference::e2m1_by_shift),
    })
}

fn hex(bits: u16) -> String {
    format!("{bits:#06x}")
}

/// Compares the output for every input with `expected` of its two codes, the low one first; `None`
/// stands for any NaN.
fn compare(words: &[u32], expected: impl Fn(usize) -> [Option<u16>; 2]) -> Comparison {
    let mut comparison = Comparison { inputs: words.len(), ..Comparison::default() };
    let mut nan = BTreeSet::new();
    for (input, &word) in words.iter().enumerate() {
        let (expected, got) = (expected(input), [word as u16, (word >> 16) as u16]);
        let fits = |at: usize| match expected[at] {
            Some(bits) => bits == got[at],
            None => f16::from_bits(got[at]).is_nan(),
        };
        nan.extend((0..2).filter(|&at| expected[at].is_none()).map(|at| got[at]));
        if fits(0) && fits(1) {
            continue;
        }
        comparison.mismatches += 1;
        comparison.first_mismatch.get_or_insert_with(|| Mismatch {
            input_hex: format!("{input:#06x}"),
            expected_hex: expected.map(|bits| bits.map(hex)),
            got_hex: got.map(hex),
        });
    }
    comparison.nan_f16_hex = nan.into_iter().map(hex).collect();
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_bit_is_found_and_named() {
        let expected = |input: usize| [Some(input as u16), None];
        let mut words: Vec<u32> = (0..8).map(|input| input | 0x7fff_0000).collect();
        let comparison = compare(&words, expected);
        assert_eq!((comparison.inputs, comparison.mismatches), (8, 0));
        assert_eq!(comparison.nan_f16_hex, ["0x7fff"]);
        words[5] ^= 1;
        words[6] = 6 | 0x7c00_0000;
        let comparison = compare(&words, expected);
        assert_eq!(comparison.mismatches, 2);
        let first = comparison.first_mismatch.unwrap();
        assert_eq!(first.input_hex, "0x0005");
        assert_eq!(first.expected_hex, [Some("0x0005".to_owned()), None]);
        assert_eq!(first.got_hex, ["0x0004", "0x7fff"]);
        assert_eq!(comparison.nan_f16_hex, ["0x7c00", "0x7fff"]);
    }

    #[test]
    fn what_was_not_written_is_a_mismatch() {
        let words = vec![u32::MAX; E2M1_PAIRS];
        let by = |input: usize| {
            [input & 15, input >> 4].map(|code| Some(reference::e2m1_by_cvt(code as u8)))
        };
        assert_eq!(compare(&words, by).mismatches, E2M1_PAIRS);
    }
}
