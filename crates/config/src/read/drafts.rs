//! What the directives of sites and listeners are read into, before it is checked.

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

/// A site as far as its own table says: which pool runs it is known when all pools are.
#[derive(Debug, Default)]
pub struct SiteDraft {
    pub(crate) hosts: Option<Vec<Placed<Host>>>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) index: Option<Vec<String>>,
    pub(crate) pool: Option<(String, Range<usize>)>,
    pub(crate) upstream: Option<(Upstream, Range<usize>)>,
    /// `Some(None)`: the file says that there is none.
    pub(crate) front_controller: Option<Option<String>>,
    pub(crate) max_body_size: Option<u64>,
    pub(crate) access_log: SiteLog,
    /// What it says about its cache, if it has one.
    pub(crate) cache: Option<CacheDraft>,
    /// What it says about paths and clients.
    pub(crate) rules: RulesDraft,
    /// How its answers leave.
    pub(crate) output: Output,
}

/// A value with its place, which does not count when two are compared.
#[derive(Debug)]
pub(crate) struct Placed<T>(pub(crate) T, pub(crate) Range<usize>);

/// What a site says about paths and clients, and where it names what is known later.
#[derive(Debug, Default)]
pub struct RulesDraft {
    pub(crate) rules: Rules,
    pub(crate) app: Option<App>,
    /// Pools that some paths name.
    pub(crate) pools: Vec<(String, Range<usize>)>,
    pub(crate) classic: ClassicDraft,
    /// Each setting's place, by its name.
    pub(crate) spans: Vec<(&'static str, Range<usize>)>,
}

/// What a site says about such paths.
#[derive(Debug, Default)]
pub(crate) struct ClassicDraft {
    pub(crate) paths: Vec<Pattern>,
    pub(crate) span: Range<usize>,
    pub(crate) pool: Option<(String, Range<usize>)>,
}

/// The settings of a site's cache, and which of those that a preset has are the site's own.
#[derive(Debug)]
pub struct CacheDraft {
    pub(crate) cache: Cache,
    pub(crate) has_cookies: bool,
    pub(crate) has_public: bool,
    pub(crate) has_parameters: bool,
}

/// What the settings of a door are read into. What is not set, or wrong, is not there.
#[derive(Debug, Clone, Default)]
pub struct DoorDraft {
    pub(crate) listen: Option<Asked>,
    pub(crate) status_listen: Option<Asked>,
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

/// An address, and how it is written.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) address: Address,
    pub(crate) text: String,
}

impl<T: PartialEq> PartialEq for Placed<T> {
    fn eq(&self, other: &Placed<T>) -> bool {
        self.0 == other.0
    }
}
