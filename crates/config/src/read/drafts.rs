//! Drafts: the result of reading the directives of sites and listeners, before the checks.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use maitred_rules::Pattern;
use maitred_rules::apps::App;
use maitred_rules::settings::{Rules, Upstream};

use crate::model::host::Host;
use crate::model::listener::Address;
use crate::model::output::Output;
use crate::model::site::{Cache, SiteLog};

/// The settings of a site's table; its pool is looked up after all pools have been read.
#[derive(Debug, Default)]
pub struct SiteDraft {
    pub(crate) hosts: Option<Vec<WithSpan<Host>>>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) index: Option<Vec<String>>,
    pub(crate) pool: Option<(String, Range<usize>)>,
    pub(crate) upstream: Option<(Upstream, Range<usize>)>,
    /// `Some(None)`: the file sets it to none.
    pub(crate) front_controller: Option<Option<String>>,
    pub(crate) max_body_size: Option<u64>,
    pub(crate) access_log: SiteLog,
    /// Its cache, if it has one.
    pub(crate) cache: Option<CacheDraft>,
    /// Its rules for paths and clients.
    pub(crate) rules: RulesDraft,
    /// Settings of its responses.
    pub(crate) output: Output,
}

/// A value with its position, which comparisons ignore.
#[derive(Debug)]
pub(crate) struct WithSpan<T>(pub(crate) T, pub(crate) Range<usize>);

/// The rules of a site, and the positions of names to look up later.
#[derive(Debug, Default)]
pub struct RulesDraft {
    pub(crate) rules: Rules,
    pub(crate) app: Option<App>,
    /// The schedule that its makers would have cron run.
    pub(crate) app_cron: bool,
    /// Pools of single paths.
    pub(crate) pools: Vec<(String, Range<usize>)>,
    pub(crate) classic: ClassicDraft,
    /// The position of each setting, by its name.
    pub(crate) spans: Vec<(&'static str, Range<usize>)>,
}

/// The settings of `classic_paths` and `classic_pool`.
#[derive(Debug, Default)]
pub(crate) struct ClassicDraft {
    pub(crate) paths: Vec<Pattern>,
    pub(crate) span: Range<usize>,
    pub(crate) pool: Option<(String, Range<usize>)>,
}

/// The settings of a site's cache, and which of the preset's settings it overrides.
#[derive(Debug)]
pub struct CacheDraft {
    pub(crate) cache: Cache,
    pub(crate) has_cookies: bool,
    pub(crate) has_public: bool,
    pub(crate) has_parameters: bool,
}

/// The settings of a FastCGI listener. Unset and invalid ones are absent.
#[derive(Debug, Clone, Default)]
pub struct ListenerDraft {
    pub(crate) listen: Option<ListenAddress>,
    pub(crate) status_listen: Option<ListenAddress>,
    pub(crate) backlog: Option<u32>,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) mode: Option<u32>,
    pub(crate) acl_users: Vec<String>,
    pub(crate) acl_groups: Vec<String>,
    pub(crate) allowed_clients: Option<Vec<IpAddr>>,
    pub(crate) limit_extensions: Option<Vec<String>>,
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) access_format: Option<String>,
    pub(crate) access_suppress_path: Vec<String>,
}

/// An address and its text in the file.
#[derive(Debug, Clone)]
pub(crate) struct ListenAddress {
    pub(crate) address: Address,
    pub(crate) text: String,
}

impl<T: PartialEq> PartialEq for WithSpan<T> {
    fn eq(&self, other: &WithSpan<T>) -> bool {
        self.0 == other.0
    }
}
