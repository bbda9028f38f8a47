//! In which queues a flow may wait: a few of many, other ones for each flow, so that a flow that floods its queues leaves
//! others a queue that is not flooded. Source: apiserver `util/shufflesharding`.

/// The queues of a flow: `size` different ones of `deck`, chosen by the flow's hash.
pub(super) fn hand(mut hash: u64, deck: usize, size: usize) -> Vec<usize> {
    let mut drawn: Vec<usize> = Vec::with_capacity(size);
    let mut sorted: Vec<usize> = Vec::with_capacity(size);
    for left in (deck.saturating_sub(size) + 1..=deck).rev() {
        let left = left as u64;
        // The card among those that are left.
        let mut card = usize::try_from(hash % left).unwrap_or_default();
        hash /= left;
        for taken in &sorted {
            if card >= *taken {
                card += 1;
            }
        }
        let at = sorted.partition_point(|taken| *taken < card);
        sorted.insert(at, card);
        drawn.push(card);
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hand_has_different_cards_of_the_deck_and_every_hand_can_be_dealt() {
        for hash in [0, 1, 12_345, u64::MAX / 3, u64::MAX] {
            let cards = hand(hash, 64, 6);
            let unlike: BTreeSet<usize> = cards.iter().copied().collect();
            assert_eq!((cards.len(), unlike.len()), (6, 6), "{cards:?}");
            assert!(cards.iter().all(|c| *c < 64));
            assert_eq!(cards, hand(hash, 64, 6));
        }
        let all: BTreeSet<Vec<usize>> = (0..12).map(|hash| hand(hash, 4, 2)).collect();
        assert_eq!(all.len(), 12);
        assert_eq!(hand(7, 1, 1), [0]);
    }
}
