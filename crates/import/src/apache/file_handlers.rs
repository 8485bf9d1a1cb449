//! Handlers of PHP in `.htaccess` files. Here they run scripts in the pool of the site alone.

use maitred_htaccess::handlers::is_php_handler;

use super::host_import::{HostImport, is_files};
use super::host_scripts::{fcgi_address, is_of_php};
use super::path_area::{PathArea, of_files};
use super::path_pools::is_other_name;
use super::rewrite_chain::handlers_of;
use crate::fpm::PassTarget;
use crate::source_directive::Directive;
use crate::toml_text;

/// What the type of a file has in it that is a handler as well.
const HANDLER_TYPE: &str = "httpd-";

/// How a handler begins that names several servers.
const BALANCER: &str = "proxy:balancer:";

/// The words that a line has for handlers, and whether it is for the source of PHP alone.
struct HandlerWords {
    words: Vec<String>,
    is_for_php: bool,
}

impl HandlerWords {
    /// Those of a line in sections for these files; none of a line that sets no handler.
    fn of(line: &Directive, area: &PathArea) -> Option<HandlerWords> {
        let words = vec![line.first().to_owned()];
        let is_handler_type = line.first().to_ascii_lowercase().contains(HANDLER_TYPE);
        Some(match line.name.to_ascii_lowercase().as_str() {
            "sethandler" => HandlerWords { words, is_for_php: is_of_php(area) },
            "forcetype" if is_handler_type => HandlerWords { words, is_for_php: is_of_php(area) },
            "addhandler" => HandlerWords { words, is_for_php: adds_to_php_alone(line) },
            "addtype" if is_handler_type => {
                HandlerWords { words, is_for_php: adds_to_php_alone(line) }
            }
            "rewriterule" => {
                let pattern = PathArea::Regex(line.first().to_owned());
                HandlerWords { words: handlers_of(line), is_for_php: is_of_php(&pattern) }
            }
            _ => return None,
        })
    }
}

impl HostImport<'_, '_> {
    /// `.htaccess` files that choose another pool of php-fpm than that of the site, or by which PHP
    /// runs files here that Apache sends.
    pub(super) fn handlers_of_files(&mut self) {
        let files = self.override_line.and_then(|_| self.files_of_site()).unwrap_or_default();
        files.iter().for_each(|file| self.handlers_in(&file.lines, &PathArea::all()));
    }

    fn handlers_in(&mut self, lines: &[Directive], area: &PathArea) {
        for line in lines {
            if let Some(found) = HandlerWords::of(line, area) {
                self.handler_line(line, &found);
            }
            match is_files(line) {
                true => self.handlers_in(&line.block, &of_files(line, &PathArea::all())),
                false => self.handlers_in(&line.block, area),
            }
        }
    }

    fn handler_line(&mut self, line: &Directive, found: &HandlerWords) {
        let HandlerWords { words, is_for_php } = found;
        if words.iter().any(|word| word.to_ascii_lowercase().starts_with(BALANCER)) {
            let why = "the files are a 403 here: name one FastCGI server";
            self.report.left_out(&line.place, &line.shown(), why);
        }
        let why = words.iter().find_map(|word| self.runs_otherwise(word, *is_for_php));
        if let Some(why) = why {
            self.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// Why a handler of a `.htaccess` file runs files here otherwise than in Apache.
    fn runs_otherwise(&self, word: &str, is_for_php: bool) -> Option<&'static str> {
        let name = word.to_ascii_lowercase();
        if name.starts_with("expr=") {
            return Some(
                "the handler is known at run time alone, and scripts run in the pool of the site, \
                 whatever it names: write the handler itself",
            );
        }
        // Others are no handlers of PHP.
        if !is_php_handler(name.as_bytes()) {
            return None;
        }
        if let Some(address) = fcgi_address(word) {
            return (!self.is_like_own(&address)).then_some(
                "the scripts run in the pool of the site here, as its user: serve the folder as a \
                 site of its own, in the pool that the line names",
            );
        }
        (!is_for_php && !self.runs_files(&name)).then_some(
            "the line has no effect in Apache, which has no such handler; here PHP runs the files: \
             delete the line",
        )
    }

    /// Whether the scripts of a FastCGI server have the user and the limits of the site.
    fn is_like_own(&self, address: &str) -> bool {
        match self.pools.listening(address, self.files) {
            PassTarget::Pool(name) => {
                let own = self.own_pool();
                own.as_ref() == Some(&name) || self.is_confined_alike(own.as_deref(), &name)
            }
            PassTarget::Upstream(address) => {
                self.site.settings.value("upstream") == Some(&toml_text::string(&address))
            }
        }
    }
}

/// Whether a line gives a handler or a type to the extensions of PHP alone.
fn adds_to_php_alone(line: &Directive) -> bool {
    let mut ends = line.arguments.iter().skip(1).map(|end| end.trim_start_matches('.'));
    !ends.any(|end| is_other_name(&format!("zz9.{end}")))
}
