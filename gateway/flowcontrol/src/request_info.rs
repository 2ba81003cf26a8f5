//! Method and URL to verb, group, resource, namespace, name; and whether the request runs long.

/// What a request is about.
#[derive(Clone, Debug)]
pub struct RequestInfo<'a>(core::marker::PhantomData<&'a ()>);
