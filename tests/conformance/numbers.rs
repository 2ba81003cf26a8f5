//! Reading and comparing the numbers of the vectors.

use serde_json::Value;

/// Equal within the vectors' tolerance for computed real numbers.
pub(crate) fn close(one: f64, other: f64) -> bool {
    one == other || (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
}

/// A real number; `None` for `null`.
pub(crate) fn real(value: &Value) -> Option<f64> {
    value.as_f64()
}

/// A member that must be an integer.
pub(crate) fn integer(case: &Value, member: &str) -> Result<i64, String> {
    case[member].as_i64().ok_or_else(|| format!("{member} is not an integer: {}", case[member]))
}

/// A member that must be an integer that is not negative.
pub(crate) fn count<T: TryFrom<u64>>(case: &Value, member: &str) -> Result<T, String> {
    let number = case[member].as_u64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("{member} is not a count: {}", case[member]))
}

/// A member that must be a real number.
pub(crate) fn required(case: &Value, member: &str) -> Result<f64, String> {
    real(&case[member]).ok_or_else(|| format!("{member} is not a number: {}", case[member]))
}

/// A member that must be a string.
pub(crate) fn text<'a>(case: &'a Value, member: &str) -> Result<&'a str, String> {
    case[member].as_str().ok_or_else(|| format!("{member} is not a string: {}", case[member]))
}

/// A member that must be an unsigned integer written as a string.
pub(crate) fn decimal(case: &Value, member: &str) -> Result<u64, String> {
    text(case, member)?.parse().map_err(|error| format!("{member}: {error}"))
}

/// A member that must be a list.
pub(crate) fn list<'a>(case: &'a Value, member: &str) -> Result<&'a [Value], String> {
    case[member].as_array().map(Vec::as_slice).ok_or_else(|| format!("{member} is not a list"))
}

/// Runs every case of a file; what a case returns as an error is what differed.
pub(crate) fn each_case(
    file: &crate::File,
    run: impl Fn(&Value) -> Result<(), String>,
) -> Vec<(String, crate::Outcome)> {
    let cases = file.document["cases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let outcome = |case: &Value| match run(case) {
        Ok(()) => crate::Outcome::Agreed,
        Err(why) => crate::Outcome::Failed(why),
    };
    cases.iter().map(|case| (case["name"].as_str().unwrap_or("unnamed").to_owned(), outcome(case))).collect()
}
