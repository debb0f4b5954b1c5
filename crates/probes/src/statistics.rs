//! Medians.

/// The value in the middle, the lower one of two; 0 of none.
pub(crate) fn median<T: Copy + PartialOrd + Default>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The least and the greatest; 0 of none.
pub(crate) fn extremes<T: Copy + PartialOrd + Default>(values: &[T]) -> (T, T) {
    let mut all = values.iter().copied();
    let Some(first) = all.next() else { return (T::default(), T::default()) };
    all.fold((first, first), |(least, most), value| {
        (if value < least { value } else { least }, if value > most { value } else { most })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(median(&[5, 1, 9]), 5);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.0);
        assert_eq!(median::<u64>(&[]), 0);
        assert_eq!(extremes(&[5, 1, 9]), (1, 9));
        assert_eq!(extremes::<f64>(&[]), (0.0, 0.0));
    }
}
