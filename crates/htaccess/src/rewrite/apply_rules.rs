//! Application of the rules of a directory (`hook_fixup`, `apply_rewrite_list`).

use super::expand::{Context, expand, expand_with};
use super::{CondTest, RewriteConf, Rule, RuleCondition, TextOrder};
use crate::absolute_url::{Qualified, absolute_length, reduce, takes_query};
use crate::expr::Evaluation;
use crate::process::{Scope, Stop};
use crate::regex::TooCostly;
use crate::request::{Kind, Request};
use crate::text::{escape_path, integer};

/// Longest rewritten path in bytes: twice Apache's LimitRequestLine.
const LONGEST_PATH: usize = 2 * 8190;

/// Status of an exceeded limit and of a loop.
const FAILED: u16 = 500;

/// Status of a redirect without one of its own.
const FOUND: u16 = 302;

/// The result of the rules.
#[derive(Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// No rule has changed the path.
    No,
    /// The request goes on with its path.
    Unchanged,
    /// An internal redirect to this path, with the query in the request.
    Internal(Vec<u8>),
}

/// The change of a request by its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    None,
    Path,
    /// As `Path`, by a rule with the flag NE.
    Unescaped,
    /// A status of a rule (`ACTION_STATUS`).
    Status(u16),
    /// That of a rule that cannot be applied (`ACTION_STATUS_SET`).
    Failed(u16),
}

enum Applied {
    No,
    /// A rule without a substitution.
    Matched,
    Changed,
    /// An error with this status.
    Failed(u16),
}

/// Applies the rules of the request's directory.
///
/// # Errors
/// The status of a rule that ends the request: a redirect (its `Location` is set), F, G and the
/// like.
pub fn apply(
    request: &mut Request,
    conf: &RewriteConf,
    world: &Scope<'_>,
) -> Result<Rewritten, Stop> {
    if conf.is_on != Some(true) || conf.directory.is_empty() || request.is_rewritten_for_good {
        return Ok(Rewritten::No);
    }
    let own = conf.directory.strip_suffix(b"/").unwrap_or(&conf.directory);
    let allows_no_slash = conf.options.unwrap_or_default().allows_no_slash;
    if request.filename == own && !allows_no_slash {
        return Ok(Rewritten::No);
    }
    if !request.conf.core.follows_links() {
        return Err(Stop::Status(403));
    }
    let (before, args_before) = (request.filename.clone(), request.args.clone());
    let change = apply_all(request, conf, world)?;
    if change == Change::None {
        request.filename = before;
        return Ok(Rewritten::No);
    }
    finish(request, conf, world, Finish { change, before, args_before })
}

struct Finish {
    change: Change,
    before: Vec<u8>,
    args_before: Option<Vec<u8>>,
}

/// Makes a redirect, external or internal, of the rewritten path.
fn finish(
    request: &mut Request,
    conf: &RewriteConf,
    scope: &Scope<'_>,
    finish: Finish,
) -> Result<Rewritten, Stop> {
    let scheme = absolute_length(&request.filename);
    let will_escape = scheme > 0 && finish.change != Change::Unescaped;
    let has_controls =
        |args: &Vec<u8>| args.iter().any(|byte| !(byte.is_ascii_graphic() || *byte >= 0x80));
    if request.args.as_ref().is_some_and(has_controls) && !will_escape {
        return Err(Stop::Status(403));
    }
    // A status of a rule replaces the page of an earlier error.
    if let Change::Status(status) = finish.change {
        request.status = 200;
        return Err(Stop::Status(status));
    }
    if let Change::Failed(status) = finish.change {
        return Err(Stop::Status(status));
    }
    if scheme > 0 {
        return Err(redirect(request, conf, finish, scheme));
    }
    if !request.filename.starts_with(b"/") {
        return Err(Stop::Status(400));
    }
    if request.filename == finish.before {
        return Ok(Rewritten::Unchanged);
    }
    let target = match &conf.base {
        Some(base) => replace_prefix(&request.filename, &conf.directory, base),
        None => {
            let root = &scope.client.document_root[..];
            let rest = request.filename.strip_prefix(root).filter(|rest| rest.starts_with(b"/"));
            rest.unwrap_or(&request.filename).to_vec()
        }
    };
    Ok(Rewritten::Internal(target))
}

/// Prepares an external redirect.
fn redirect(request: &mut Request, conf: &RewriteConf, finish: Finish, scheme: usize) -> Stop {
    let mut location = std::mem::take(&mut request.filename);
    if let Some(base) = &conf.base
        && let Some(slash) = memchr::memchr(b'/', &location[scheme..])
    {
        let path = scheme + slash + 1;
        let directory = conf.directory.strip_prefix(b"/").unwrap_or(&conf.directory);
        let replaced = replace_prefix(&location[path..], directory, &base[1..]);
        location.truncate(path);
        location.extend(replaced);
    }
    let is_escaped = finish.change != Change::Unescaped;
    if is_escaped {
        location = escape_url(&location, scheme);
    }
    if let Some(args) = &request.args {
        location.push(b'?');
        let stays = !is_escaped || finish.args_before.as_ref() == Some(args);
        location.extend(if stays { args.clone() } else { escape_path(args) });
    }
    request.filename = finish.before;
    request.status = 200;
    request.headers_out.set(b"Location", location);
    Stop::Status(request.redirect_status.unwrap_or(FOUND))
}

/// Escapes a URL behind its scheme and host (`escape_absolute_uri`).
fn escape_url(url: &[u8], scheme: usize) -> Vec<u8> {
    let mut start = scheme;
    if url[..scheme].ends_with(b"/") {
        match memchr::memchr(b'/', &url[scheme..]) {
            Some(slash) if scheme + slash + 1 < url.len() => start = scheme + slash + 1,
            _ => return url.to_vec(),
        }
    }
    [&url[..start], &escape_path(&url[start..])].concat()
}

/// `subst_prefix_path`: a path below `from` is one below `to`.
fn replace_prefix(path: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let from = from.strip_suffix(b"/").unwrap_or(from);
    let rest = path.strip_prefix(from).and_then(|rest| rest.strip_prefix(b"/"));
    match rest {
        Some(rest) if to.is_empty() || to.ends_with(b"/") => [to, rest].concat(),
        Some(rest) => [to, b"/", rest].concat(),
        None => path.to_vec(),
    }
}

fn apply_all(request: &mut Request, conf: &RewriteConf, world: &Scope<'_>) -> Result<Change, Stop> {
    let mut change = Change::None;
    let mut context = Context::default();
    let (mut at, mut round) = (0, 1);
    while let Some(rule) = conf.rules.get(at) {
        let flags = &rule.flags;
        if !request.may_spend(1) {
            return Err(Stop::TooCostly);
        }
        let is_left_out = request.is_sub && (flags.skips_subrequests || flags.redirects.is_some());
        if is_left_out {
            at += 1;
            continue;
        }
        let mut run = Run { rule, conf, vary: Vec::new() };
        let applied = run.apply(request, &mut context, world)?;
        if let Applied::Failed(status) = applied {
            add_vary(request, run.vary);
            return Ok(Change::Failed(status));
        }
        if matches!(applied, Applied::No) {
            // The rules that are chained to this one are left out, too.
            while conf.rules.get(at).is_some_and(|rule| rule.flags.is_chained) {
                at += 1;
            }
            at += 1;
            continue;
        }
        if !request.is_sub {
            world.world.note(&|| note_of(rule, conf, request));
        }
        if request.filename.len() > LONGEST_PATH {
            return Ok(Change::Status(FAILED));
        }
        add_vary(request, run.vary);
        if let Some(status) = flags.status {
            return Ok(Change::Status(status));
        }
        if matches!(applied, Applied::Changed) {
            change = if flags.does_not_escape { Change::Unescaped } else { Change::Path };
        }
        if flags.is_end {
            request.is_rewritten_for_good = true;
            break;
        }
        if flags.is_last || flags.is_proxy {
            break;
        }
        if let Some(rounds) = flags.next_rounds {
            round += 1;
            if round >= rounds {
                return Ok(Change::Status(FAILED));
            }
            at = 0;
            continue;
        }
        at += 1 + flags.skip;
    }
    Ok(change)
}

fn add_vary(request: &mut Request, names: Vec<Vec<u8>>) {
    for name in names {
        request.headers_out.append(b"Vary", &name);
    }
}

/// What a rule has done, for an explanation.
fn note_of(rule: &Rule, conf: &RewriteConf, request: &Request) -> String {
    let (line, shown) = (rule.line, String::from_utf8_lossy);
    let place = format!("{}.htaccess:{line}", shown(&conf.directory));
    match (rule.flags.status, &rule.substitution) {
        (Some(status), _) => format!("RewriteRule {place} matches: {status}"),
        (None, None) => format!("RewriteRule {place} matches, without a change of the path"),
        (None, Some(_)) => {
            format!("RewriteRule {place} matches: now {}", shown(&request.filename))
        }
    }
}

/// One rule on its way through the request.
struct Run<'r> {
    rule: &'r Rule,
    conf: &'r RewriteConf,
    /// Names of request headers in conditions that matter.
    vary: Vec<Vec<u8>>,
}

impl Run<'_> {
    fn apply(
        &mut self,
        request: &mut Request,
        context: &mut Context,
        world: &Scope<'_>,
    ) -> Result<Applied, Stop> {
        let rule = self.rule;
        let whole = [&request.filename[..], &request.path_info].concat();
        let path = whole.strip_prefix(&self.conf.directory[..]).unwrap_or(&whole).to_vec();
        world.check_time()?;
        let captures = rule.pattern.captures(&path)?;
        if captures.is_some() == rule.is_negated {
            return Ok(Applied::No);
        }
        *context = Context { rule: captures, path, ..Context::default() };
        let scope = Scope { request, ..*world };
        if !self.conditions_hold(context, &scope)? {
            return Ok(Applied::No);
        }
        let mut substitution = None;
        if let Some(text) = &rule.substitution {
            let expanded = expand_with(text, context, &scope, Some(&rule.flags))?;
            if expanded.has_unsafe_mark && !rule.flags.allows_3f {
                return Ok(Applied::Failed(403));
            }
            substitution = Some(expanded.text);
        }
        self.set_variables(request, context, world)?;
        self.force_type(request, context, world)?;
        let Some(path) = substitution else {
            return Ok(Applied::Matched);
        };
        self.substitute(request, path, world)
    }

    fn conditions_hold(&mut self, context: &mut Context, scope: &Scope<'_>) -> Result<bool, Stop> {
        let conditions = &self.rule.conditions;
        let mut at = 0;
        while let Some(condition) = conditions.get(at) {
            let holds = condition.holds(context, scope)?;
            let mut read = std::mem::take(&mut context.vary);
            if condition.does_not_vary {
                read.clear();
            }
            if condition.is_or {
                if !holds {
                    at += 1;
                    continue;
                }
                while conditions.get(at).is_some_and(|condition| condition.is_or) {
                    at += 1;
                }
            } else if !holds {
                return Ok(false);
            }
            self.vary.append(&mut read);
            at += 1;
        }
        Ok(true)
    }

    /// E and CO.
    fn set_variables(
        &self,
        request: &mut Request,
        context: &mut Context,
        world: &Scope<'_>,
    ) -> Result<(), TooCostly> {
        for variable in &self.rule.flags.variables {
            let text = expand(variable, context, &Scope { request, ..*world })?;
            match text.strip_prefix(b"!") {
                Some(name) => request.env.unset(name),
                None => {
                    let colon = memchr::memchr(b':', &text);
                    let name = &text[..colon.unwrap_or(text.len())];
                    let value = colon.map_or(&b""[..], |colon| &text[colon + 1..]);
                    request.env.set(name, value);
                }
            }
        }
        for cookie in &self.rule.flags.cookies {
            let text = expand(cookie, context, &Scope { request, ..*world })?;
            if let Some(cookie) = crate::cookie::header_of(&text, world.world) {
                crate::cookie::add(&mut request.headers_out, cookie);
            }
        }
        Ok(())
    }

    /// T and H.
    fn force_type(
        &self,
        request: &mut Request,
        context: &mut Context,
        world: &Scope<'_>,
    ) -> Result<(), TooCostly> {
        let expanded = |text: &Option<Vec<u8>>, context: &mut Context, request: &Request| {
            let Some(text) = text else { return Ok(None) };
            let text = expand(text, context, &Scope { request, ..*world })?;
            Ok(Some(text.to_ascii_lowercase()).filter(|text| !text.is_empty()))
        };
        if let Some(media_type) = expanded(&self.rule.flags.media_type, context, request)? {
            request.forced_type = Some(media_type);
        }
        if let Some(handler) = expanded(&self.rule.flags.handler, context, request)? {
            request.forced_handler = Some(handler);
        }
        Ok(())
    }

    fn substitute(
        &self,
        request: &mut Request,
        mut path: Vec<u8>,
        world: &Scope<'_>,
    ) -> Result<Applied, Stop> {
        let flags = &self.rule.flags;
        let is_relative = !path.starts_with(b"/") && absolute_length(&path) == 0;
        if is_relative {
            path = [&self.conf.directory[..], &path].concat();
        }
        request.filename = path;
        if flags.discards_path_info {
            request.path_info.clear();
        }
        self.split_query(request);
        if flags.is_proxy {
            // Requests are proxied by the server's own configuration only.
            return Err(Stop::Status(403));
        }
        if let Some(status) = flags.redirects {
            qualify(request, world);
            request.redirect_status = Some(status);
            return Ok(Applied::Changed);
        }
        if let Qualified::Here(path) = reduce(&request.filename, world.client) {
            request.filename = path;
        }
        if absolute_length(&request.filename) > 0 {
            request.redirect_status = Some(FOUND);
            return Ok(Applied::Changed);
        }
        let literal = self.rule.substitution.as_deref().unwrap_or_default();
        if !(flags.keeps_slashes || is_relative || literal.starts_with(b"//")) {
            let slashes = request.filename.iter().take_while(|byte| **byte == b'/').count();
            request.filename.drain(..slashes.saturating_sub(1));
        }
        Ok(Applied::Changed)
    }

    /// Splits the query off the rewritten path (`splitout_queryargs`).
    fn split_query(&self, request: &mut Request) {
        let flags = &self.rule.flags;
        if flags.has_no_query {
            request.args = None;
            return;
        }
        let scheme = absolute_length(&request.filename);
        if scheme > 0 && !takes_query(&request.filename) {
            request.args = None;
            return;
        }
        if flags.discards_query {
            request.args = None;
        }
        let behind = &request.filename[scheme..];
        let mark = match flags.splits_at_last {
            true => memchr::memrchr(b'?', behind),
            false => memchr::memchr(b'?', behind),
        };
        let Some(mark) = mark.map(|at| scheme + at) else { return };
        let own = request.filename.split_off(mark).split_off(1);
        if !flags.appends_query {
            request.args = Some(own);
        } else if !own.is_empty() {
            let before = request.args.take().unwrap_or_default();
            request.args = Some([&own[..], b"&", &before].concat());
        }
        request.args = request.args.take().filter(|args| !args.is_empty()).map(|mut args| {
            if args.ends_with(b"&") {
                args.pop();
            }
            args
        });
    }
}

/// Makes a URL of this server of a path (`fully_qualify_uri`).
fn qualify(request: &mut Request, world: &Scope<'_>) {
    if absolute_length(&request.filename) == 0 {
        let slash: &[u8] = if request.filename.starts_with(b"/") { b"" } else { b"/" };
        request.filename = [&world.client.origin()[..], slash, &request.filename].concat();
    }
}

impl RuleCondition {
    fn holds(&self, context: &mut Context, scope: &Scope<'_>) -> Result<bool, Stop> {
        if let CondTest::Expression(condition) = &self.test {
            let mut evaluation = Evaluation::new(scope);
            let holds = evaluation.holds(condition)?;
            // Those of an earlier condition are gone, also if there are none.
            if holds && !self.is_negated {
                context.condition = evaluation.groups.take();
            }
            context.vary.append(&mut evaluation.vary);
            return Ok(holds != self.is_negated);
        }
        let input = expand(&self.input, context, scope)?;
        Ok(self.test(&input, context, scope)? != self.is_negated)
    }

    fn test(
        &self,
        input: &[u8],
        context: &mut Context,
        scope: &Scope<'_>,
    ) -> Result<bool, TooCostly> {
        scope.check_time()?;
        Ok(match &self.test {
            CondTest::Matches(regex) => match regex.captures(input)? {
                Some(groups) => {
                    if !self.is_negated {
                        context.condition = Some(groups);
                    }
                    true
                }
                None => false,
            },
            CondTest::File(test) => file_test(*test, input, scope),
            CondTest::Text { order, pattern, ignores_case } => {
                let compared = match ignores_case {
                    true => input.to_ascii_lowercase().cmp(&pattern.to_ascii_lowercase()),
                    // Shorter texts come first (`compare_lexicography`).
                    false => input.len().cmp(&pattern.len()).then_with(|| input.cmp(pattern)),
                };
                order.holds(compared)
            }
            CondTest::Number { order, pattern } => {
                order.holds(integer(input).cmp(&integer(pattern)))
            }
            CondTest::Expression(_) => false,
        })
    }
}

fn file_test(test: u8, input: &[u8], scope: &Scope<'_>) -> bool {
    let stat = || scope.world.stat(input);
    match test {
        b'f' => stat().is_some_and(|stat| stat.kind == Kind::File),
        b's' => stat().is_some_and(|stat| stat.kind == Kind::File && stat.size > 0),
        b'd' => stat().is_some_and(|stat| stat.kind == Kind::Directory),
        b'x' => stat().is_some_and(|stat| stat.is_executable),
        b'l' => scope.world.is_link(input),
        b'U' | b'F' if !scope.may_look_up() => false,
        b'U' => scope.url_status(input).is_some_and(|status| status < 400),
        b'F' => scope.is_file_allowed(input),
        _ => false,
    }
}

impl TextOrder {
    fn holds(self, compared: std::cmp::Ordering) -> bool {
        match self {
            TextOrder::Less => compared.is_lt(),
            TextOrder::LessOrEqual => compared.is_le(),
            TextOrder::Equal => compared.is_eq(),
            TextOrder::GreaterOrEqual => compared.is_ge(),
            TextOrder::Greater => compared.is_gt(),
        }
    }
}
