//! Text between double quotes, as Go's `%q` prints it.

use alloc::format;
use alloc::string::String;

/// The text in double quotes; what is not printable is escaped.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            _ if is_printable(letter) => quoted.push(letter),
            _ => quoted.push_str(&match u32::from(letter) {
                code @ ..0x80 => format!("\\x{code:02x}"),
                code @ ..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    quoted.push('"');
    quoted
}

/// Letters, marks, numbers, punctuation, symbols and the blank.
///
/// The standard library knows, but says so only through the escaping that it uses for debugging; there, a
/// combining mark is left alone where it follows another letter. It knows letters that Unicode has got
/// since version 15, that of Go; there they are escaped.
fn is_printable(letter: char) -> bool {
    if letter.is_ascii() {
        return !letter.is_ascii_control();
    }
    let mut pair = [b'a'; 5];
    let length = 1 + letter.encode_utf8(&mut pair[1..]).len();
    core::str::from_utf8(&pair[..length]).is_ok_and(|pair| pair.escape_debug().eq(pair.chars()))
}
