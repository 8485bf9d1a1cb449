//! Evaluates the rules of a site: limits, rewrites, authentication and denials, in this order. The
//! result is a decision, which `handler/request.rs` carries out.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use maitred_rules::SiteRules;
use maitred_rules::networks::client_key;
use maitred_rules::path::{CleanPath, clean_path};
use maitred_rules::site_rules::{Refusal, Rewritten, RuleRequest, Verdict};

use crate::handler::context::RequestContext;
use crate::handler::decision::Decision;
use crate::handler::respond::TextResponse;
use crate::handler::route::{route, special};
use crate::handler::route_rules::{PathTarget, RouteChecks, RouteRules, is_by_htaccess, target_of};
use crate::handler::{htaccess, refusal};
use crate::http::hosts::host_name;
use crate::pool::queue::Priority;
use crate::services::Thread;
use crate::site::auth::{Outcome, UsersFile};
use crate::site::listing;
use crate::site::rate_limits::RunningRequest;

/// The response body for a client that exceeds a `rate_limit`.
const TOO_OFTEN: &str = "Too many requests.";

/// The response body for a client that exceeds the `connection_limit`.
const TOO_MANY: &str = "Too many requests at a time.";

/// The rules of a site, for one request.
pub struct RulesCheck<'r> {
    /// The rules.
    pub rules: &'r SiteRules,
    /// The thread that serves the request.
    pub thread: &'r Arc<Thread>,
    /// The request: as sent by its client at first, then as rewritten.
    pub context: RequestContext<'r>,
}

impl<'r> RulesCheck<'r> {
    /// Counts the request towards the `connection_limit` for as long as the result lives.
    ///
    /// # Errors
    /// The response to a client that exceeds the limit.
    pub fn enter(&self) -> Result<Option<RunningRequest<'r>>, TextResponse> {
        let limits = &self.context.site.limits;
        let running = limits.enter(client_key(self.context.target.peer.ip()));
        running.map_err(|()| too_many(Duration::from_secs(1), TOO_MANY))
    }

    /// The decision on a request; `path` is decoded and normalised.
    ///
    /// # Errors
    /// The response to a request that no file, script or server gets.
    pub async fn decide(&mut self, path: &CleanPath<'_>) -> Result<Decision<'r>, TextResponse> {
        self.check_limits(&self.rules.rate_limits(path.as_bytes()))?;
        let asked = RuleRequest {
            path,
            query: self.context.head.query(),
            scheme: if self.context.target.is_https { "https" } else { "http" },
            host: host_name(self.context.target.host),
            client: self.context.target.peer.ip(),
        };
        let serve = match self.rules.decide(&asked) {
            Verdict::Redirect { status, location } => {
                return Err(TextResponse::redirect(status, &location));
            }
            Verdict::Refuse(refusal) => return Err(self.refused(refusal)),
            Verdict::Serve(serve) => serve,
        };
        let mut path = Some(path.clone());
        if let Some(Rewritten { path: to, query }) = serve.rewritten {
            path = clean_path(&to).ok().map(CleanPath::into_owned);
            (self.context.path, self.context.query) = (to.into(), query.map(Cow::Owned));
            self.check_limits(&self.route_rules(&self.context.path).limits_of_rewritten())?;
        }
        self.authenticate(&serve.auth, &[]).await?;
        if let Some(path) = path {
            self.apply_path_settings(&path);
            if let Some(decision) = self.decide_by_path(&path).await {
                return Ok(decision);
            }
        }
        let evaluated = self.context.path.clone();
        let decision = self.route().await;
        let rules = self.route_rules(&evaluated);
        let (served, error) = match &decision {
            Decision::ErrorPage { status, page } => (&**page, Some(*status)),
            other => (other, None),
        };
        let RouteChecks { limits, admitted } = match served {
            Decision::File(entry) => rules.of_file(entry),
            Decision::Script(script) => rules.of_script(script),
            // The listing of another folder.
            Decision::Respond(_) if self.context.path != evaluated => rules.of_listing(),
            _ => return Ok(decision),
        };
        if let Some(status) = error {
            let is_known = |needed: &usize| serve.auth.contains(&Some(*needed));
            let is_open = admitted.is_ok_and(|needed| needed.iter().flatten().all(is_known));
            // An error is no way to what is denied.
            let bare = || Decision::Respond(TextResponse::new(status, ""));
            return Ok(if is_open { decision } else { bare() });
        }
        self.check_limits(&limits)?;
        let needed = admitted.map_err(|refusal| self.refused(refusal))?;
        self.authenticate(&needed, &serve.auth).await?;
        Ok(decision)
    }

    /// The route of the path: by the `.htaccess` files of the site, if they apply.
    async fn route(&mut self) -> Decision<'r> {
        let special = special(&self.context, self.thread);
        if let Some(decision) = special {
            return decision;
        }
        if !self.context.site.has_htaccess() {
            return route(&self.context, self.thread).await;
        }
        if let Some(decision) = htaccess::cached(&mut self.context) {
            return decision;
        }
        let path = self.context.path.clone().into_owned();
        match clean_path(&path) {
            Ok(path) if !is_by_htaccess(self.rules, &path) => {
                route(&self.context, self.thread).await
            }
            Ok(path) => Box::pin(htaccess::route(&mut self.context, self.thread, &path)).await,
            Err(refused) => refusal::of_path(&refused).into(),
        }
    }

    fn route_rules<'s>(&'s self, evaluated: &'s str) -> RouteRules<'s> {
        RouteRules {
            site: &self.context.site.settings,
            rules: self.rules,
            client: self.context.target.peer.ip(),
            requested: self.context.head.path(),
            evaluated,
            path: &self.context.path,
        }
    }

    fn refused(&self, refusal: Refusal) -> TextResponse {
        refusal::of_rule(&self.context, refusal, &self.thread.shared.troubles)
    }

    /// Counts the request towards the rate limits at these indexes, up to the first that is
    /// exceeded.
    fn check_limits(&self, limits: &[usize]) -> Result<(), TextResponse> {
        let client = client_key(self.context.target.peer.ip());
        let rates = &self.context.site.limits.rates;
        for limit in limits.iter().filter_map(|limit| rates.get(*limit)) {
            let taken = limit.take(client, self.thread.shared.limits.now());
            taken.map_err(|wait| too_many(wait, TOO_OFTEN))?;
        }
        Ok(())
    }

    /// Checks that the request has a user of each needed `basic_auth`, except those at the indexes
    /// that have been `checked` already.
    async fn authenticate(
        &mut self,
        needed: &[Option<usize>],
        checked: &[Option<usize>],
    ) -> Result<(), TextResponse> {
        for auth in needed.iter().flatten() {
            if !checked.contains(&Some(*auth)) {
                self.check_user(*auth).await?;
            }
            self.context.has_user = true;
        }
        Ok(())
    }

    /// Checks that the request has a user of the `basic_auth` at this index.
    async fn check_user(&self, auth: usize) -> Result<(), TextResponse> {
        let Some(auth) = self.rules.settings().basic_auth.get(auth) else {
            return Ok(());
        };
        let porter = &self.thread.shared.porter;
        let users = UsersFile::OfSetting(&auth.users);
        let client = self.context.target.peer.ip();
        Err(match porter.admit(self.context.head, users, client, &self.context.site.tenant).await {
            Outcome::Granted => return Ok(()),
            Outcome::Unknown => {
                let realm = format!("Basic realm=\"{}\", charset=\"UTF-8\"", auth.realm);
                let response = TextResponse::new(401, "A name and a password are needed.");
                response.with("WWW-Authenticate", &realm)
            }
            Outcome::Busy => {
                let response = TextResponse::new(503, "Too many passwords are being checked.");
                response.with("Retry-After", "1")
            }
            Outcome::Late | Outcome::NoUsers => {
                TextResponse::new(503, "Authentication is unavailable.")
            }
        })
    }

    /// Applies the `paths` settings: pool, largest body and queue priority.
    fn apply_path_settings(&mut self, path: &CleanPath<'_>) {
        let context = &mut self.context;
        let settings = self.rules.path_settings(path.as_bytes());
        context.backend = context.site.backend_of(settings.pool);
        context.max_body_size = settings.max_body_size.unwrap_or(context.max_body_size);
        if settings.urgent == Some(true) {
            context.lane = Priority::Urgent;
        }
    }

    /// What serves a path that is not looked up in the document root.
    async fn decide_by_path(&self, path: &CleanPath<'_>) -> Option<Decision<'r>> {
        let site = self.context.site;
        match target_of(self.rules, path, self.context.head.method()) {
            PathTarget::Proxy(server) => Some(Decision::Proxy {
                server: site.proxies.get(server)?,
                path: path.as_bytes().to_vec(),
            }),
            PathTarget::Listing => {
                let listing = match listing::read(site, path, |_| false).await {
                    Ok(listing) => listing?,
                    Err(refused) => return Some(refusal::of_path(&refused).into()),
                };
                let page = listing::page(listing, path.as_bytes()).await?;
                Some(TextResponse::listing(page).into())
            }
            PathTarget::Files => None,
        }
    }
}

/// The response to a client that has to wait this long.
fn too_many(wait: Duration, reason: &'static str) -> TextResponse {
    let seconds = wait.as_secs_f64().ceil().max(1.0).to_string();
    TextResponse::new(429, reason).with("Retry-After", &seconds)
}
