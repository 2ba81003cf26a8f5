//! What is wrong with a message.

use http::StatusCode;

/// Why a message is refused. After one, nothing more is read from its connection: where the next message begins
/// is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first line.
    #[error("malformed first line")]
    FirstLine,
    /// The request's method.
    #[error("malformed method")]
    Method,
    /// The request's target.
    #[error("malformed request target")]
    Target,
    /// The target is longer than any URI is here.
    #[error("request target too long")]
    TargetTooLong,
    /// Neither HTTP/1.1 nor HTTP/1.0.
    #[error("unknown protocol version")]
    Version,
    /// The answer's status.
    #[error("malformed status")]
    Status,
    /// A header line: its name, a space before its colon, a line folded, a bare CR, a NUL.
    #[error("malformed header line")]
    HeaderLine,
    /// More bytes than a head may have.
    #[error("head too large")]
    HeadTooLarge,
    /// More lines than a head may have.
    #[error("too many header lines")]
    TooManyLines,
    /// A `Content-Length` that is no number.
    #[error("malformed Content-Length")]
    Length,
    /// Several that differ.
    #[error("Content-Length lines that differ")]
    LengthsDiffer,
    /// Both `Content-Length` and `Transfer-Encoding`: two readers may believe different ones.
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndCoding,
    /// `Transfer-Encoding` in HTTP/1.0, which has none.
    #[error("Transfer-Encoding in HTTP/1.0")]
    CodingInHttp10,
    /// A request's `Transfer-Encoding` whose last coding is not `chunked`: nobody knows where the body ends.
    #[error("a Transfer-Encoding that does not end in chunked")]
    NotChunked,
    /// A transfer coding besides `chunked`.
    #[error("an unknown transfer coding")]
    CodingUnknown,
    /// A chunk's size.
    #[error("malformed chunk size")]
    ChunkSize,
    /// What follows a chunk's data is not CR LF.
    #[error("a chunk that does not end where it says")]
    ChunkEnd,
    /// More bytes in chunk extensions than a body may have.
    #[error("chunk extensions too long")]
    ExtensionsTooLong,
    /// A line of the trailers.
    #[error("malformed trailers")]
    Trailers,
    /// More bytes or lines of trailers than a body may have.
    #[error("trailers too large")]
    TrailersTooLarge,
    /// The connection ended before the message.
    #[error("the message is incomplete")]
    Truncated,
}

impl Fault {
    /// What to answer to a request with this fault.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::HeadTooLarge | Self::TooManyLines | Self::TrailersTooLarge => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::CodingUnknown => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}
