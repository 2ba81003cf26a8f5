//! The grammar of label selectors: `key`, `!key`, `key=v`, `key==v`, `key!=v`, `key>1`, `key<1`,
//! `key in (a,b)`, `key notin (a,b)`, joined by commas.
//!
//! Only whether a selector is valid matters here, so nothing is kept of it. The lexer is the reference's:
//! a NUL byte ends the token before it, and where a token would begin it ends the selector.

use super::Malformed;
use super::list_options::integer;

/// Whether the selector is valid.
pub(super) fn check(selector: &[u8]) -> Result<(), Malformed> {
    let mut tokens = Tokens::of(selector);
    if tokens.peek() == Token::End {
        return Ok(());
    }
    loop {
        requirement(&mut tokens)?;
        match tokens.take() {
            Token::End => return Ok(()),
            Token::Comma => {}
            _ => return Err(Malformed),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Comma,
    Not,
    Open,
    Close,
    Equals,
    NotEquals,
    Compare,
    /// A key or a value; `in` and `notin` too, which are operators only where one is expected.
    Word(&'a [u8]),
}

/// One requirement: a key that exists or not, or a key, an operator and values.
fn requirement(tokens: &mut Tokens<'_>) -> Result<(), Malformed> {
    let negated = tokens.peek() == Token::Not;
    if negated {
        tokens.take();
    }
    let Token::Word(key) = tokens.take() else { return Err(Malformed) };
    ensure(is_label_key(key))?;
    if negated || matches!(tokens.peek(), Token::End | Token::Comma) {
        return Ok(());
    }
    match tokens.take() {
        Token::Word(b"in" | b"notin") => value_list(tokens),
        Token::Equals | Token::NotEquals => ensure(is_label_value(exact_value(tokens)?)),
        Token::Compare => {
            let value = exact_value(tokens)?;
            integer(value)?;
            ensure(is_label_value(value))
        }
        _ => Err(Malformed),
    }
}

/// One value; nothing at all is the empty value.
fn exact_value<'a>(tokens: &mut Tokens<'a>) -> Result<&'a [u8], Malformed> {
    match tokens.peek() {
        Token::End | Token::Comma => Ok(b""),
        Token::Word(value) => {
            tokens.take();
            Ok(value)
        }
        _ => Err(Malformed),
    }
}

/// Values in parentheses. Between commas, and beside a parenthesis, lies an empty one; so `()` holds one.
fn value_list(tokens: &mut Tokens<'_>) -> Result<(), Malformed> {
    if tokens.take() != Token::Open {
        return Err(Malformed);
    }
    while tokens.peek() != Token::Close {
        match tokens.take() {
            Token::Word(value) => {
                ensure(is_label_value(value))?;
                ensure(matches!(tokens.peek(), Token::Comma | Token::Close))?;
            }
            Token::Comma => {}
            _ => return Err(Malformed),
        }
    }
    tokens.take();
    Ok(())
}

/// A selector being read, with the next token at hand.
struct Tokens<'a> {
    rest: &'a [u8],
    next: Token<'a>,
}

impl<'a> Tokens<'a> {
    fn of(selector: &'a [u8]) -> Self {
        let mut tokens = Self { rest: selector, next: Token::End };
        tokens.next = tokens.lex();
        tokens
    }

    fn peek(&self) -> Token<'a> {
        self.next
    }

    /// Reads on; behind the end is the end.
    fn take(&mut self) -> Token<'a> {
        let token = self.next;
        if token != Token::End {
            self.next = self.lex();
        }
        token
    }

    fn lex(&mut self) -> Token<'a> {
        let start = self.rest.iter().position(|&byte| !is_space(byte)).unwrap_or(self.rest.len());
        let rest = &self.rest[start..];
        let (token, width) = match rest {
            [] | [0, ..] => (Token::End, 0),
            [b'=', b'=', ..] => (Token::Equals, 2),
            [b'=', ..] => (Token::Equals, 1),
            [b'!', b'=', ..] => (Token::NotEquals, 2),
            [b'!', ..] => (Token::Not, 1),
            [b'>' | b'<', ..] => (Token::Compare, 1),
            [b'(', ..] => (Token::Open, 1),
            [b')', ..] => (Token::Close, 1),
            [b',', ..] => (Token::Comma, 1),
            _ => {
                let ends = |&byte: &u8| byte == 0 || is_special(byte) || is_space(byte);
                let width = rest.iter().position(ends).unwrap_or(rest.len());
                (Token::Word(&rest[..width]), width)
            }
        };
        let rest = &rest[width..];
        self.rest = rest.strip_prefix(&[0]).unwrap_or(rest);
        token
    }
}

fn ensure(valid: bool) -> Result<(), Malformed> {
    if valid { Ok(()) } else { Err(Malformed) }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

/// Most bytes of a label's name and of its value.
const NAME_BYTES_MAX: usize = 63;
/// Most bytes of the domain before a label's name (RFC 1123).
const DOMAIN_BYTES_MAX: usize = 253;

/// A name, or a domain, a slash and a name.
fn is_label_key(key: &[u8]) -> bool {
    match key.iter().position(|&byte| byte == b'/') {
        Some(at) => is_domain(&key[..at]) && is_label_name(&key[at + 1..]),
        None => is_label_name(key),
    }
}

/// Letters, digits, `-`, `_`, `.`; a letter or digit at both ends.
fn is_label_name(name: &[u8]) -> bool {
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    name.len() <= NAME_BYTES_MAX && ends(name.first()) && ends(name.last()) && name.iter().all(inner)
}

fn is_label_value(value: &[u8]) -> bool {
    value.is_empty() || is_label_name(value)
}

/// Lower-case DNS labels joined by dots.
fn is_domain(domain: &[u8]) -> bool {
    let outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    domain.len() <= DOMAIN_BYTES_MAX
        && domain.split(|&byte| byte == b'.').all(|label| {
            label.first().is_some_and(outer)
                && label.last().is_some_and(outer)
                && label.iter().all(|byte| outer(byte) || *byte == b'-')
        })
}
