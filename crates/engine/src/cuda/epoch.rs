//! The numbers of steps. A unit of the exchange holds the low 16 bits of its step's: they are never
//! zero, which is what an empty slot holds, and all slots are emptied before they come again.

/// Steps of a turn, and one that is left out.
const TURN: u32 = 1 << 16;

/// The next step's epoch; `None` after the last number.
pub(super) fn next(epoch: u32) -> Option<u32> {
    let next = epoch.checked_add(1)?;
    if next.is_multiple_of(TURN) { next.checked_add(1) } else { Some(next) }
}

/// Whether a step begins a turn: the slots must be emptied before it.
pub(super) fn begins_turn(epoch: u32) -> bool {
    epoch > TURN && epoch % TURN == 1
}

/// Steps from one epoch to a later one.
pub(super) fn steps_between(earlier: u32, later: u32) -> u32 {
    let left_out = (later / TURN).saturating_sub(earlier / TURN);
    later.saturating_sub(earlier).saturating_sub(left_out)
}

/// The epoch of the step `steps` before one; less than a turn.
pub(super) fn before(epoch: u32, steps: u32) -> u32 {
    let before = epoch.saturating_sub(steps);
    if before / TURN == epoch / TURN && !before.is_multiple_of(TURN) {
        before
    } else {
        before.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_before_is_as_many_steps_away() {
        for first in [1, 100, TURN - 40, TURN - 3, TURN - 1, TURN + 1, 3 * TURN - 7] {
            let mut last = first;
            for steps in 0..60 {
                assert_ne!(last % TURN, 0);
                assert_eq!(steps_between(first, last), steps, "{first} to {last}");
                assert_eq!(before(last, steps), first, "{steps} before {last}");
                let following = next(last).unwrap();
                // Numbers of one turn differ in their 16 bits.
                assert_eq!(begins_turn(following), following / TURN != last / TURN);
                last = following;
            }
        }
        assert_eq!((next(u32::MAX - 1), next(u32::MAX)), (Some(u32::MAX), None));
    }
}
