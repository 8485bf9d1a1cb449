//! Conditions of `.htaccess` files that depend on Apache: names that its configuration defines, of
//! which there is none at run time here, and its modules.

use std::rc::Rc;

use maitred_htaccess::handlers::is_php_handler;
use maitred_htaccess::modules::{PHP_MAJOR, is_entered};
use maitred_htaccess::words::lines;

use super::config_reader::{ApacheConfig, condition, parsed};
use super::host_import::HostImport;
use super::host_rewrites::refusal;
use super::host_scripts::{is_engine, is_on};
use super::rewrite_chain::{RewriteScope, chains};
use crate::fpm::CONFINING;
use crate::report::SourceLine;
use crate::source_directive::Directive;

/// What to do about an `<IfDefine>`.
const SECTION: &str = "`.htaccess` files apply as if the name was not defined: write the lines \
                       that apply in Apache without the section";

/// What to do about a `${NAME}`.
const VARIABLE: &str = "`${…}` has no value in `.htaccess` files here: write the value";

/// What to do about an `<IfModule>`.
const MODULE: &str = "Apache has other modules than this server, and so other lines about access \
                      apply: write those that apply in Apache without the section";

/// The module that every Apache 2.4 has. Without a line that loads it, modules are built in.
const ALWAYS: &str = "authz_core_module";

impl HostImport<'_, '_> {
    /// The conditions of the `.htaccess` files below the document root.
    pub(super) fn conditions_of_files(&mut self) {
        let Some(line) = self.override_line else { return };
        let found = self.files.below(&self.root, ".htaccess").and_then(|files| {
            let read = |file: String| Some((self.files.read(&file).ok()?, file));
            files.into_iter().map(read).collect::<Option<Vec<_>>>()
        });
        let Some(found) = found else {
            let why = "its folders are too many, too deep, or not readable: see that no \
                       `.htaccess` file in them has `<IfDefine>`, `${…}` or `<IfModule>` about \
                       access, names a pool of php-fpm, or asks for a variable of the \
                       configuration";
            return self.report.access_left_out(&line.place, &line.shown(), why);
        };
        for (text, file) in found {
            let lines = file_lines(&text, &file);
            for FileLine { directive, .. } in lines_with_names(&lines, self.config) {
                let why = if directive.is("<IfDefine") { SECTION } else { VARIABLE };
                self.report.access_left_out(&directive.place, &directive.shown(), why);
            }
            for section in sections_of_modules(&lines, self.config) {
                self.report.access_left_out(&section.place, &section.shown(), MODULE);
            }
        }
    }
}

/// A line of a `.htaccess` file.
struct FileLine {
    text: String,
    directive: Directive,
}

fn file_lines(text: &str, file: &str) -> Vec<FileLine> {
    let file: Rc<str> = Rc::from(file);
    let of = |number, text: &[u8]| {
        let place = SourceLine { file: file.clone(), line: number, word: number };
        let text = String::from_utf8_lossy(text).into_owned();
        FileLine { directive: parsed(&text, place), text }
    };
    lines(text.as_bytes()).into_iter().map(|line| of(line.number, &line.text)).collect()
}

/// The lines with names that the configuration defines: `<IfDefine>` and `${NAME}`.
fn lines_with_names<'l>(lines: &'l [FileLine], config: &ApacheConfig) -> Vec<&'l FileLine> {
    let has_variable = |text: &str| {
        let mut names = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
        names.any(|(name, _)| config.variables.contains_key(name))
    };
    let is_defined = |one: &Directive| {
        let name = one.first().trim_start_matches('!');
        config.defines.contains(name) || config.perhaps.defines.contains(name)
    };
    let has_name = |line: &&FileLine| {
        let FileLine { text, directive } = line;
        has_variable(text) || directive.is("<IfDefine") && is_defined(directive)
    };
    lines.iter().filter(has_name).collect()
}

/// A section that is open, and who enters it.
struct EnteredSection<'l> {
    line: &'l Directive,
    in_apache: bool,
    /// A section that may apply in Apache loads its module.
    is_perhaps: bool,
    here: bool,
}

impl<'l> EnteredSection<'l> {
    fn of(line: &'l Directive, config: &ApacheConfig) -> EnteredSection<'l> {
        if !line.is("<IfModule") {
            return EnteredSection { line, in_apache: true, is_perhaps: false, here: true };
        }
        let major = match () {
            () if config.modules.contains("php5_module") => 5,
            () if config.modules.contains("php7_module") => 7,
            () => PHP_MAJOR,
        };
        let has = |name: &str, major| is_entered(b"ifmodule", name.as_bytes(), major) == Ok(true);
        let is_known = config.modules.contains(ALWAYS);
        let in_apache = condition(line.first(), |name| {
            config.has_module(name) || !is_known && has(name, major)
        });
        let name = line.first().trim_start_matches('!');
        let is_perhaps = config.perhaps.has_module(name) && !config.has_module(name);
        EnteredSection { line, in_apache, is_perhaps, here: has(line.first(), PHP_MAJOR) }
    }

    /// Whether Apache may do otherwise than this server.
    fn may_differ(&self) -> bool {
        self.is_perhaps || self.in_apache != self.here
    }
}

/// The `<IfModule>` with lines that let more clients in here than in Apache, or run more scripts.
fn sections_of_modules<'l>(lines: &'l [FileLine], config: &ApacheConfig) -> Vec<&'l Directive> {
    let mut open: Vec<EnteredSection<'l>> = Vec::new();
    let mut found: Vec<&Directive> = Vec::new();
    for FileLine { directive, text } in lines {
        if text.starts_with("</") {
            open.pop();
            continue;
        }
        if directive.name.starts_with('<') {
            open.push(EnteredSection::of(directive, config));
            continue;
        }
        let is_negated = open.iter().any(|one| one.line.is("<RequireNone"));
        let may_be_in_apache = open.iter().all(|one| one.in_apache || one.is_perhaps);
        let is_in_apache = open.iter().all(|one| one.in_apache && !one.is_perhaps);
        let is_laxer = match open.iter().all(|one| one.here) {
            true => !is_in_apache && lets_in(directive, is_negated),
            false => may_be_in_apache && refuses(directive, is_negated),
        };
        let section = open.iter().find(|one| is_laxer && one.may_differ());
        found.extend(section.map(|one| one.line).filter(|line| !found.contains(line)));
    }
    found
}

/// Whether a line may refuse clients, or stop or confine scripts.
pub(super) fn refuses(line: &Directive, is_negated: bool) -> bool {
    match line.name.to_ascii_lowercase().as_str() {
        "require" => is_negated || !is_about_all(line, "granted"),
        "deny" | "order" | "satisfy" | "authmerging" | "sslrequire" | "sslrequiressl"
        | "sethandler" | "forcetype" | "removehandler" | "removetype" => true,
        "rewriterule" => chains(&[line], &RewriteScope::default())
            .first()
            .is_some_and(|chain| refusal(chain).is_some()),
        "redirect" | "redirectmatch" => {
            let status = line.first();
            status.eq_ignore_ascii_case("gone") || status.parse().is_ok_and(|code: u16| code >= 400)
        }
        "php_value" | "php_flag" if CONFINING.contains(&line.first()) => true,
        _ => is_engine(line) && !is_on(line),
    }
}

/// Whether a line may let clients in, or run files.
pub(super) fn lets_in(line: &Directive, is_negated: bool) -> bool {
    match line.name.to_ascii_lowercase().as_str() {
        "require" => is_negated || !is_about_all(line, "denied"),
        "satisfy" | "authmerging" => true,
        "sethandler" | "forcetype" | "addhandler" | "addtype" => {
            is_php_handler(line.first().to_ascii_lowercase().as_bytes())
        }
        _ => false,
    }
}

fn is_about_all(line: &Directive, what: &str) -> bool {
    line.arguments.len() == 2
        && line.first().eq_ignore_ascii_case("all")
        && line.argument(1).eq_ignore_ascii_case(what)
}
