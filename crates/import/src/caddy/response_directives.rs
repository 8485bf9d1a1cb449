//! Headers, compression, and sizes of bodies.

use super::site_walk::{Asked, SiteWalk};
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;

/// What a line of `header` does.
enum HeaderChange {
    Set(String, String),
    Add(String, String),
    Unset(String),
}

impl SiteWalk<'_, '_, '_> {
    /// `header`.
    pub(super) fn header(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`): write `headers`");
            return self.left_out(line, &why);
        }
        let patterns = match asked.area.patterns() {
            Ok(patterns) => patterns,
            Err(why) => return self.left_out(line, &why),
        };
        let mut lines: Vec<(Vec<String>, &Directive)> = Vec::new();
        if !asked.arguments.is_empty() {
            lines.push((asked.arguments.to_vec(), line));
        }
        for one in &line.block {
            let words = [one.name.clone()].into_iter().chain(one.arguments.iter().cloned());
            lines.push((words.collect(), one));
        }
        for (words, from) in lines {
            if ["defer", "match"].contains(&words[0].as_str()) && from.name == words[0] {
                match words[0].as_str() {
                    "defer" => self.kept(from),
                    _ => self.left_out(from, "headers are the same for each status"),
                }
                continue;
            }
            match change(&words) {
                Ok(change) => {
                    for pattern in &patterns {
                        let toml = header_table(pattern, &change);
                        self.push("headers", from, toml);
                    }
                    self.kept(from);
                }
                Err(why) => self.left_out(from, &why),
            }
        }
        if !line.block.is_empty() {
            self.kept(line);
        }
    }

    /// `request_body`.
    pub(super) fn request_body(&mut self, asked: &Asked<'_>) {
        for one in &asked.line.block {
            let size = bytes(one.first());
            let (Some(size), "max_size") = (size, one.name.as_str()) else {
                self.left_out(one, "slow clients have their own limits (`min_request_rate`)");
                continue;
            };
            if let Some(other) = asked.condition.beside_paths() {
                self.left_out(one, &format!("it is for some requests alone (`{other}`)"));
            } else if asked.area.is_all() {
                let value = Placed::new(size.to_string(), &one.place);
                self.site.settings.set("max_body_size", value);
                self.kept(one);
            } else {
                match asked.area.patterns() {
                    Ok(patterns) => {
                        for pattern in patterns {
                            let path = ("path", toml_text::string(&pattern));
                            let size = ("max_body_size", size.to_string());
                            self.push("paths", one, toml_text::table([path, size]));
                        }
                        self.kept(one);
                    }
                    Err(why) => self.left_out(one, &why),
                }
            }
        }
        self.kept(asked.line);
    }

    /// `encode`.
    pub(super) fn encode(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        let of_block = line.block.iter().map(|one| &one.name);
        let names = asked.arguments.iter().chain(of_block);
        let mut found: Vec<&str> = Vec::new();
        for name in names {
            let ours = if name == "brotli" { "br" } else { name.as_str() };
            if ["zstd", "br", "gzip"].contains(&ours) && !found.contains(&ours) {
                found.push(ours);
            }
        }
        // Without names, Caddy has both.
        let found = if found.is_empty() { vec!["zstd", "gzip"] } else { found };
        self.site.settings.set("compression", Placed::new(toml_text::strings(found), &line.place));
        for one in &line.block {
            match one.name.as_str() {
                "minimum_length" => {
                    let length = Placed::new(one.first().to_owned(), &one.place);
                    self.site.settings.set("compression_min_length", length);
                    self.kept(one);
                }
                "match" => self.left_out(one, "set `compression_types`"),
                "gzip" | "zstd" | "br" | "brotli" | "prefer" => self.kept(one),
                _ => self.left_out(one, "it has no counterpart"),
            }
        }
        let is_for_all = asked.condition.beside_paths().is_none() && asked.area.is_all();
        match is_for_all {
            true => self.kept(line),
            false => {
                let why = "responses of all paths are compressed";
                self.shared.report.changed(&line.place, &line.shown(), why);
            }
        }
    }
}

/// What words do: `+Name value`, `-Name`, `>Name value`, `Name value`.
fn change(words: &[String]) -> Result<HeaderChange, String> {
    let (field, value) = (words[0].trim_end_matches(':'), words.get(1).cloned());
    if words.len() > 2 {
        return Err("a part of a value is not replaced: set the whole header".to_owned());
    }
    if value.as_ref().is_some_and(|value| value.contains('{') && value.contains('}')) {
        return Err("its value is not fixed".to_owned());
    }
    let name = |start: char| field.strip_prefix(start).map(str::to_owned);
    if let Some(name) = name('-') {
        return match name.contains('*') {
            true => Err("write each name in `unset` of `headers`".to_owned()),
            false => Ok(HeaderChange::Unset(name)),
        };
    }
    if name('?').is_some() {
        return Err("a header that scripts may replace has no counterpart; `headers` replace \
                    those of scripts"
            .to_owned());
    }
    let value = value.unwrap_or_default();
    if let Some(name) = name('+') {
        return Ok(HeaderChange::Add(name, value));
    }
    let field = field.strip_prefix('>').unwrap_or(field);
    Ok(HeaderChange::Set(field.to_owned(), value))
}

fn header_table(pattern: &str, change: &HeaderChange) -> String {
    let mut fields = Vec::new();
    if pattern != "/*" {
        fields.push(("path", toml_text::string(pattern)));
    }
    fields.push(match change {
        HeaderChange::Set(name, value) => {
            ("set", toml_text::table([(name, toml_text::string(value))]))
        }
        HeaderChange::Add(name, value) => {
            ("add", toml_text::table([(name, toml_text::string(value))]))
        }
        HeaderChange::Unset(name) => ("unset", toml_text::strings([name])),
    });
    toml_text::table(fields)
}

/// A size such as `10MB` (powers of 1000) or `10MiB`, in bytes.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" | "ki" => 1 << 10,
        "mib" | "mi" => 1 << 20,
        "gib" | "gi" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}
