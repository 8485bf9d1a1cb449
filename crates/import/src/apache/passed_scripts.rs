//! Scripts that `ProxyPassMatch` passes to a FastCGI server, which runs the file that the line
//! names.

use pcre2::bytes::{Captures, Regex};

use super::host_import::HostImport;
use super::host_scripts::{ANY_SCRIPT, AreaHandler, PhpHandler, fcgi_address};
use super::path_area::PathArea;
use crate::rule_examples::examples;
use crate::served::{RulePaths, ServedRule};
use crate::source_directive::Directive;

/// A line about other servers.
struct PassedLine<'a> {
    area: PathArea,
    line: &'a Directive,
}

impl<'a> HostImport<'_, 'a> {
    /// `ProxyPassMatch` to FastCGI servers, and what paths are excepted before it. The first match
    /// of a request decides.
    pub(super) fn passed_scripts(&mut self) -> Vec<AreaHandler<'a>> {
        let lines = self.all_of_host(&["ProxyPassMatch", "ProxyPass"]).into_iter();
        let of_line = |line: &'a Directive| match line.is("ProxyPass") {
            true => PathArea::Below(line.first().trim_end_matches('/').to_owned()),
            false => PathArea::Regex(line.first().to_owned()),
        };
        let lines = lines.map(|line| PassedLine { area: of_line(line), line });
        let lines: Vec<PassedLine<'a>> = lines.collect();
        let mut found = Vec::new();
        for (at, one) in lines.iter().enumerate().rev() {
            match fcgi_address(one.line.argument(1)) {
                Some(address) if one.line.is("ProxyPassMatch") => {
                    found.extend(self.passed(one, &lines[..at], address));
                }
                None if one.line.argument(1) == "!" && !found.is_empty() => {
                    found.push(no_scripts(one.area.clone(), one.line));
                }
                _ => {}
            }
        }
        if !found.is_empty() {
            let sections = self.sections.iter().filter(|one| one.section.is_some());
            let excepted = sections.flat_map(|one| {
                let lines = one.all("ProxyPass").into_iter();
                lines.filter(|line| line.first() == "!").map(|line| (one.area.clone(), line))
            });
            found.extend(excepted.map(|(area, line)| no_scripts(area, line)));
        }
        found
    }

    /// The handlers of a line: scripts that are other files than those of their paths do not run.
    fn passed(
        &mut self,
        one: &PassedLine<'a>,
        earlier: &[PassedLine<'a>],
        address: String,
    ) -> Vec<AreaHandler<'a>> {
        let PassedLine { area, line } = one;
        let Some(folders) = self.folders_elsewhere(one, earlier) else {
            let why = "it runs files of another folder than the one of their paths here, and these \
                       scripts do not run: make the folder the `root` or one of the `aliases`";
            self.report.access_left_out(&line.place, &line.shown(), why);
            return vec![no_scripts(area.clone(), line)];
        };
        let handler = PhpHandler::Fcgi(address);
        let mut found = vec![AreaHandler { area: area.clone(), handler, line }];
        for prefix in folders {
            let why = format!("scripts below `{prefix}` do not run: it runs files elsewhere");
            self.report.changed(&line.place, &line.shown(), &why);
            found.push(no_scripts(PathArea::Below(prefix), line));
        }
        found
    }

    /// The prefixes of the aliases whose paths a line leads to files elsewhere; nothing if it leads
    /// those of the document root there, or all, or if that is not clear.
    fn folders_elsewhere(
        &self,
        one: &PassedLine<'a>,
        earlier: &[PassedLine<'a>],
    ) -> Option<Vec<String>> {
        let text = one.line.first();
        let expression = Regex::new(text).ok()?;
        let rule = ServedRule::new(RulePaths::Regex(text.to_owned()), &one.line.place, "");
        let mut paths = examples(&rule).matching;
        paths.extend(self.mapped.iter().map(|one| format!("{}{ANY_SCRIPT}", one.prefix)));
        paths.retain(|path| rule.matches(path));
        if paths.is_empty() {
            return None;
        }
        paths.retain(|path| !earlier.iter().any(|line| line.area.has(path)));
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for path in &paths {
            let Ok(Some(captures)) = expression.captures(path.as_bytes()) else { continue };
            let file = self.config.absolute(&passed_path(one.line.argument(1), path, &captures));
            let own = self.folder_of(path).map(|own| self.config.absolute(&own));
            let around = self.mapped_around(&PathArea::Below(path.clone()));
            let prefix = around.map(|one| one.prefix.clone()).unwrap_or_default();
            let list = match own.is_some_and(|own| own == file) {
                true => &mut right,
                false => &mut wrong,
            };
            list.push(prefix);
        }
        wrong.sort();
        wrong.dedup();
        let is_elsewhere = right.is_empty() || wrong.iter().any(String::is_empty);
        (wrong.is_empty() || !is_elsewhere).then_some(wrong)
    }
}

fn no_scripts(area: PathArea, line: &Directive) -> AreaHandler<'_> {
    AreaHandler { area, handler: PhpHandler::None, line }
}

/// The path that a FastCGI server gets for a requested one: that of the address with the groups of
/// the expression, or before the whole path if it has none.
fn passed_path(address: &str, path: &str, groups: &Captures<'_>) -> String {
    let (_, server) = address.rsplit_once("fcgi://").unwrap_or_default();
    let target = server.find('/').map_or("", |at| &server[at..]);
    let (mut out, mut rest) = (String::new(), target);
    while let Some((before, after)) = rest.split_once('$') {
        out += before;
        let digit = after.chars().next().and_then(|letter| letter.to_digit(10));
        let Some(number) = digit else {
            out.push('$');
            rest = after;
            continue;
        };
        let group = groups.get(number as usize).map(|group| group.as_bytes()).unwrap_or_default();
        out += &String::from_utf8_lossy(group);
        rest = &after[1..];
    }
    out += rest;
    match out == target {
        true => out + path,
        false => out,
    }
}
