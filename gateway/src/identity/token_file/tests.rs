//! Files as operators write them. What kube-apiserver v1.36.2 makes of the same lines was looked at.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<TokenFile, FileFault> {
    TokenFile::parse(Path::new("tokens.csv"), text.as_bytes())
}

fn check(text: &str, token: &str, name: &str, uid: &str, groups: &[&str]) {
    let user = parse(text).expect("a good file").user(token).expect("a known token");
    assert_eq!((user.name.as_str(), user.uid.as_str()), (name, uid));
    assert_eq!(user.groups, groups);
}

fn refuses(text: &str, problem: &str) {
    let fault = parse(text).expect_err("a bad file");
    assert!(fault.problem.contains(problem), "{fault}");
}

#[test]
fn good_lines() {
    check("t,bob,uid-bob,\"dev,ops\"\n", "t", "bob", "uid-bob", &["dev", "ops", AUTHENTICATED]);
    check("t,carl,uid-carl", "t", "carl", "uid-carl", &[AUTHENTICATED]);
    check("t,carl,uid-carl\r\n", "t", "carl", "uid-carl", &[AUTHENTICATED]);
    check("t,carl,\n", "t", "carl", "", &[AUTHENTICATED]);
    check("t,dora,uid-dora,\"\"\n", "t", "dora", "uid-dora", &["", AUTHENTICATED]);
    check("t,eve,u,\"system:authenticated,x\"", "t", "eve", "u", &[AUTHENTICATED, "x"]);
    check("t,fred,u,system:unauthenticated", "t", "fred", "u", &["system:unauthenticated"]);
    check("t,system:anonymous,u,dev", "t", "system:anonymous", "u", &["dev"]);
    check("\"t \"\"q\"\"\",gina,u,\"a, b\"", "t \"q\"", "gina", "u", &["a", " b", AUTHENTICATED]);
    check("  t, henry , u , sp\n", "  t", " henry ", " u ", &[" sp", AUTHENTICATED]);
    check("t,i,u,g,ignored,too", "t", "i", "u", &["g", AUTHENTICATED]);
    check("t,\"two\nlines\",u", "t", "two\nlines", "u", &[AUTHENTICATED]);
}

const AUTHENTICATED: &str = "system:authenticated";

#[test]
fn blank_lines_empty_tokens_and_repeated_ones() {
    check("\n\r\nt,a,1\n\nt,b,2\n,nobody,3\n", "t", "b", "2", &[AUTHENTICATED]);
    assert!(parse(",nobody,3\n").expect("a good file").user("").is_none());
    assert!(parse("").expect("an empty file knows nobody").user("t").is_none());
}

#[test]
fn bad_lines_are_named() {
    refuses("a,b,c\nt,bob\n", "line 2: at least 3 columns are needed, found 2");
    refuses("t\n", "found 1");
    refuses("t,bob,u, \"g\"\n", "line 1: a quote inside a field");
    refuses("t,bob,u,\"g\" \n", "line 1: text after a closing quote");
    refuses("a,b,c\nt,bob,u,\"g\n", "line 2: a quoted field that does not end");
    assert!(TokenFile::parse(Path::new("x"), b"\xff,a,b").expect_err("bad").problem.contains("UTF-8"));
}

#[test]
fn its_debug_form_tells_no_token() {
    let shown = format!("{:?}", parse("secret,bob,u").expect("good"));
    assert!(!shown.contains("secret") && !shown.contains("bob"), "{shown}");
}

/// Fields written by the book come back as they were.
fn written(fields: &[String]) -> String {
    fields.iter().map(|field| format!("\"{}\"", field.replace('"', "\"\""))).collect::<Vec<_>>().join(",")
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = TokenFile::parse(Path::new("x"), &bytes);
    }

    #[test]
    fn never_panics_on_near_misses(text in "[a\",\r\n ]{0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn what_is_quoted_comes_back(rows in proptest::collection::vec(
        proptest::collection::vec("[a-c\",\n ]{0,5}", 3..6), 1..5))
    {
        let text: String = rows.iter().map(|row| written(row) + "\n").collect();
        let read = records(&text).expect("by the book");
        prop_assert_eq!(read.into_iter().map(|(_, row)| row).collect::<Vec<_>>(), rows);
    }
}
