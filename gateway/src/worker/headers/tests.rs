use super::*;
use http::Request;

fn shaped(request: http::request::Builder) -> Result<(String, Option<String>), Malformed> {
    let mut request = request.body(()).unwrap();
    origin_form(&mut request)?;
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
    Ok((request.uri().to_string(), host))
}

#[test]
fn targets_become_origin_form_with_one_host() {
    let host = |host: &str| Some(host.to_owned());
    let get = |target: &str| Request::get(target);
    assert_eq!(shaped(get("/a?b").header(HOST, "h")), Ok(("/a?b".into(), host("h"))));
    assert_eq!(shaped(get("http://H:1/a").header(HOST, "h:1")), Ok(("/a".into(), host("H:1"))));
    assert_eq!(shaped(get("https://h/a").version(Version::HTTP_2)), Ok(("/a".into(), host("h"))));
    assert_eq!(shaped(get("/a").version(Version::HTTP_10)), Ok(("/a".into(), None)));
    assert!(shaped(get("/a")).is_err(), "no Host");
    assert!(shaped(get("/a").header(HOST, "h").header(HOST, "h")).is_err(), "two");
    assert!(shaped(get("/a").header(HOST, "a b")).is_err(), "no authority");
    assert!(shaped(get("/a").header(HOST, "u@h")).is_err(), "with a user");
    assert!(shaped(get("http://a/").header(HOST, "b")).is_err(), "two servers");
    assert!(shaped(get("https://a/").version(Version::HTTP_2).header(HOST, "b")).is_err(), "two servers");
}

#[test]
fn what_is_of_the_connection_goes() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "keep-alive, X-Named"),
        ("connection", "Upgrade"),
        ("x-named", "1"),
        ("keep-alive", "timeout=1"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip, trailers"),
        ("upgrade", "websocket"),
        ("proxy-authorization", "secret"),
        ("audit-id", "kept"),
    ] {
        headers.append(name, HeaderValue::from_static(value));
    }
    let asked = strip_request(&mut headers, Version::HTTP_11);
    assert_eq!(asked.upgrade, Some(HeaderValue::from_static("websocket")));
    assert_eq!(headers.len(), 2);
    assert_eq!(
        (&headers["te"], &headers["audit-id"]),
        (&"trailers".parse().unwrap(), &"kept".parse().unwrap())
    );
}

#[test]
fn an_upgrade_that_the_connection_does_not_name_is_none() {
    let mut headers = HeaderMap::new();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    assert!(strip_request(&mut headers, Version::HTTP_11).upgrade.is_none());
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    assert!(strip_request(&mut headers.clone(), Version::HTTP_10).upgrade.is_none());
}

#[test]
fn bodies_are_chunked_once_or_have_a_length() {
    let framed = |codings: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for coding in codings {
            headers.append(TRANSFER_ENCODING, HeaderValue::from_static(coding));
        }
        framing(&headers).is_ok()
    };
    assert!(framed(&[]) && framed(&["chunked"]) && framed(&["Chunked"]));
    for odd in [&["gzip, chunked"][..], &["chunked, chunked"], &["chunked", "chunked"], &["identity"], &[""]]
    {
        assert!(!framed(odd), "{odd:?}");
    }
}

#[test]
fn what_no_answer_repeats_is_never_indexed_and_the_rest_is() {
    let mut headers = HeaderMap::new();
    for name in ["date", "audit-id", "x-kubernetes-pf-flowschema-uid"] {
        headers.insert(name, HeaderValue::from_static("value"));
    }
    keep_out_of_table(&mut headers);
    let never = |name: &str| (headers[name].is_sensitive(), headers[name].as_bytes());
    assert_eq!((never("date"), never("audit-id")), ((true, &b"value"[..]), (true, &b"value"[..])));
    assert!(!never("x-kubernetes-pf-flowschema-uid").0, "every answer has the same");
}

#[test]
fn an_answer_over_http2_keeps_nothing_that_h2_refuses() {
    let names =
        ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade", "x-hop"];
    let answer = || {
        let lines = names.map(|name| (name, if name == "connection" { "x-hop" } else { "x" }));
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    };
    let mut headers = answer();
    strip_response(&mut headers, Version::HTTP_2);
    assert!(headers.is_empty(), "{headers:?}");
    let mut headers = answer();
    strip_response(&mut headers, Version::HTTP_11);
    assert_eq!(headers.into_iter().collect::<Vec<_>>(), [(Some(TE), HeaderValue::from_static("x"))]);
}
