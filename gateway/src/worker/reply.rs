//! Answers that usher gives itself, in kube-apiserver's words and formats.

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use serde_json::json;
use usher_flowcontrol::reply::Reply;

use super::body::Body;

/// A failure as `metav1.Status` tells it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    /// Seconds; also sent as `Retry-After`.
    retry_after: Option<u32>,
}

/// The media type that asks for protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Failure {
    /// 400: the request makes no sense.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: not these credentials.
    pub(super) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 408: the body did not come. The connection is of no more use: the rest may still come.
    pub(super) fn slow_body() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", "Timeout: the request's body came too slowly")
    }

    /// 504: time was up before the answer began. In the words of kube-apiserver's time-out filter. parity: a whole
    /// `metav1.Status` that clients can decode, where the filter leaves out what says that it is one.
    pub(super) fn timed_out() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// 500: a mistake of ours, and the end of this request alone. In the words of kube-apiserver.
    pub(super) fn panicked() -> Self {
        let message = "This request caused usher to panic. Look in the logs for details.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// 502, 503 or 504: no answer from an apiserver.
    pub(super) fn of_upstream(code: StatusCode, message: &str) -> Self {
        let reason = match code {
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "InternalError",
        };
        let mut failure = Self::new(code, reason, message);
        if code == StatusCode::SERVICE_UNAVAILABLE {
            failure.retry_after = Some(1);
        }
        failure
    }

    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    /// The answer, in the format that `asked` (the request's headers) accepts: protobuf if it accepts nothing
    /// else, JSON otherwise.
    pub(super) fn respond(&self, asked: &HeaderMap) -> Response<Body> {
        let (body, kind) = if wants_protobuf(asked) {
            (self.protobuf(), PROTOBUF)
        } else {
            (self.json(), "application/json")
        };
        let mut response = Response::new(Body::here(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn json(&self) -> Bytes {
        let mut status = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":{},"reason":"{}""#,
            json!(self.message),
            self.reason
        );
        if let Some(seconds) = self.retry_after {
            status.push_str(&format!(r#","details":{{"retryAfterSeconds":{seconds}}}"#));
        }
        status.push_str(&format!(",\"code\":{}}}\n", self.code.as_u16()));
        status.into()
    }

    /// `runtime.Unknown` around a `metav1.Status`, behind the magic number: Kubernetes' protobuf envelope.
    fn protobuf(&self) -> Bytes {
        let mut status = Vec::new();
        field(&mut status, 1, &[0x0a, 0, 0x12, 0, 0x1a, 0]); // metadata, its strings empty
        field(&mut status, 2, b"Failure");
        field(&mut status, 3, self.message.as_bytes());
        field(&mut status, 4, self.reason.as_bytes());
        if let Some(seconds) = self.retry_after {
            let mut details = Vec::new();
            for empty in [1, 2, 3] {
                field(&mut details, empty, b""); // name, group, kind
            }
            number(&mut details, 5, seconds.into());
            field(&mut details, 6, b""); // uid
            field(&mut status, 5, &details);
        }
        number(&mut status, 6, self.code.as_u16().into());

        let mut kind = Vec::new();
        field(&mut kind, 1, b"v1");
        field(&mut kind, 2, b"Status");
        let mut envelope = b"k8s\0".to_vec();
        field(&mut envelope, 1, &kind);
        field(&mut envelope, 2, &status);
        field(&mut envelope, 3, b""); // content encoding
        field(&mut envelope, 4, b""); // content type
        envelope.into()
    }
}

/// A length-delimited field.
fn field(message: &mut Vec<u8>, tag: u64, bytes: &[u8]) {
    varint(message, tag << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// A number field.
fn number(message: &mut Vec<u8>, tag: u64, value: u64) {
    varint(message, tag << 3);
    varint(message, value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    message.push((value & 0x7f) as u8);
}

fn wants_protobuf(asked: &HeaderMap) -> bool {
    let mut kinds = asked
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|kind| kind.split(';').next().unwrap_or_default().trim())
        .peekable();
    kinds.peek().is_some() && kinds.all(|kind| kind == PROTOBUF)
}

/// Plain text.
pub(super) fn plain(status: u16, sentence: &str) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = text(status, format!("{sentence}\n").into());
    response
        .headers_mut()
        .insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

fn text(status: StatusCode, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::here(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// 400, and the connection is of no more use: whoever sent that may mean other bytes by it than we do.
pub(super) fn malformed(sentence: &str) -> Response<Body> {
    let mut response = plain(400, &format!("400 Bad Request: {sentence}"));
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// An answer in the core's exact words.
pub(super) fn of_core(reply: Reply) -> Response<Body> {
    let body = match reply.body {
        std::borrow::Cow::Borrowed(body) => Bytes::from_static(body.as_bytes()),
        std::borrow::Cow::Owned(body) => body.into(),
    };
    let mut response = Response::new(Body::here(body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests;
