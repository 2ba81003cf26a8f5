//! What a client did whose body failed on its way to an apiserver.

use std::error::Error;
use std::io::{self, ErrorKind};

use super::Glitch;
use crate::http1;
use crate::upstream::UploadFault;

impl Glitch {
    /// What is wrong with that body; `None`: nothing, its client left.
    pub(in super::super) fn of_body(fault: &UploadFault) -> Option<Self> {
        let causes = std::iter::successors(fault.source(), |cause| (*cause).source());
        causes.into_iter().find_map(|cause| {
            let broken = cause.downcast_ref::<io::Error>();
            let inner = broken.and_then(io::Error::get_ref).map_or(cause, |inner| inner);
            match inner.downcast_ref() {
                Some(http1::Fault::ExtensionsTooLong) => Some(Self::ChunkExtension),
                Some(http1::Fault::TrailersTooLarge) => Some(Self::Trailers),
                Some(http1::Fault::Truncated) => None,
                Some(_) => Some(Self::BadSyntax),
                // hyper's words for a malformed chunk, or too many extensions or trailers.
                None => broken.and_then(|error| {
                    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput)
                        .then_some(Self::BadSyntax)
                }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_from_leaving() {
        let check = |cause: Box<dyn Error + Send + Sync>, expected| {
            assert_eq!(Glitch::of_body(&UploadFault::new(cause)), expected);
        };
        check(http1::Fault::ExtensionsTooLong.into(), Some(Glitch::ChunkExtension));
        check(http1::Fault::TrailersTooLarge.into(), Some(Glitch::Trailers));
        check(http1::Fault::ChunkSize.into(), Some(Glitch::BadSyntax));
        check(http1::Fault::Truncated.into(), None);
        check(io::Error::new(ErrorKind::InvalidData, http1::Fault::ChunkEnd).into(), Some(Glitch::BadSyntax));
        check(
            io::Error::new(ErrorKind::InvalidInput, "Invalid chunk size line").into(),
            Some(Glitch::BadSyntax),
        );
        check(io::Error::from(ErrorKind::UnexpectedEof).into(), None);
        check(io::Error::from(ErrorKind::ConnectionReset).into(), None);
    }
}
