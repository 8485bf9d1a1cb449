//! A site, in one thread: the meaning of its paths, and the backends of its scripts.

pub(crate) mod acme_challenges;
pub mod auth;
pub(crate) mod checked_files;
pub(crate) mod compress;
pub(crate) mod conf_memory;
pub(crate) mod directory_confs;
pub(crate) mod directory_watch;
pub(crate) mod document_root;
pub mod evaluation_time;
pub(crate) mod fastcgi_listener;
pub(crate) mod fastcgi_servers;
pub mod files;
pub(crate) mod listing;
pub(crate) mod logged_paths;
pub mod name_lookups;
pub(crate) mod openat;
pub(crate) mod password_turns;
pub(crate) mod rate_limits;
pub(crate) mod refused_links;
pub mod resolver;
pub(crate) mod resolver_table;
pub(crate) mod sendfile_roots;
pub(crate) mod sites;
pub(crate) mod users_files;
pub(crate) mod verdict_table;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use maitred_config::{Config, Destination, Mode};
use maitred_rules::SiteRules;
use maitred_rules::content_encoding::ContentEncoding;
use maitred_rules::path::{CleanPath, clean_path};
use maitred_rules::settings::Rules;

use crate::backend::Backend;
use crate::cache::SiteCache;
use crate::http::spool_folder::SpoolFolder;
use crate::logging::site_log::SiteLog;
use crate::proxy::server::Server;
use crate::runtime::lookup_turns::{AllTurns, Tenant};
use crate::runtime::thread;
use crate::site::compress::Compression;
use crate::site::conf_memory::{CommonMemory, ConfMemory};
use crate::site::directory_confs::{DirectoryConfs, SiteWorld};
use crate::site::evaluation_time::EvaluationTime;
use crate::site::fastcgi_servers::FastcgiServers;
use crate::site::files::StaticFile;
use crate::site::rate_limits::SiteLimits;
use crate::site::resolver::{
    Folder, Refused, Resolver, RootVersion, Route, SiteFiles, TableLimits,
};
use crate::site::sendfile_roots::SendfileRoots;
use crate::site::sites::Resources;

/// A folder besides the root: the prefix of its paths, and their resolver.
type Alias = (String, Mutex<Resolver>);

/// A site, in one thread.
pub struct Site {
    /// Its settings.
    pub settings: maitred_config::Site,
    /// Folder for temporary files of large bodies and responses.
    pub spool: SpoolFolder,
    /// The backend of its scripts.
    pub backend: Backend,
    /// Its rules for paths and clients; none: it has no rules.
    pub rules: Option<SiteRules>,
    /// Its page cache, if any.
    pub cache: Option<SiteCache>,
    /// The state of its rate limits.
    pub limits: SiteLimits,
    /// The log of its requests.
    pub access_log: SiteLog,
    /// The backends of some paths, by the name of the pool.
    backends: HashMap<String, Backend>,
    /// The name of its `classic_pool`, if it has one.
    classic_pool: Option<String>,
    resolver: Mutex<Resolver>,
    /// Its `.htaccess` files, if they apply.
    htaccess: Option<Mutex<DirectoryConfs>>,
    /// Those are its only rules.
    has_htaccess_alone: bool,
    /// Its compression, if any.
    pub compression: Option<Arc<Compression>>,
    /// Directories with files that its scripts may send.
    pub sendfile: SendfileRoots,
    /// Folders besides the root, by the prefix of their paths; the longest first.
    aliases: Vec<Alias>,
    /// The upstream servers of its `proxy`, in their order.
    pub proxies: Vec<Server>,
    /// The turns of lookups in its folders.
    pub tenant: Arc<Tenant>,
    /// The tenants of the pools of some paths, which count as served.
    other_tenants: Vec<Arc<Tenant>>,
    /// The FastCGI servers of the configuration.
    pub servers: Arc<FastcgiServers>,
}

/// What the sites of one thread share.
#[derive(Clone, Copy)]
pub(crate) struct SharedBySites<'a> {
    /// The limits of each of their folders.
    pub limits: TableLimits,
    /// The memory for what `.htaccess` files say.
    pub conf_memory: &'a CommonMemory,
    /// The FastCGI servers of the configuration.
    pub servers: &'a Arc<FastcgiServers>,
}

impl Site {
    /// A site with these settings. Its folders are opened later ([`Site::open_roots`]).
    ///
    /// # Errors
    /// One sentence: its rules are wrong, or its pool is not configured.
    pub(crate) fn open(
        config: &Config,
        resources: Resources<'_>,
        settings: &maitred_config::Site,
        shared: SharedBySites<'_>,
    ) -> Result<Site, String> {
        let SharedBySites { limits, conf_memory, servers } = shared;
        let (chroot, other_chroots) = chroots(config, settings);
        let files = SiteFiles {
            chroot,
            other_chroots,
            root: settings.root.clone(),
            index: settings.index.clone(),
            // `.htaccess` files say what serves paths without a file.
            front_controller: settings
                .front_controller
                .clone()
                .filter(|_| !settings.rules.htaccess),
            prefix: String::new(),
            front: rustix::process::geteuid().as_raw(),
        };
        let root = settings.root.display();
        let compression = Compression::of(&settings.output).map(Arc::new);
        let tenant = resources.lookups.of(&tenant_of(config, settings));
        let open = |files| open_files(files, &tenant, compression.clone(), limits);
        let aliases = open_aliases(settings, &files, open);
        let open = |files| open_files(files, &tenant, None, limits);
        let sendfile = SendfileRoots::open(&settings.output.sendfile_roots, &files, open);
        let pool = |name: &str| {
            let pool = config
                .pool(name)
                .ok_or_else(|| format!("the site at {root} names a pool that does not exist"))?;
            Ok::<_, String>(Backend::Pool(resources.pools.named(&Arc::new(pool.clone()))))
        };
        let backend = match &settings.destination {
            Destination::Upstream(upstream) => {
                let log =
                    resources.upstream_logs.of(crate::backend::fastcgi_upstream::name(upstream));
                Backend::Upstream(upstream.clone(), log)
            }
            Destination::Pool(name) => pool(name)?,
        };
        let others = settings.rules.paths.iter().filter_map(|path| path.pool.as_ref());
        let backends = others.map(|name| Ok((name.clone(), pool(name)?)));
        Ok(Site {
            settings: settings.clone(),
            spool: resources.spool_folder(config),
            rules: compile_rules(settings)?,
            cache: SiteCache::of(config, settings, resources.cache),
            limits: resources.limits.of(settings),
            access_log: SiteLog::of(&settings.access_log, resources.pool_access_logs),
            backends: backends.collect::<Result<_, String>>()?,
            classic_pool: classic_pool_of(config, settings).cloned(),
            backend,
            resolver: open_files(files, &tenant, compression.clone(), limits),
            htaccess: settings.rules.htaccess.then(|| {
                let memory = ConfMemory::new(conf_memory);
                let (rules, index) = (&settings.rules, &settings.index);
                Mutex::new(DirectoryConfs::new(rules, index, memory, limits.decisions))
            }),
            has_htaccess_alone: settings.rules.are_htaccess_alone(),
            compression,
            sendfile,
            aliases,
            proxies: Server::all(&settings.rules.proxy, resources.proxies),
            tenant,
            servers: Arc::clone(servers),
            other_tenants: other_tenants(config, settings, resources.lookups).collect(),
        })
    }

    /// Runs `work` on the site's folders, which waits for no lookup: it runs again after each one
    /// that it needs ([`name_lookups::run`]).
    ///
    /// # Errors
    /// When a lookup takes too long, or there are too many.
    pub async fn look_up<T>(&self, work: impl FnMut() -> T) -> Result<T, Refused> {
        name_lookups::run(&self.tenant, work).await
    }

    /// Opens its document root and its other folders, so that no request has to, and a root that is
    /// refused is logged.
    pub async fn open_roots(&self) {
        let aliases = self.aliases.iter().map(|(_, resolver)| resolver);
        for resolver in aliases.chain([&self.resolver]).chain(self.sendfile.resolvers()) {
            let _ = self.look_up(|| with(resolver, Resolver::follow_root)).await;
        }
    }

    /// The file, script or redirect of a path.
    pub fn resolve(&self, path: &str, query: Option<&str>) -> Route {
        if !self.aliases.is_empty()
            && let Ok(clean) = clean_path(path)
            && let Some((resolver, rest)) = self.alias(&clean)
        {
            if rest.is_empty() {
                return redirect_to_folder(&clean, query);
            }
            let rest = encode_rest(&clean, rest);
            return with(resolver, |resolver| resolver.resolve(&rest, query));
        }
        with(&self.resolver, |resolver| resolver.resolve(path, query))
    }

    /// The route for a path with a refused file ([`Resolver::in_place_of`]).
    pub fn in_place_of(&self, path: &str, refused: &Refused) -> Option<Route> {
        let clean = clean_path(path).ok()?;
        let alias = self.alias(&clean);
        let resolver = alias.map_or(&self.resolver, |(resolver, _)| resolver);
        with(resolver, |resolver| resolver.in_place_of(refused))
    }

    /// The precompressed variant of a path's file.
    pub fn sibling(
        &self,
        path: &str,
        entry: &StaticFile,
        coding: ContentEncoding,
    ) -> Option<Arc<StaticFile>> {
        let clean = match self.aliases.is_empty() {
            true => None,
            false => clean_path(path).ok(),
        };
        let alias = clean.as_ref().and_then(|clean| self.alias(clean));
        let resolver = alias.map_or(&self.resolver, |(resolver, _)| resolver);
        with(resolver, |resolver| resolver.sibling(entry, coding))
    }

    /// Closes the files that are held open and were not requested since the previous call.
    pub fn close_idle(&self) {
        let aliases = self.aliases.iter().map(|(_, resolver)| resolver);
        for resolver in aliases.chain([&self.resolver]) {
            with(resolver, Resolver::close_idle);
        }
        self.sendfile.close_idle();
    }

    /// The directory at a path, if it has no index file.
    pub fn open_folder(&self, path: &CleanPath<'_>) -> Option<Folder> {
        let open = |resolver: &Mutex<Resolver>, path: &CleanPath<'_>| {
            with(resolver, |resolver| {
                resolver.refresh(thread::arrival()).ok()?;
                resolver.open_folder(path)
            })
        };
        let Some((resolver, rest)) = self.alias(path) else {
            return open(&self.resolver, path);
        };
        let rest = encode_rest(path, rest);
        open(resolver, &clean_path(&rest).ok()?)
    }

    /// Checks that the document root is the one whose `.htaccess` files were evaluated: one that a
    /// deployment has replaced meanwhile may have lost them before.
    ///
    /// # Errors
    /// When it is another one, or cannot be opened.
    pub async fn check_root(&self, evaluated: RootVersion) -> Result<(), Refused> {
        if self.htaccess.is_none() {
            return Ok(());
        }
        let check = || {
            with(&self.resolver, |resolver| {
                resolver.refresh(0)?;
                evaluated.check(resolver)
            })
        };
        self.look_up(check).await?
    }

    /// The document root without symbolic links, as of the last evaluation.
    pub fn real_root(&self) -> PathBuf {
        with(&self.resolver, |resolver| PathBuf::from(OsStr::from_bytes(resolver.real_root())))
    }

    /// Whether paths lead to folders besides the root.
    pub fn has_aliases(&self) -> bool {
        !self.aliases.is_empty()
    }

    /// Whether `.htaccess` files apply.
    pub fn has_htaccess(&self) -> bool {
        self.htaccess.is_some()
    }

    /// Whether `.htaccess` files apply, and no other rules.
    pub fn has_htaccess_alone(&self) -> bool {
        self.has_htaccess_alone
    }

    /// As [`Site::with_htaccess`], with each lookup that `work` needs.
    ///
    /// # Errors
    /// As [`Site::with_htaccess`], and when a lookup takes too long.
    pub async fn evaluate<T>(
        &self,
        mut work: impl FnMut(&SiteWorld<'_>, &Resolver) -> T,
    ) -> Result<Option<T>, Refused> {
        self.look_up(|| self.with_htaccess(&mut work)).await?
    }

    /// Evaluates `.htaccess` files: `work` gets the document root as they see it, and its files.
    ///
    /// # Errors
    /// When the document root cannot be opened, or it is not known whether a path exists: no
    /// descriptor is free, or the file system fails.
    pub fn with_htaccess<T>(
        &self,
        work: impl FnOnce(&SiteWorld<'_>, &Resolver) -> T,
    ) -> Result<Option<T>, Refused> {
        self.with_root(|resolver| resolver.refresh(thread::arrival()), work)
    }

    /// As [`Site::with_htaccess`], to find a cached decision: its paths are watched by their names,
    /// which a root that has moved away has lost. None as well if that needs a lookup.
    ///
    /// # Errors
    /// As [`Site::with_htaccess`].
    pub fn with_cached_htaccess<T>(
        &self,
        work: impl FnOnce(&SiteWorld<'_>, &Resolver) -> T,
    ) -> Result<Option<T>, Refused> {
        name_lookups::if_cached(|| self.with_root(Resolver::follow_link, work)).unwrap_or(Ok(None))
    }

    fn with_root<T>(
        &self,
        refresh: impl FnOnce(&mut Resolver) -> Result<(), Refused>,
        work: impl FnOnce(&SiteWorld<'_>, &Resolver) -> T,
    ) -> Result<Option<T>, Refused> {
        let Some(confs) = &self.htaccess else { return Ok(None) };
        let mut confs = confs.lock().unwrap_or_else(PoisonError::into_inner);
        with(&self.resolver, |resolver| {
            refresh(resolver)?;
            // Access depends on them: nothing older than the request will do.
            confs.begin(resolver, thread::arrival());
            let world = SiteWorld {
                resolver,
                confs: RefCell::new(&mut confs),
                paths: RefCell::default(),
                failure: Cell::default(),
                time: EvaluationTime::start(),
            };
            let result = work(&world, resolver);
            // A decision without knowledge of the files would be a wrong one.
            match world.failure.get() {
                Some(error) => Err(resolver::refusal(error)),
                None => Ok(Some(result)),
            }
        })
    }

    /// The backend of this pool, or the site's own backend.
    pub fn backend_of(&self, pool: Option<&str>) -> &Backend {
        let named = pool.and_then(|pool| self.backends.get(pool));
        named.unwrap_or(&self.backend)
    }

    /// The backend for requests that a booted application does not serve itself; none: the site has
    /// no `classic_pool`.
    pub fn classic_backend(&self) -> Option<&Backend> {
        self.classic_pool.as_ref().and_then(|name| self.backends.get(name))
    }

    /// Whether the site, and its pools for some paths, are of the same tenants in a configuration.
    pub fn has_tenants_of(&self, config: &Config, lookups: &AllTurns) -> bool {
        let others = other_tenants(config, &self.settings, lookups);
        Arc::ptr_eq(&self.tenant, &lookups.of(&tenant_of(config, &self.settings)))
            && others.map(|one| Arc::as_ptr(&one)).eq(self.other_tenants.iter().map(Arc::as_ptr))
    }

    /// Whether the modes of pools are those that the site was opened with.
    pub fn has_modes_of(&self, config: &Config) -> bool {
        self.classic_pool.as_ref() == classic_pool_of(config, &self.settings)
    }

    /// Whether the users of its pools are those that the site was opened with.
    pub fn has_users_of(&self, config: &Config) -> bool {
        self.backends.values().chain([&self.backend]).all(|backend| match backend {
            Backend::Pool(pool) => {
                config.pool(&pool.name).is_some_and(|settings| settings.runs_as == pool.user)
            }
            Backend::Upstream(..) => true,
        })
    }

    /// The folder besides the root that contains a path, and the rest of the path.
    fn alias<'p>(&self, path: &'p CleanPath<'_>) -> Option<(&Mutex<Resolver>, &'p [u8])> {
        let mut aliases = self.aliases.iter();
        aliases.find_map(|(alias, resolver)| Some((resolver, path.in_alias(alias)?)))
    }
}

/// The pool for requests that a booted application of this site does not serve itself.
fn classic_pool_of<'c>(config: &Config, settings: &'c maitred_config::Site) -> Option<&'c String> {
    let is_classic =
        |name: &&String| config.pool(name).is_some_and(|pool| pool.mode == Mode::Classic);
    let Destination::Pool(own) = &settings.destination else { return None };
    let mut others = settings.rules.paths.iter().filter_map(|path| path.pool.as_ref());
    others.find(is_classic).filter(|_| !is_classic(&own))
}

/// The name of the tenant whose folders a site has: that of its pool. With an upstream server, the
/// document root stands for it.
fn tenant_of(config: &Config, settings: &maitred_config::Site) -> String {
    let pool = match &settings.destination {
        Destination::Pool(name) => config.pool(name),
        Destination::Upstream(_) => return format!("root {}", settings.root.display()),
    };
    pool.map_or_else(String::new, tenant_of_pool)
}

/// The tenants of a site's pools for some paths.
fn other_tenants(
    config: &Config,
    settings: &maitred_config::Site,
    lookups: &AllTurns,
) -> impl Iterator<Item = Arc<Tenant>> {
    let pools = settings.rules.paths.iter().filter_map(|path| config.pool(path.pool.as_ref()?));
    pools.map(|pool| lookups.of(&tenant_of_pool(pool)))
}

/// The name of the tenant of a pool: its user, or the pool itself if its document root decides on
/// the user.
fn tenant_of_pool(pool: &maitred_config::Pool) -> String {
    match &pool.user {
        Some(user) => format!("user {user}"),
        None => format!("pool {}", pool.name),
    }
}

/// The redirect from the path of an alias without its slash.
pub fn redirect_to_folder(path: &CleanPath<'_>, query: Option<&str>) -> Route {
    let folder = maitred_rules::path::encode_path(path.as_bytes());
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Route::RedirectSlash(format!("{folder}/{query}"))
}

/// The rest of a path behind an alias as a URL's path, in which slashes are encoded from the first
/// segment on that had an encoded one.
pub fn encode_rest(path: &CleanPath<'_>, rest: &[u8]) -> String {
    let alias_bytes = path.as_bytes().len() - rest.len();
    let names = rest.len().min(path.opaque_from().saturating_sub(alias_bytes));
    let (names, others) = rest.split_at(names);
    let names = maitred_rules::path::encode_path(names);
    match others.split_first() {
        None => names,
        Some((_, others)) => {
            let others = maitred_rules::path::encode_path(others).replace('/', "%2F");
            format!("{names}/{others}")
        }
    }
}

/// Locks the resolver. Only one thread takes the lock; it exists because the types of tasks have to
/// be `Send`.
pub fn with<T>(resolver: &Mutex<Resolver>, work: impl FnOnce(&mut Resolver) -> T) -> T {
    let mut resolver = resolver.lock().unwrap_or_else(PoisonError::into_inner);
    resolver.set_moment(name_lookups::at(thread::moment()));
    work(&mut resolver)
}

/// The chroot of the scripts of a site, and those of further pools for some of its paths.
pub fn chroots(
    config: &Config,
    settings: &maitred_config::Site,
) -> (Option<PathBuf>, Vec<PathBuf>) {
    let of = |name: &str| config.pool(name)?.confinement.chroot.clone();
    let own = match &settings.destination {
        Destination::Pool(name) => of(name),
        Destination::Upstream(_) => None,
    };
    let others = settings.rules.paths.iter().filter_map(|path| path.pool.as_deref());
    (own, others.filter_map(of).collect())
}

/// Opens the folders besides the root, sorted: the longest prefix decides.
fn open_aliases(
    settings: &maitred_config::Site,
    files: &SiteFiles,
    open: impl Fn(SiteFiles) -> Mutex<Resolver>,
) -> Vec<Alias> {
    let mut aliases = Vec::new();
    for alias in &settings.rules.aliases {
        let prefix = alias.path.trim_end_matches('/').to_owned();
        let files = SiteFiles {
            root: alias.folder.clone(),
            front_controller: None,
            prefix: prefix.clone(),
            ..files.clone()
        };
        aliases.push((prefix, open(files)));
    }
    aliases.sort_by_key(|(prefix, _)| Reverse(prefix.len()));
    aliases
}

fn compile_rules(settings: &maitred_config::Site) -> Result<Option<SiteRules>, String> {
    if settings.rules == Rules::default() {
        return Ok(None);
    }
    let compiled = SiteRules::compile(&settings.rules).map(Some);
    compiled.map_err(|(setting, why)| {
        let root = settings.root.display();
        format!("the site at {root} cannot be served: its `{setting}` {why}")
    })
}

fn open_files(
    files: SiteFiles,
    tenant: &Arc<Tenant>,
    compression: Option<Arc<Compression>>,
    limits: TableLimits,
) -> Mutex<Resolver> {
    let mut resolver = Resolver::new(files, tenant, limits);
    resolver.compress(compression);
    Mutex::new(resolver)
}
