//! Finds the name that a mistyped one stands for.

use strsim::damerau_levenshtein;

/// Returns the most similar name, if it is similar enough to suggest.
pub fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let closest = known.min_by_key(|one| damerau_levenshtein(one, name))?;
    let distance = damerau_levenshtein(closest, name);
    (distance <= name.len().max(closest.len()) / 2).then_some(closest)
}
