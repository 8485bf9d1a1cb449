//! What decides who may see what: `respond`, `error`, `abort`, `basic_auth`.

use std::collections::BTreeSet;

use super::path_areas::BlockPaths;
use super::served_areas::ServedArea;
use super::site_walk::{Asked, SiteWalk};
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::user_files::{UserFile, is_strong};

/// Caddy's realm without one of its own.
const DEFAULT_REALM: &str = "restricted";

/// A `basic_auth`.
pub(super) struct AuthArea {
    /// Its paths.
    area: BlockPaths,
    /// Its users, as lines of their file.
    users: BTreeSet<String>,
    /// Its rules.
    pub rules: Vec<Placed>,
}

impl SiteWalk<'_, '_, '_> {
    /// The patterns of paths for a rule about access, which never has fewer paths than Caddy's.
    pub(super) fn guards(&mut self, area: &BlockPaths, line: &Directive) -> Option<Vec<String>> {
        let why = match area.guards() {
            Ok(patterns) => return Some(patterns),
            Err(Ok(wider)) if !area.paths.is_empty() => {
                let why = format!("it applies to {} as well", wider.others);
                self.shared.report.changed(&line.place, &line.shown(), &why);
                return Some(wider.patterns);
            }
            Err(Ok(wider)) => {
                format!("it is for all paths but {}, which has no pattern", wider.others)
            }
            Err(Err(why)) => why,
        };
        self.shared.report.access_left_out(&line.place, &line.shown(), &why);
        None
    }

    /// Denies the requests of a directive with a status. Whether that is possible.
    fn deny(&mut self, asked: &Asked<'_>, status: u16) -> bool {
        let line = asked.line;
        let condition = &asked.condition;
        if !condition.is_by_client_and_path() {
            let why = format!(
                "requests differ by their path and client alone, and not by `{}`: write `deny` of \
                 the site",
                condition.beside_paths().unwrap_or_default()
            );
            self.shared.report.access_left_out(&line.place, &line.shown(), &why);
            return false;
        }
        if condition.is_about_peer && self.shared.options.trusts_proxies {
            let why = "`remote_ip` is the address of a trusted proxy, and `deny` compares that of \
                       the client: use `client_ip`, or write `deny` of the site";
            self.shared.report.access_left_out(&line.place, &line.shown(), why);
            return false;
        }
        if !condition.from.is_empty() && self.shared.options.takes_first {
            let why = "Caddy refuses clients by the first address of the header, and `deny` by \
                       the last one that is no proxy: list all proxies, set \
                       `trusted_proxies_strict` and import again";
            self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
        let Some(patterns) = self.guards(&asked.area, line) else { return false };
        for pattern in patterns {
            let path = toml_text::string(&pattern);
            let mut fields = vec![("path", path.clone())];
            if !condition.from.is_empty() {
                fields.push(("from", toml_text::strings(&condition.from)));
            }
            if !condition.not_from.is_empty() {
                fields.push(("except", toml_text::strings(&condition.not_from)));
            }
            if status != 403 {
                fields.push(("status", status.to_string()));
            }
            let toml = if fields.len() == 1 { path } else { toml_text::table(fields) };
            self.push("deny", line, toml);
        }
        true
    }

    /// Paths that lead elsewhere with Caddy, and never lead to the document root instead.
    pub(super) fn nothing_here(&mut self, asked: &Asked<'_>) {
        let all = Asked { condition: super::matchers::Condition::default(), ..asked.copy() };
        self.elsewhere.push(ServedArea::elsewhere(&asked.area, asked.line));
        self.deny(&all, 404);
    }

    /// `respond`, `error` and `abort`. Whether no later directive sees these requests.
    pub(super) fn respond(&mut self, asked: &Asked<'_>) -> bool {
        let line = asked.line;
        let (status, has_body) = response_of(line, asked.arguments);
        let is_for_all = asked.condition.from.is_empty() && asked.condition.not_from.is_empty();
        if (200..400).contains(&status) {
            if let Some(other) = asked.condition.beside_paths() {
                let why =
                    format!("it is for some requests alone (`{other}`), and has no counterpart");
                let Asked { condition, .. } = asked;
                match condition.is_about_client() {
                    true => self.shared.report.access_left_out(&line.place, &line.shown(), &why),
                    false => self.shared.report.left_out(&line.place, &line.shown(), &why),
                }
                return false;
            }
            let why = "a fixed response has no counterpart, and its paths are a 404: serve a file \
                       or a script there";
            self.shared.report.left_out(&line.place, &line.shown(), why);
            self.nothing_here(asked);
            return true;
        }
        let ours = if [403, 404, 410].contains(&status) { status } else { 403 };
        if !self.deny(asked, ours) {
            return false;
        }
        if is_for_all {
            self.closed.push(asked.area.clone());
        }
        match (ours == status, has_body) {
            (false, _) if status != 0 => {
                let why = format!("the status is {ours}, and not {status}");
                self.shared.report.changed(&line.place, &line.shown(), &why);
            }
            (_, true) => {
                let why = "its text is the server's own: write `error_pages`";
                self.shared.report.changed(&line.place, &line.shown(), why);
            }
            _ => self.kept(line),
        }
        is_for_all
    }

    /// `basic_auth`: the users become a file.
    pub(super) fn basic_auth(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`): write `basic_auth`");
            return self.shared.report.access_left_out(&line.place, &line.shown(), &why);
        }
        let mut users = Vec::new();
        for user in &line.block {
            let hash = user.first();
            if !is_strong(hash) {
                let why = "its hash is none that `basic_auth` accepts (bcrypt, argon2, SHA-crypt): \
                           set a new password with `htpasswd -B`";
                self.shared.report.changed(&user.place, &user.name, why);
            }
            users.push(format!("{}:{hash}\n", user.name));
        }
        let Some(patterns) = self.guards(&asked.area, line) else { return };
        let name = self.user_file(users.concat(), line);
        let realm = asked.arguments.get(1).map_or(DEFAULT_REALM, String::as_str);
        let mut rules = Vec::new();
        for pattern in patterns {
            let mut fields = vec![("users", toml_text::string(&name))];
            if pattern != "~^/" && pattern != "/*" {
                fields.insert(0, ("path", toml_text::string(&pattern)));
            }
            fields.push(("realm", toml_text::string(realm)));
            rules.push(Placed::new(toml_text::table(fields), &line.place));
        }
        let own = AuthArea { area: asked.area.clone(), users: users.into_iter().collect(), rules };
        self.add_auth(own, line);
        let why = format!("its users are in the file {name} beside the result");
        self.shared.report.changed(&line.place, &line.shown(), &why);
    }

    /// Adds a `basic_auth` before those around it: the first one of a path decides here, and all of
    /// them with Caddy.
    fn add_auth(&mut self, own: AuthArea, line: &Directive) {
        let is_inner = |one: &AuthArea| {
            one.area.covers(&own.area)
                && (own.users.is_subset(&one.users) || !own.area.covers(&one.area))
        };
        let is_same = |one: &AuthArea| match (is_inner(one), own.area.covers(&one.area)) {
            (true, _) => own.users.is_subset(&one.users),
            (false, true) => one.users.is_subset(&own.users),
            (false, false) => own.users == one.users,
        };
        let mut both = self.auths.iter().filter(|one| one.area.meets(&own.area));
        if !both.all(is_same) {
            let why = "another `basic_auth` is for some of its paths, where Caddy wants a user of \
                       both, and one decides here: give each path one list of users";
            self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
        let at = self.auths.iter().position(is_inner).unwrap_or(self.auths.len());
        self.auths.insert(at, own);
    }

    /// The name of the file with these users.
    fn user_file(&mut self, text: String, line: &Directive) -> String {
        let files = &mut self.shared.user_files;
        if let Some(known) = files.iter().find(|one| one.text == text) {
            return known.name.clone();
        }
        let name = match files.len() {
            0 => "maitred-users".to_owned(),
            number => format!("maitred-users-{}", number + 1),
        };
        files.push(UserFile { name: name.clone(), text });
        self.kept(line);
        name
    }
}

impl<'d> Asked<'d> {
    /// The same, for another condition.
    pub(super) fn copy(&self) -> Asked<'d> {
        Asked {
            line: self.line,
            condition: self.condition.clone(),
            area: self.area.clone(),
            arguments: self.arguments,
        }
    }
}

/// The status of a response, 0 for none, and whether it has a text.
fn response_of(line: &Directive, arguments: &[String]) -> (u16, bool) {
    let status = |text: &String| text.parse::<u16>().ok().filter(|one| (100..600).contains(one));
    let has_body = line.block.iter().any(|one| one.name == "body");
    match (line.name.as_str(), arguments) {
        ("abort", _) => (0, false),
        ("error", [only]) => (status(only).unwrap_or(500), false),
        ("error", [_, code, ..]) => (status(code).unwrap_or(500), false),
        ("error", []) => (500, false),
        (_, []) => (200, has_body),
        (_, [only]) => match status(only) {
            Some(code) => (code, has_body),
            None => (200, true),
        },
        (_, [_, code, ..]) => (status(code).unwrap_or(200), true),
    }
}
