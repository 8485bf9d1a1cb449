//! Warnings about settings that are valid but have no effect, or a surprising one.

use toml::de::DeTable;

use crate::check::admin;
use crate::mistakes::Fault;
use crate::model::config::Config;
use crate::model::listener::Address;
use crate::model::mode::Mode;
use crate::model::pool::Pool;
use crate::model::tls::ClientCertificates;

/// A setting of pools that has an effect in some modes only.
struct ModeSetting {
    name: &'static str,
    modes: &'static [Mode],
    /// Whether a pool's value differs from the default's.
    differs: fn(&Pool, &Pool) -> bool,
    /// A hint for the other modes, if there is one.
    hint: fn(Mode) -> Option<&'static str>,
}

/// One line per setting: its name, its modes and the hint.
macro_rules! mode_settings {
    ($($name:ident: [$($mode:ident),*], $hint:expr;)*) => {
        &[$(ModeSetting {
            name: stringify!($name),
            modes: &[$(Mode::$mode),*],
            differs: |pool, default| pool.$name != default.$name,
            hint: $hint,
        },)*]
    };
}

const MODE_SETTINGS: &[ModeSetting] = mode_settings! {
    script: [Worker, Snapshot], |_| None;
    boot_timeout: [Worker], |mode| {
        (mode == Mode::Snapshot).then_some("a boot may take 30 s there")
    };
    requests_per_child: [Snapshot], |_| {
        Some("`max_requests` is what bounds the requests of a worker there")
    };
    rewinds_per_child: [Snapshot], |_| None;
    boot_connections: [Snapshot], |_| None;
    warm_requests: [Snapshot], |_| None;
    sapi_name: [Worker, Snapshot], |_| None;
    watch: [Worker, Snapshot], |_| None;
    preload: [Classic], |_| Some("the script of the pool is booted once there");
    opcache_memory_max: [Worker, Snapshot], |_| None;
    max_requests: [Classic, Worker], |_| {
        Some("`requests_per_child` and `rewinds_per_child` are what bounds the requests of a copy")
    };
    max_spawn_rate: [Classic, Worker], |_| {
        Some("it bounds pools with `pm = \"dynamic\"` or `\"ondemand\"` alone")
    };
};

/// The warnings about a file from which `config` was made.
pub(crate) fn remarks(table: &DeTable<'_>, config: &Config) -> Vec<Fault> {
    let pools = table.get("pools").and_then(|pools| pools.get_ref().as_table());
    let mut remarks: Vec<Fault> = admin::remarks(table, config).collect();
    for (name, settings) in pools.into_iter().flat_map(|pools| pools.iter()) {
        let pool = config.pool(name.get_ref());
        let settings = settings.get_ref().as_table();
        if let Some((pool, settings)) = pool.zip(settings) {
            remarks.extend(of_mode(pool, settings));
            remarks.extend(of_open_listener(pool, settings));
        }
    }
    remarks.extend(of_client_certificates(table, config));
    remarks.extend(of_all_proxies(table, config));
    let sites = table.get("sites");
    let sites = sites.and_then(|sites| sites.get_ref().as_array());
    let tables = sites.into_iter().flat_map(|sites| sites.iter());
    let tables = tables.filter_map(|site| site.get_ref().as_table());
    remarks.extend(tables.filter_map(of_cookies));
    remarks
}

/// Client certificates that plain HTTP does without.
fn of_client_certificates(table: &DeTable<'_>, config: &Config) -> Option<Fault> {
    let tls = config.tls.as_ref()?;
    let is_required = tls.client_certificates == ClientCertificates::Required;
    let is_open = is_required && !config.listen.is_empty() && tls.redirect.is_none();
    let settings = table.get("tls")?.get_ref().as_table()?;
    let value = settings.get("client_certificates").filter(|_| is_open)?;
    let sentence = "`client_certificates` is \"required\", and plain HTTP (`listen` at the top of \
                    the file) serves the same sites without one; set `redirect`, or leave out \
                    that `listen`";
    Some(Fault::new(value.span(), sentence))
}

/// Proxies at every address, so that no address in a header is a client's.
fn of_all_proxies(table: &DeTable<'_>, config: &Config) -> Option<Fault> {
    let mut networks = config.trusted_proxies.iter();
    let all = networks.find(|network| config.trusted_recursive && network.prefix_len() == 0)?;
    let value = table.get("trusted_proxies")?;
    let sentence = format!(
        "`trusted_proxies` has {all}, every address: each client chooses its own by the headers \
         that it sends; list the proxies alone, or set `trusted_recursive = false`"
    );
    Some(Fault::new(value.span(), sentence))
}

/// A site that caches pages by `valid`, without the cookie of logged-in users.
fn of_cookies(site: &DeTable<'_>) -> Option<Fault> {
    let cache = site.get("cache")?.get_ref().as_table()?;
    let is_named =
        ["private_cookies", "public_cookies"].iter().any(|name| cache.contains_key(*name));
    let is_off = cache.get("enabled");
    let is_off = is_off.is_some_and(|value| value.get_ref().as_bool() == Some(false));
    let valid = cache.get("valid")?;
    (!is_named && !is_off && !site.contains_key("app")).then(|| {
        let sentence = "`valid` has pages cached for all visitors, and neither `app` nor \
                        `private_cookies` names the cookie of logged-in users: until one does, \
                        requests with a cookie that the site has set are not served from the \
                        cache, and responses to requests with an unknown cookie are not stored \
                        (`public_cookies`)";
        Fault::new(valid.span(), sentence)
    })
}

/// The settings of a pool without effect in its mode.
fn of_mode(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let default = Pool::default();
    let unused = MODE_SETTINGS.iter().filter(|setting| {
        let is_set = settings.contains_key(setting.name);
        is_set && !setting.modes.contains(&pool.mode) && (setting.differs)(pool, &default)
    });
    let fault = |setting: &ModeSetting| {
        Fault::at(settings, setting.name, setting.sentence(pool.mode, settings))
    };
    unused.map(fault).collect()
}

/// A FastCGI listener that is open to all its network.
fn of_open_listener(pool: &Pool, settings: &DeTable<'_>) -> Option<Fault> {
    let listener = pool.listener.as_ref()?;
    let is_open = matches!(listener.listen, Address::Tcp(_)) && listener.allowed_clients.is_none();
    let value = settings.get("listen").filter(|_| is_open)?;
    let sentence = "`listen` is a TCP address without `listen_allowed_clients`: every client that \
                    reaches it, such as any user of this machine, runs code as the pool's user \
                    (`PHP_VALUE`); listen on a Unix socket with an owner and a mode, or name the \
                    addresses of the web servers";
    Some(Fault::new(value.span(), sentence))
}

impl ModeSetting {
    fn sentence(&self, mode: Mode, settings: &DeTable<'_>) -> String {
        let modes = self.modes.iter().map(|mode| format!("\"{}\"", mode.name()));
        let modes: Vec<String> = modes.collect();
        let default = if settings.contains_key("mode") { "" } else { ", the default" };
        let hint = (self.hint)(mode).map_or(String::new(), |hint| format!(" ({hint})"));
        format!(
            "`{}` has no effect in a pool whose `mode` is \"{}\"{default}{hint}; leave it out, \
             or set `mode` to {}",
            self.name,
            mode.name(),
            modes.join(" or ")
        )
    }
}
