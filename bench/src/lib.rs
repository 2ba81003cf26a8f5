//! Load for usher: a stand-in apiserver, clients with manners, and the demo made of both.

pub mod demo;
pub mod load;
pub mod standin;
