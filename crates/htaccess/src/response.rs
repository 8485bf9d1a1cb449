//! Response headers by the directives: Header, Expires, and those of rewrites.

use crate::process::Scope;
use crate::regex::TooCostly;
use crate::table::Table;

/// The headers of a response as the directives change them.
#[derive(Debug, Clone, Default)]
pub struct ResponseTables {
    /// Headers of responses without an error.
    pub success: Table,
    /// Headers of all responses.
    pub always: Table,
}

impl ResponseTables {
    /// Applies `Header`: to all responses those with `always`, to those without an error the rest.
    ///
    /// # Errors
    /// As [`crate::conf::headers::HeaderRule::apply`]: the response must not be sent.
    pub fn apply(&mut self, scope: &Scope<'_>, is_error: bool) -> Result<(), TooCostly> {
        let headers = &scope.request.conf.headers;
        for rule in &headers.always {
            rule.apply(scope, &mut self.always)?;
        }
        if !is_error {
            for rule in &headers.success {
                rule.apply(scope, &mut self.success)?;
            }
        }
        // A look at another path that was given up has no result.
        scope.check_time()
    }
}
