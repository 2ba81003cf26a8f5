//! What a connection's requests have in common: mostly their user, and a few flows.

use std::sync::Arc;

use usher_flowcontrol::controller::{Class, Concerning, FlowCache, User};
use usher_flowcontrol::request_info::RequestInfo;

use super::admission::Controller;
use crate::identity::Identity;

/// What is remembered of a connection's requests for the next one's classification.
#[derive(Debug, Default)]
pub(super) struct Familiar {
    /// Flow hashes that were needed before.
    flows: FlowCache,
    /// The user of the last request, and from the second one on the schemas that concern it. A front proxy's
    /// users are another value with each request, and never get so far.
    user: Option<(Arc<Identity>, Option<Concerning>)>,
}

impl Familiar {
    /// Where a request belongs.
    pub(super) fn classify(
        &mut self,
        controller: &Controller,
        identity: &Arc<Identity>,
        info: &RequestInfo<'_>,
    ) -> Class {
        let user = User { name: &identity.name, groups: &identity.groups };
        match &mut self.user {
            Some((same, concerning)) if Arc::ptr_eq(same, identity) => {
                let _outdated = concerning.take_if(|known| !controller.is_current(known));
                let concerning = concerning.get_or_insert_with(|| controller.concerning(user));
                controller.classify_among(concerning, &mut self.flows, user, info)
            }
            other => {
                *other = Some((Arc::clone(identity), None));
                controller.classify_cached(&mut self.flows, user, info)
            }
        }
    }
}
