//! Whether a response is stored, by the headers that `.htaccess` files and the `headers` of the
//! site make of the script's for clients.

use maitred_pagecache::admit::{Admitted, NotStored};
use maitred_pagecache::cookies;
use maitred_pagecache::eligibility::Bypass;
use maitred_pagecache::headers::Field;
use maitred_rules::path::clean_path;
use maitred_rules::response_headers::HeaderPolicy;

use crate::handler::cache::fill::Fill;
use crate::handler::context::RequestContext;
use crate::handler::htaccess_response::{Directives, OwnedHeader, Unevaluated};
use crate::http::headers::Header;

impl Fill<'_> {
    /// Restricts a response by the headers that clients get. The stored headers stay the script's:
    /// each hit is changed again.
    pub(crate) fn restrict<'f>(
        &'f self,
        admitted: &mut Admitted,
        headers: impl Iterator<Item = Field<'f>>,
    ) -> Result<(), NotStored> {
        let policy = header_policy(self.context);
        let directives = self.context.directives.as_deref();
        let directives = directives.filter(|directives| directives.changes_headers());
        // Without directives, a policy that only removes headers adds no reason not to store.
        if directives.is_none() && policy.fields().next().is_none() {
            return Ok(());
        }
        let retained = headers.filter(|(name, _)| policy.keeps(name));
        let headers: Vec<Header<'_>> = retained.chain(policy.fields()).collect();
        match directives {
            None => self.restrict_by(admitted, headers.into_iter()),
            Some(directives) => {
                let changed = changed(directives, admitted.stored.status, &headers)?;
                let changed = changed.iter().map(|(name, value)| (&name[..], &value[..]));
                self.restrict_by(admitted, changed)
            }
        }
    }

    fn restrict_by<'f>(
        &self,
        admitted: &mut Admitted,
        headers: impl Iterator<Item = Field<'f>> + Clone,
    ) -> Result<(), NotStored> {
        self.cache.learn(self.of, cookies::set_by(headers.clone()));
        let has_authorization = self.context.head.header("authorization").is_some();
        admitted.restrict(&self.of.settings, has_authorization, headers)
    }
}

/// The header rules of the site for a request.
fn header_policy<'r>(context: &RequestContext<'r>) -> HeaderPolicy<'r> {
    let Some(rules) = context.site.rules.as_ref() else { return HeaderPolicy::NONE };
    let clean = clean_path(context.head.path());
    let path = clean.as_ref().map_or(&b"/"[..], |path| path.as_bytes());
    rules.header_policy(path)
}

/// The headers of a response after the changes of `.htaccess` files.
fn changed(
    directives: &Directives,
    status: u16,
    headers: &[Header<'_>],
) -> Result<Vec<OwnedHeader>, NotStored> {
    // Their conditions may take too long, or need files that another thread has to look up.
    let changed = directives.change_for_cache(status, headers);
    changed.map_err(|Unevaluated| NotStored::Bypassed(Bypass::Htaccess))
}
