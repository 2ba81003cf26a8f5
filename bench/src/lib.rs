//! Load for usher: a stand-in apiserver, clients with manners, the demo made of both, the bench beside other proxies,
//! the bench of decisions beside kube-apiserver's own, the bench under far too much load, and that of the kernel's part.

mod ask;
pub mod demo;
pub mod dispatch;
pub mod load;
pub mod overload;
mod process;
pub mod proxy;
pub mod relay;
mod report;
pub mod standin;
pub mod steering;

/// What goes wrong, for people.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
