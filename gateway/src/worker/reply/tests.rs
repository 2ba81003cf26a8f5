use super::*;

fn bytes(response: Response<Body>) -> Bytes {
    let Body::Here(bytes) = response.into_body() else { panic!("not ours") };
    bytes.unwrap_or_default()
}

#[test]
fn a_failure_is_a_status_in_json() {
    let response = Failure::bad_request("what \"is\" that?").respond(&HeaderMap::new());
    assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
    let expected = concat!(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"what \"is\" that?","reason":"BadRequest","code":400}"#,
        "\n"
    );
    assert_eq!(bytes(response), expected);
}

#[test]
fn or_in_protobuf_if_nothing_else_is_accepted() {
    let mut asked = HeaderMap::new();
    asked.insert(ACCEPT, HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
    let response = Failure::of_upstream(StatusCode::SERVICE_UNAVAILABLE, "away").respond(&asked);
    assert_eq!(response.headers()[RETRY_AFTER], "1");
    let expected = [
        &b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x3a"[..],
        b"\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x04away\x22\x12ServiceUnavailable",
        b"\x2a\x0a\x0a\0\x12\0\x1a\0\x28\x01\x32\0\x30\xf7\x03\x1a\0\x22\0",
    ]
    .concat();
    assert_eq!(bytes(response), expected);
    asked.append(ACCEPT, HeaderValue::from_static("*/*"));
    assert!(!wants_protobuf(&asked));
}
