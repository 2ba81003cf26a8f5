//! `/metrics`: the families of a snapshot ([`usher_flowcontrol::meters`]) and usher's own, as text.
//!
//! Both come as [`Family`] values; [`text`] writes them in the format that the scraper asks for. Names, labels,
//! buckets and the spelling of bounds (`le="1"`) are kube-apiserver's.

pub mod own;
pub mod refusals;
pub(super) mod takeover;
pub mod text;

pub use text::Format;
pub use usher_flowcontrol::meters::{Child, Description, Family, Kind, Stability, Value};
