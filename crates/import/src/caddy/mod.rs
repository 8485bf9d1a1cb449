//! Caddy's configuration, and FrankenPHP's, as a `maitred.toml`.

#[cfg(test)]
mod caddy_access_tests;
#[cfg(test)]
mod caddy_listener_tests;
mod caddy_search;
mod config_tree;
mod directive_order;
mod error_routes;
mod global_options;
mod guards;
mod laxer_blocks;
mod matchers;
mod path_areas;
mod php_directives;
#[cfg(test)]
mod php_parameter_tests;
mod placeholders;
mod request_tests;
mod response_directives;
mod served_areas;
mod site_addresses;
mod site_walk;
mod stable_merge;
mod targets;
#[cfg(test)]
mod tests;
mod tokens;
mod unserved_paths;

pub use config_tree::Environment;

use crate::file_draft::{FileDraft, Placed, PoolDraft};
use crate::fpm::{PoolPlan, WebServer};
use crate::report::{ImportReport, SourceLine};
use crate::user_files::UserFile;
use crate::written_site::WrittenSites;
use crate::{FileReader, Imported, toml_text};
use caddy_search::CaddySearch;
use config_tree::CaddyConfig;
use directive_order::DirectiveOrder;
use global_options::GlobalOptions;
use laxer_blocks::{ImportedBlock, ImportedBlocks, ScriptRunner};

/// Where Caddy's configuration comes from.
pub struct CaddySource<'s> {
    /// The files.
    pub files: &'s dyn FileReader,
    /// The Caddyfile.
    pub main: &'s str,
    /// The configurations of php-fpm.
    pub php_fpm: &'s [String],
    /// Variables of Caddy's environment.
    pub environment: Environment<'s>,
}

/// What all sites share.
struct CaddyImport<'w> {
    files: &'w dyn FileReader,
    main: &'w str,
    environment: Environment<'w>,
    config: &'w CaddyConfig,
    options: GlobalOptions,
    order: DirectiveOrder,
    report: &'w mut ImportReport,
    pools: PoolPlan,
    /// Whether sites are served over plain HTTP, without a redirect.
    serves_plain: bool,
    /// The first `log` of a site that goes to the standard error output.
    access_log: Option<SourceLine>,
    /// FrankenPHP's pools.
    own_pools: Vec<PoolDraft>,
    user_files: Vec<UserFile>,
    /// What runs the scripts of the site that is read.
    runners: Vec<ScriptRunner>,
    /// The blocks of the written sites, in their order.
    blocks: Vec<ImportedBlock>,
}

/// Imports Caddy's configuration, with the pools of php-fpm.
///
/// # Errors
/// One sentence: the configuration cannot be read or has a syntax error, or serves nothing.
pub fn import(source: &CaddySource<'_>) -> Result<Imported, String> {
    let CaddySource { files, main, php_fpm, environment } = *source;
    let mut report = ImportReport::default();
    let config = config_tree::read(files, main, environment, &mut report)?;
    let pools = PoolPlan::read(files, php_fpm, &mut report).behind(WebServer::Caddy);
    let mut file = FileDraft::default();
    let options = global_options::read(&config.options, &mut file, &mut report);
    let mut shared = CaddyImport {
        files,
        main,
        environment,
        config: &config,
        order: DirectiveOrder::new(&config.options),
        options,
        report: &mut report,
        pools,
        serves_plain: false,
        access_log: None,
        own_pools: Vec::new(),
        user_files: Vec::new(),
        runners: Vec::new(),
        blocks: Vec::new(),
    };
    site_addresses::sites(&mut shared, &mut file);
    let CaddyImport { pools, access_log, own_pools, user_files, blocks, order, .. } = shared;
    if let Some(place) = access_log {
        file.server.set("access_log", Placed::new(toml_text::string("stderr"), &place));
    }
    if file.sites.is_empty() {
        return Err(format!("{main} has no site that can be imported:\n{report}"));
    }
    let (drafts, control) = pools.sections(&mut report);
    file.pools = drafts;
    let is_used = |pool: &PoolDraft| {
        let name = toml_text::string(&pool.name);
        file.sites.iter().any(|site| {
            let mut paths = site.settings.list("paths").iter();
            site.settings.value("pool") == Some(&name) || paths.any(|one| one.toml.contains(&name))
        })
    };
    let own_pools: Vec<PoolDraft> = own_pools.into_iter().filter(is_used).collect();
    file.pools.extend(own_pools);
    file.name_pools();
    if let Some(control) = control {
        file.server.set("process_control_timeout", control);
    }
    let written = WrittenSites::of(&file, main, &mut report);
    let search = CaddySearch { environment, main, order: &order };
    let imported = ImportedBlocks { blocks: &blocks, pools: &pools };
    laxer_blocks::report(&written, imported, search, &mut report);
    Ok(Imported { toml: file.to_toml(main), report, user_files })
}

/// A string from a place.
fn text_at(text: &str, place: &crate::report::SourceLine) -> Placed {
    Placed::new(toml_text::string(text), place)
}
