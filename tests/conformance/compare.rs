//! Telling what differs between two JSON values.

use serde_json::Value;

/// An error names the members that differ, where both are objects.
pub(crate) fn compare(what: &str, found: &Value, expected: &Value) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    if let (Value::Object(found), Value::Object(expected)) = (found, expected) {
        for (key, value) in expected {
            compare(key, found.get(key).unwrap_or(&Value::Null), value)?;
        }
    }
    Err(format!("{what} is {found}, expected {expected}"))
}
