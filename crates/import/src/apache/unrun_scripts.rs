//! Scripts that Apache does not run, and the written site does, found by comparing both, as
//! [`super::closed_paths`] is for paths that sections close.

use std::collections::BTreeSet;

use super::config_reader::ApacheConfig;
use super::script_merge::{ScriptHost, ScriptRun};
use crate::report::{ImportReport, SourceLine};
use crate::rule_examples::crossed;
use crate::served::ServedSite;
use crate::source_directive::Directive;
use crate::written_site::{Behind, WrittenSites};

/// Names the lines for which Apache does not run scripts that the written sites run.
pub(super) fn report(
    config: &ApacheConfig,
    written: &WrittenSites,
    served: &[ServedSite],
    report: &mut ImportReport,
) {
    for old in served {
        let Some(new) = written.from(&old.place.to_string()) else { continue };
        let host = ScriptHost::of(config, old);
        let paths = crossed(&old.rules).paths.into_iter().chain(host.examples());
        let scripts: BTreeSet<String> = paths.map(script).collect();
        for path in &scripts {
            let ScriptRun::Stays(line) = host.run(path) else { continue };
            if new.serve(path).behind == Behind::Script {
                add(report, line, old, path);
            }
        }
    }
}

/// The path of a script: the path itself, or a name that begins with it.
fn script(path: String) -> String {
    if path.ends_with(".php") { path } else { path + ".php" }
}

/// Adds a finding for a line that has none about access, or for the virtual host.
fn add(report: &mut ImportReport, line: Option<&Directive>, site: &ServedSite, path: &str) {
    let place = line.map_or(&site.place, |line| &line.place);
    let what = line.map_or_else(|| "<VirtualHost".to_owned(), Directive::shown);
    if !report.leaves_access_out(|known: &SourceLine| known == place) {
        let why = format!(
            "scripts such as `{path}` run here, and Apache does not run them: write `deny_php` of \
             the site"
        );
        report.access_left_out(place, &what, &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileReader;
    use crate::apache::{config_reader, served_sites};

    struct ScriptsConf(String);

    impl FileReader for ScriptsConf {
        fn read(&self, path: &str) -> Result<String, String> {
            (path == "/a.conf").then(|| self.0.clone()).ok_or_else(|| "there is none".to_owned())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn resolved(&self, _: &str) -> Option<String> {
            None
        }
    }

    /// The lines with a finding where the written site runs all scripts but these.
    fn lines(host: &str, deny_php: &str) -> Vec<usize> {
        let conf = format!(
            "Listen 80\nLoadModule php_module /m.so\nAddType application/x-httpd-php .php\n\
             <VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\n{host}\n\
             </VirtualHost>\n"
        );
        let files = ScriptsConf(conf);
        let served = served_sites(&files, "/a.conf").expect("a site");
        let config = config_reader::read(&files, "/a.conf", &mut ImportReport::default());
        let toml = format!(
            "[[sites]]\nhosts = [\"a.example\"]\nroot = \"/srv/a\"\n\
             deny_php = [\"/x\", {deny_php}]\n"
        );
        let written = WrittenSites::of_toml(&toml, &[&served[0].place.to_string()]);
        let mut found = ImportReport::default();
        report(&config.expect("a configuration"), &written, &served, &mut found);
        found.findings().iter().map(|one| one.place.line).collect()
    }

    #[test]
    fn a_line_for_which_scripts_do_not_run_is_named_where_they_do() {
        for (line, deny) in [
            ("<Directory /srv/a/up>\nForceType text/plain\n</Directory>", "~^/up(/|$)"),
            ("<Directory /srv/*/up>\nSetHandler no-php\n</Directory>", "~^/up(/|$)"),
            ("<DirectoryMatch /up/>\nAddType text/plain .php\n</DirectoryMatch>", "~/up/"),
            ("<Location /up>\nRemoveType php\n</Location>", "~^/up(/|$)"),
            ("<LocationMatch ^/(?!own).*\\.php$>\nSetHandler x\n</LocationMatch>", "/*"),
            ("<Files up.php>\nphp_value engine off\n</Files>", "~/up[.]php$"),
            ("<FilesMatch ^up>\nphp_admin_flag engine off\n</FilesMatch>", "~/up[^/]*$"),
        ] {
            assert_eq!(lines(line, ""), [8], "{line}");
            assert_eq!(lines(line, &format!("{deny:?}")), [0; 0], "{line}");
        }
    }

    #[test]
    fn scripts_that_apache_runs_or_that_are_unclear_are_named_by_none() {
        for line in [
            "<Directory /srv/a/up>\nForceType None\n</Directory>",
            "<Directory /srv/a>\nSetHandler x\n</Directory>\n<FilesMatch php$>\n\
             SetHandler proxy:unix:/run/a.sock|fcgi://localhost\n</FilesMatch>",
            "<Directory /srv/a/up>\nForceType text/plain\n</Directory>\n\
             AddHandler php-script .php",
            "<Location /server-status>\nSetHandler server-status\n</Location>",
            "<Directory /srv/a/up>\n<If true>\nForceType text/plain\n</If>\n</Directory>",
            "ProxyPassMatch ^/(.*\\.php)$ fcgi://127.0.0.1:9000/\n<Location /b>\nSetHandler x\n\
             </Location>",
            "<Location /up>\nphp_admin_flag engine on\nphp_flag engine off\n</Location>",
        ] {
            assert_eq!(lines(line, ""), [0; 0], "{line}");
        }
        assert_eq!(lines("AddType text/plain .php", ""), [7]);
        assert_eq!(lines("RemoveType .php", ""), [7]);
    }
}
