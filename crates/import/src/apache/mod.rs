//! Apache's configuration as a `maitred.toml`.

mod closed_paths;
pub mod config_reader;
mod defined_names;
mod file_handlers;
mod file_options;
mod file_variables;
mod folder_regex;
mod host_access;
mod host_addresses;
mod host_import;
mod host_links;
mod host_overrides;
mod host_paths;
mod host_proxies;
mod host_responses;
mod host_rewrites;
mod host_scripts;
mod host_sites;
mod htaccess_lines;
mod includes;
mod inherited_rules;
mod known_directives;
mod log_formats;
mod mod_php_pools;
mod module_names;
mod passed_scripts;
mod path_area;
mod path_pools;
mod php_types;
mod remote_ip;
mod require_rules;
mod rewrite_chain;
mod script_merge;
mod section_order;
mod sent_types;
mod served_hosts;
mod skipped_sections;
mod unrun_scripts;
mod virtual_host;
mod virtual_hosts;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod config_reader_tests;
#[cfg(test)]
mod context_tests;
#[cfg(test)]
mod htaccess_tests;
#[cfg(test)]
mod htaccess_tree_tests;
#[cfg(test)]
mod proxied_paths_tests;
#[cfg(test)]
mod rewrite_tests;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod section_order_tests;
#[cfg(test)]
mod virtual_host_tests;

use known_directives::{ApacheDirective, known};
use mod_php_pools::ModPhpPools;
pub use served_hosts::served_sites;
use virtual_hosts::HostsImport;

use crate::file_draft::FileDraft;
use crate::fpm::{PoolPlan, WebServer};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::written_site::WrittenSites;
use crate::{FileReader, Imported};

/// Sections that hold directives of a site.
const SECTIONS: [&str; 7] = [
    "<VirtualHost",
    "<Directory",
    "<DirectoryMatch",
    "<Location",
    "<LocationMatch",
    "<Files",
    "<FilesMatch",
];

/// Sections that apply by conditions of the server.
const CONDITIONS: [&str; 3] = ["<IfModule", "<IfDefine", "<IfVersion"];

/// Imports Apache's configuration in `main`, with the pools of php-fpm in `fpm`.
///
/// # Errors
/// One sentence: the configuration cannot be read or has a syntax error, or serves nothing.
pub fn import(files: &dyn FileReader, main: &str, fpm: &[String]) -> Result<Imported, String> {
    let mut report = ImportReport::default();
    let config = config_reader::read(files, main, &mut report)?;
    let mut pools = PoolPlan::read(files, fpm, &mut report).behind(WebServer::Apache);
    let mut mod_php = ModPhpPools::new(files, &config);
    let mut file = FileDraft::default();
    let mut hosts = HostsImport {
        files,
        report: &mut report,
        pools: &mut pools,
        mod_php: &mut mod_php,
        config: &config,
    };
    hosts.import(&mut file);
    if file.sites.is_empty() {
        return Err(format!("{main} has no site that can be imported:\n{report}"));
    }
    let (drafts, control) = pools.sections(&mut report);
    file.pools = mod_php.sections(&mut report);
    file.pools.extend(drafts);
    file.name_pools();
    if let Some(control) = control {
        file.server.set("process_control_timeout", control);
    }
    log_formats::access_log(&config, &mut file, &mut report);
    remote_ip::remote_ip(&config, &mut file, &mut report);
    census(&config.tree, &mut report);
    let written = WrittenSites::of(&file, main, &mut report);
    let served = served_sites(files, main)?;
    closed_paths::report(&written, &served, &mut report);
    unrun_scripts::report(&config, &written, &served, &mut report);
    Ok(Imported { toml: file.to_toml(main), report, user_files: Vec::new() })
}

/// A finding for each directive that has none yet, so that none is dropped.
fn census(directives: &[Directive], report: &mut ImportReport) {
    for directive in directives {
        let Directive { name, place, block, .. } = directive;
        let is_section = SECTIONS.iter().any(|section| directive.is(section));
        if report.is_known(place, name) {
            if is_section {
                census(block, report);
            }
            continue;
        }
        let shown = directive.shown();
        if is_section {
            // No URL of a site leads there.
            report.kept(place, &shown);
            report.cover(directive);
            continue;
        }
        match known(directive) {
            ApacheDirective::NotNeeded => report.kept(place, &shown),
            ApacheDirective::ByHand(what) => report.left_out(place, &shown, what),
            ApacheDirective::Misplaced => {
                let why = "it has no counterpart in this place; a `.htaccess` file may have it, \
                           with `htaccess = true`";
                report.left_out(place, &shown, why);
            }
            ApacheDirective::AccessByHand(what) => report.access_left_out(place, &shown, what),
            ApacheDirective::Access => {
                let why = "it is unknown, or decides who may see what, and has no counterpart: see \
                           what it does, and write it by hand";
                report.access_left_out(place, &shown, why);
            }
        }
        directive.block.iter().for_each(|one| report.cover(one));
    }
}
