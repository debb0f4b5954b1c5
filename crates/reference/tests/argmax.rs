//! The LM head and the argmax, at every vocabulary id.

mod common;

use common::{small, tokens, weights};
use monolith_model::{Config, Tensor};
use monolith_reference::{KvFormat, Reference, ReferenceError, phases};
use ndarray::Array2;

#[test]
fn a_planted_maximum_is_found_at_every_id() {
    let config = Config { tied: false, ..small() };
    let mut weights = weights(&config, 1);
    let residual = Reference::new(&weights, KvFormat::F32).advance(&[7]).unwrap();
    let x = phases::final_norm(&weights, &residual);
    for planted in 0..config.vocab {
        let old = weights.clone();
        for (col, value) in x.iter().enumerate() {
            weights.set(Tensor::LmHead, planted, col, *value);
        }
        let out = Reference::new(&weights, KvFormat::F32).extend(&[7]).unwrap();
        assert_eq!(out.greedy, [planted as u32]);
        weights = old;
    }
}

#[test]
fn the_lowest_index_wins_every_tie() {
    let vocab = 97;
    for first in 0..vocab {
        for second in first + 1..vocab {
            let mut logits = Array2::from_elem((1, vocab), -1.0f32);
            logits[(0, first)] = 2.0;
            logits[(0, second)] = 2.0;
            assert_eq!(phases::argmax(&logits).unwrap(), [first as u32]);
        }
    }
    let none = Array2::from_elem((1, 3), f32::NEG_INFINITY);
    assert_eq!(phases::argmax(&none).unwrap(), [0]);
    let zeros = ndarray::array![[-0.0f32, 0.0]];
    assert_eq!(phases::argmax(&zeros).unwrap(), [0]);
}

#[test]
fn equal_rows_of_the_head_tie() {
    let config = Config { tied: false, ..small() };
    let weights = weights(&config, 1);
    let best = Reference::new(&weights, KvFormat::F32).extend(&[7]).unwrap().greedy[0];
    let head = monolith_model::Weights::view(&weights, Tensor::LmHead).row_f32(best as usize);
    for other in [0, config.vocab - 1] {
        let mut weights = weights.clone();
        for (col, &value) in head.iter().enumerate() {
            weights.set(Tensor::LmHead, other, col, value);
        }
        let lowest = best.min(other as u32);
        let out = Reference::new(&weights, KvFormat::F32).extend(&[7]).unwrap();
        assert_eq!(out.greedy, [lowest]);
        assert_eq!(out.logits[(0, best as usize)], out.logits[(0, other)]);
    }
}

#[test]
fn the_first_nan_is_named() {
    let mut logits = Array2::zeros((3, 50));
    logits[(1, 40)] = f32::NAN;
    logits[(1, 33)] = f32::NAN;
    logits[(2, 0)] = f32::NAN;
    let error = phases::argmax(&logits).unwrap_err();
    assert_eq!(error, ReferenceError::Nan { row: 1, index: 33 });
}

#[test]
fn a_tied_head_is_the_embedding_and_an_untied_one_is_not() {
    let config = small();
    let tied = weights(&config, 3);
    let untied = weights(&Config { tied: false, ..config.clone() }, 3);
    let tokens = tokens(&config, 4);
    let a = Reference::new(&tied, KvFormat::F32).extend(&tokens).unwrap();
    let b = Reference::new(&untied, KvFormat::F32).extend(&tokens).unwrap();
    assert!(common::relative_difference(&a.logits, &b.logits) > 0.1);

    let mut copied = untied.clone();
    let embedding = monolith_model::Weights::view(&tied, Tensor::Embedding);
    for row in 0..config.vocab {
        for (col, value) in embedding.row_f32(row).into_iter().enumerate() {
            copied.set(Tensor::LmHead, row, col, value);
        }
    }
    let c = Reference::new(&copied, KvFormat::F32).extend(&tokens).unwrap();
    assert_eq!(a.logits, c.logits);
}
