//! "Did you mean …?": the known word with the fewest slips of the pen.

/// The nearest of `known` to `word`, if it is near enough to be meant: at most a third of the letters differ.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.replace('_', "-").to_lowercase();
    let (distance, name) = known
        .into_iter()
        .map(|name| (distance(&word, &name.to_lowercase()), name))
        .min_by_key(|near| near.0)?;
    (distance <= name.len().max(word.len()) / 3).then_some(name)
}

/// Letters to insert, delete, replace or swap with their neighbour (optimal string alignment).
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows = vec![vec![0; to.len() + 1]; from.len() + 1];
    rows[0] = (0..=to.len()).collect();
    for (above, a) in from.iter().enumerate() {
        let row = above + 1;
        rows[row][0] = row;
        for (left, b) in to.iter().enumerate() {
            let column = left + 1;
            let replaced = rows[above][left] + usize::from(a != b);
            let mut best = replaced.min(rows[above][column] + 1).min(rows[row][left] + 1);
            if above > 0 && left > 0 && *a == to[left - 1] && from[above - 1] == *b {
                best = best.min(rows[above - 1][left - 1] + 1);
            }
            rows[row][column] = best;
        }
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn slips_are_counted() {
        for (from, to, slips) in [
            ("", "", 0),
            ("a", "", 1),
            ("kitten", "sitting", 3),
            ("upsteram", "upstream", 1),
            ("ab", "ba", 1),
        ] {
            assert_eq!(distance(from, to), slips, "{from} → {to}");
            assert_eq!(distance(to, from), slips, "{to} → {from}");
        }
    }

    #[test]
    fn only_what_may_be_meant_is_proposed() {
        let known = ["upstream", "upstream-ca-file", "secure-port"];
        assert_eq!(nearest("upsteam", known), Some("upstream"));
        assert_eq!(nearest("UPSTREAM_CA_FILE", known), Some("upstream-ca-file"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
