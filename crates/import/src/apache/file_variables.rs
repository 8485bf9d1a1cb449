//! Variables of a request that the configuration sets and that decide in `.htaccess` files: they
//! are not set here.

use super::host_import::HostImport;
use super::htaccess_lines::{HtaccessFile, all_lines};
use super::rewrite_chain::variables_of;
use crate::source_directive::Directive;

/// The variable by which scripts get the header `Authorization`, which they get here anyway.
const AUTHORIZATION: &str = "HTTP_AUTHORIZATION";

/// The variable with the name of the client's host.
const HOST: &str = "REMOTE_HOST";

/// The line by which Apache looks it up.
const LOOKUPS: &str = "HostnameLookups";

/// What variables are called after an internal redirect.
const REDIRECTED: &str = "REDIRECT_";

impl<'a> HostImport<'_, 'a> {
    /// The lines that set a variable for which a `.htaccess` file of the site asks.
    pub(super) fn variables_of_files(&mut self) {
        let files = self.override_line.and_then(|_| self.files_of_site()).unwrap_or_default();
        let lines = self.sections.iter().flat_map(|one| one.directives.iter().copied());
        let lines: Vec<&'a Directive> = lines.collect();
        for line in lines {
            let names = variables_set(line);
            let mut asking = names.iter().filter(|name| !name.starts_with(AUTHORIZATION));
            let asks = asking
                .find_map(|name| files.iter().find_map(|file| asking_line(&file.lines, name)));
            if let Some(asks) = asks {
                let why = format!(
                    "`{}` at {} asks for a variable that is not set here: write this line into \
                     that file",
                    asks.shown(),
                    asks.place
                );
                self.report.access_left_out(&line.place, &line.shown(), &why);
            }
        }
        self.host_names_of_files(&files);
    }

    /// `HostnameLookups`, if a `.htaccess` file decides by names of hosts.
    fn host_names_of_files(&mut self, files: &[HtaccessFile]) {
        let sections = self.sections.iter().filter(|one| one.section.is_some());
        let own = sections.filter_map(|one| one.last(LOOKUPS));
        let lines = self.of_host(LOOKUPS).into_iter().chain(own);
        let is_on = |line: &&Directive| !line.first().eq_ignore_ascii_case("off");
        let lines: Vec<&'a Directive> = lines.filter(is_on).collect();
        let asks =
            files.iter().flat_map(|file| all_lines(&file.lines)).find(|line| asks_for_host(line));
        let Some(asks) = asks else { return };
        for line in lines {
            let why = format!(
                "`{}` at {} decides by the name of a host, and none is looked up here: write its \
                 addresses",
                asks.shown(),
                asks.place
            );
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }
}

/// Whether a line decides by the name of the client's host.
fn asks_for_host(line: &Directive) -> bool {
    let names = ["SetEnvIf", "SetEnvIfNoCase", "SetEnvIfExpr", "RewriteCond", "RewriteRule"];
    let others = ["Require", "<If", "<ElseIf", "SSLRequire"];
    names.iter().chain(&others).any(|name| line.is(name))
        && line.arguments.iter().any(|word| mentions(word, HOST))
}

/// The names of the variables that a line sets by the request.
fn variables_set(line: &Directive) -> Vec<String> {
    let after = match line.name.to_ascii_lowercase().as_str() {
        "setenvif" | "setenvifnocase" => 2,
        "setenvifexpr" | "browsermatch" | "browsermatchnocase" => 1,
        "rewriterule" => return variables_of(line).iter().map(|text| name_of(text)).collect(),
        _ => return Vec::new(),
    };
    line.arguments.iter().skip(after).map(|text| name_of(text)).collect()
}

/// The name in `name=value`, `name:value`, `!name` and `name`.
fn name_of(text: &str) -> String {
    let name = text.trim_start_matches('!').split(['=', ':']).next();
    name.unwrap_or_default().to_owned()
}

/// The line that asks for a variable to decide.
fn asking_line<'l>(lines: &'l [Directive], name: &str) -> Option<&'l Directive> {
    let redirected = format!("{REDIRECTED}{name}");
    let is_asking = |line: &&Directive| [name, &redirected].iter().any(|one| asks(line, one));
    all_lines(lines).into_iter().find(is_asking)
}

fn asks(line: &Directive, name: &str) -> bool {
    let has_name = |word: &str| word.trim_start_matches('!').eq_ignore_ascii_case(name);
    let mut words = line.arguments.iter().map(String::as_str);
    match line.name.to_ascii_lowercase().as_str() {
        "allow" | "deny" => words.any(|word| {
            let (kind, variable) = word.split_once('=').unwrap_or_default();
            kind.eq_ignore_ascii_case("env") && has_name(variable)
        }),
        "setenvif" | "setenvifnocase" => has_name(line.first()),
        "rewritecond" if line.first().eq_ignore_ascii_case("expr") => {
            words.any(|word| mentions(word, name))
        }
        "rewritecond" | "rewriterule" => {
            let variable = format!("%{{ENV:{}}}", name.to_ascii_uppercase());
            words.any(|word| word.to_ascii_uppercase().contains(&variable))
        }
        "require" | "<if" | "<elseif" | "setenvifexpr" | "sslrequire" => {
            words.any(|word| mentions(word, name))
        }
        _ => false,
    }
}

/// Whether a name is in a text as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let mut words = text.split(|letter: char| !is_part(letter));
    words.any(|word| !word.is_empty() && word.eq_ignore_ascii_case(name))
}
