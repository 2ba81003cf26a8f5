//! Load for usher: a stand-in apiserver, clients with manners, the demo made of both, and the bench beside other
//! proxies.

pub mod demo;
pub mod load;
pub mod proxy;
pub mod relay;
pub mod standin;
