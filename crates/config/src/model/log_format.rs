//! The format of the access log, in nginx's variables.
//!
//! A format that starts with `{` is JSON: values are escaped for it, and missing ones are `null`.
//! In any other format, bytes that could end a line or a quoted value are written as `\xHH`, and
//! missing values are `-`, both as in nginx.

use serde::{Deserialize, Serialize};

use crate::mistakes::quoted;

/// Longest format in bytes.
const MAX_FORMAT_BYTES: usize = 4096;

/// The combined log format of Apache and nginx, followed by the seconds in the queue, the seconds
/// that the script ran, and the request id.
pub const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                            $body_bytes_sent \"$http_referer\" \"$http_user_agent\" $queue_time \
                            $script_time $request_id";

/// One JSON object.
pub const JSON: &str = "{\"time\":$msec,\"request_id\":\"$request_id\",\
                        \"trace_id\":\"$trace_id\",\
                        \"remote_addr\":\"$remote_addr\",\"scheme\":\"$scheme\",\
                        \"host\":\"$host\",\"method\":\"$request_method\",\
                        \"target\":\"$request_uri\",\"protocol\":\"$server_protocol\",\
                        \"status\":$status,\"bytes\":$body_bytes_sent,\
                        \"referer\":\"$http_referer\",\"user_agent\":\"$http_user_agent\",\
                        \"pool\":\"$pool\",\"cache\":\"$upstream_cache_status\",\
                        \"request_time\":$request_time,\
                        \"queue_time\":$queue_time,\"script_time\":$script_time,\
                        \"cpu_time\":$cpu_time,\"core_wait_time\":$core_wait_time,\
                        \"blocked_time\":$blocked_time,\
                        \"children_cpu_time\":$children_cpu_time,\
                        \"peak_memory\":$peak_memory}";

/// The names of the formats of a development server, without and with colours. No setting names
/// them.
const TERMINAL: [&str; 2] = ["terminal", "terminal with colors"];

/// The line of a development server.
const TERMINAL_LINE: &str = "$request_method $request_uri $status $request_ms ms";

/// The control sequence that ends a colour.
const NO_COLOR: &str = "\x1b[0m";

/// A checked format. It is serialized as its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LogFormat {
    text: String,
    parts: Vec<Part>,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Literal text.
    Text(String),
    /// The value of a variable.
    Value(Variable, Quoting),
    /// The control sequence for the colour of the status (ECMA-48, SGR).
    StatusColor,
}

/// The context of a value, which decides its escaping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// In a line of text.
    Line,
    /// A whole JSON string with its quotes.
    JsonString,
    /// Within a JSON string.
    WithinString,
    /// A JSON number.
    JsonNumber,
}

/// A variable of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// `$remote_addr`: the client's address, as set by a trusted proxy if there is one.
    RemoteAddr,
    /// `$remote_user`: the user of Basic authentication (RFC 7617), checked by the server or the
    /// script.
    RemoteUser,
    /// `$time_local`: `20/Nov/2026:10:14:30 +0100`.
    TimeLocal,
    /// `$time_iso8601`: `2026-11-20T10:14:30+01:00`.
    TimeIso8601,
    /// `$msec`: seconds since 1970, with three decimals.
    Msec,
    /// `$request`: the request line.
    Request,
    /// `$request_method`.
    Method,
    /// `$request_uri`: path and query as the client sent them.
    RequestUri,
    /// `$uri`: the path as the client sent it.
    Uri,
    /// `$args`: the query.
    Args,
    /// `$is_args`: `?` if there is a query.
    IsArgs,
    /// `$server_protocol`.
    Protocol,
    /// `$scheme`: `http` or `https`.
    Scheme,
    /// `$host`: the requested host, without its port.
    Host,
    /// `$status`.
    Status,
    /// `$body_bytes_sent`.
    BodyBytesSent,
    /// `$bytes_sent`: response header and body.
    BytesSent,
    /// `$request_length`: bytes of header and body.
    RequestLength,
    /// `$request_time`, `$request_ms`: from the complete request header to the last byte of the
    /// response.
    RequestTime(Unit),
    /// `$queue_time`, `$queue_ms`: time in the queue for a worker.
    QueueTime(Unit),
    /// `$script_time`, `$script_ms`: run time of its script.
    ScriptTime(Unit),
    /// `$cpu_time`, `$cpu_ms`: processor time, in the worker.
    CpuTime(Unit),
    /// `$core_wait_time`, `$core_wait_ms`: time waiting for a processor.
    CoreWaitTime(Unit),
    /// `$blocked_time`, `$blocked_ms`: time in which its script was blocked: on a database, a disk,
    /// a sleep.
    BlockedTime(Unit),
    /// `$children_cpu_time`, `$children_cpu_ms`: processor time of child processes of its script.
    ChildrenCpuTime(Unit),
    /// `$peak_memory`: the peak memory of its script, in bytes.
    PeakMemory,
    /// `$upstream_response_time`: queue and script time, which is nginx's view of a php-fpm.
    UpstreamTime,
    /// `$request_id`.
    RequestId,
    /// `$trace_id`: the id of its trace.
    TraceId,
    /// `$pool`: the pool that ran its script.
    Pool,
    /// `$upstream_cache_status`: the result of the page cache, in nginx's words: `HIT`, `MISS`,
    /// `EXPIRED`, `BYPASS`, `STALE`, `UPDATING`, `REVALIDATED`.
    CacheStatus,
    /// `$ssl_protocol`, such as `TLSv1.3`.
    SslProtocol,
    /// `$ssl_cipher`, by OpenSSL's name.
    SslCipher,
    /// `$pid`: the process id of the front.
    Pid,
    /// `$http_NAME`: a request header, by its name with dashes.
    Header(String),
}

/// The unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, with six decimals.
    Seconds,
    /// Thousandths of a second, with three decimals.
    Milliseconds,
}

/// The variables except those of headers, and whether each is a number.
const VARIABLES: [(&str, Variable, bool); 42] = [
    ("remote_addr", Variable::RemoteAddr, false),
    ("remote_user", Variable::RemoteUser, false),
    ("time_local", Variable::TimeLocal, false),
    ("time_iso8601", Variable::TimeIso8601, false),
    ("msec", Variable::Msec, true),
    ("request", Variable::Request, false),
    ("request_method", Variable::Method, false),
    ("request_uri", Variable::RequestUri, false),
    ("uri", Variable::Uri, false),
    ("document_uri", Variable::Uri, false),
    ("args", Variable::Args, false),
    ("query_string", Variable::Args, false),
    ("is_args", Variable::IsArgs, false),
    ("server_protocol", Variable::Protocol, false),
    ("scheme", Variable::Scheme, false),
    ("host", Variable::Host, false),
    ("status", Variable::Status, true),
    ("body_bytes_sent", Variable::BodyBytesSent, true),
    ("bytes_sent", Variable::BytesSent, true),
    ("request_length", Variable::RequestLength, true),
    ("request_time", Variable::RequestTime(Unit::Seconds), true),
    ("request_ms", Variable::RequestTime(Unit::Milliseconds), true),
    ("queue_time", Variable::QueueTime(Unit::Seconds), true),
    ("queue_ms", Variable::QueueTime(Unit::Milliseconds), true),
    ("script_time", Variable::ScriptTime(Unit::Seconds), true),
    ("script_ms", Variable::ScriptTime(Unit::Milliseconds), true),
    ("cpu_time", Variable::CpuTime(Unit::Seconds), true),
    ("cpu_ms", Variable::CpuTime(Unit::Milliseconds), true),
    ("core_wait_time", Variable::CoreWaitTime(Unit::Seconds), true),
    ("core_wait_ms", Variable::CoreWaitTime(Unit::Milliseconds), true),
    ("blocked_time", Variable::BlockedTime(Unit::Seconds), true),
    ("blocked_ms", Variable::BlockedTime(Unit::Milliseconds), true),
    ("children_cpu_time", Variable::ChildrenCpuTime(Unit::Seconds), true),
    ("children_cpu_ms", Variable::ChildrenCpuTime(Unit::Milliseconds), true),
    ("peak_memory", Variable::PeakMemory, true),
    ("upstream_response_time", Variable::UpstreamTime, true),
    ("request_id", Variable::RequestId, false),
    ("trace_id", Variable::TraceId, false),
    ("pool", Variable::Pool, false),
    ("upstream_cache_status", Variable::CacheStatus, false),
    ("ssl_protocol", Variable::SslProtocol, false),
    ("ssl_cipher", Variable::SslCipher, false),
];

impl Variable {
    /// The variable of this name, and whether it is a number.
    fn named(name: &str) -> Result<(Variable, bool), String> {
        if name == "pid" {
            return Ok((Variable::Pid, true));
        }
        if let Some(field) = name.strip_prefix("http_").filter(|field| !field.is_empty()) {
            return Ok((Variable::Header(field.replace('_', "-")), false));
        }
        let mut known = VARIABLES.iter();
        if let Some((_, variable, is_number)) = known.find(|(known, ..)| *known == name) {
            return Ok((variable.clone(), *is_number));
        }
        let names = || VARIABLES.iter().map(|(name, ..)| *name);
        let far = name.len().div_ceil(3).min(4);
        let near = names()
            .map(|known| (strsim::damerau_levenshtein(name, known), known))
            .filter(|(distance, _)| *distance <= far)
            .min_by_key(|(distance, _)| *distance);
        let advice = match near {
            Some((_, near)) => format!("did you mean `${near}`?"),
            None => {
                let all: Vec<String> = names().map(|name| format!("${name}")).collect();
                format!("expected $http_NAME or one of {}", all.join(", "))
            }
        };
        let name = quoted(name);
        Err(format!("has the unknown variable `${name}`; {advice}"))
    }
}

impl LogFormat {
    /// Parses a format, or looks up one of the named formats.
    ///
    /// # Errors
    /// The reason, as the end of a sentence that starts with the setting's name.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        let template = match text {
            "combined" => COMBINED,
            "json" => JSON,
            _ if text.len() > MAX_FORMAT_BYTES => {
                let found = text.len();
                return Err(format!("has {found} bytes; expected at most {MAX_FORMAT_BYTES}"));
            }
            _ if text.contains(|c: char| c.is_control() && c != '\t') => {
                return Err("has a control character in it; a request is one line".to_owned());
            }
            _ if !text.contains('$') => {
                return Err("has no variable; expected \"combined\", \"json\" or a text such as \
                            \"$remote_addr $status $request_ms\""
                    .to_owned());
            }
            _ => text,
        };
        let parts = match template.starts_with('{') {
            true => json_parts(template)?,
            false => parts(template, |_, _| Ok(Quoting::Line))?,
        };
        Ok(LogFormat { text: text.to_owned(), parts })
    }

    /// The format of a development server: method, path, status, time.
    pub fn terminal(colors: bool) -> LogFormat {
        let text = TERMINAL[usize::from(colors)].to_owned();
        let plain = parts(TERMINAL_LINE, |_, _| Ok(Quoting::Line)).unwrap_or_default();
        let mut parts = Vec::new();
        for part in plain {
            let is_status = matches!(part, Part::Value(Variable::Status, _));
            if colors && is_status {
                parts.extend([Part::StatusColor, part, Part::Text(NO_COLOR.to_owned())]);
            } else {
                parts.push(part);
            }
        }
        LogFormat { text, parts }
    }

    /// The parts of a line.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether a line contains the cost of a script: its run time or a part of it.
    pub fn tells_costs(&self) -> bool {
        self.parts.iter().any(|part| match part {
            Part::Text(_) | Part::StatusColor => false,
            Part::Value(variable, _) => matches!(
                variable,
                Variable::ScriptTime(_)
                    | Variable::CpuTime(_)
                    | Variable::CoreWaitTime(_)
                    | Variable::BlockedTime(_)
                    | Variable::ChildrenCpuTime(_)
                    | Variable::PeakMemory
            ),
        })
    }
}

impl Default for LogFormat {
    fn default() -> LogFormat {
        LogFormat {
            text: "combined".to_owned(),
            // It parses, as a test shows.
            parts: parts(COMBINED, |_, _| Ok(Quoting::Line)).unwrap_or_default(),
        }
    }
}

impl From<LogFormat> for String {
    fn from(format: LogFormat) -> String {
        format.text
    }
}

impl TryFrom<String> for LogFormat {
    type Error = String;

    fn try_from(text: String) -> Result<LogFormat, String> {
        match TERMINAL.iter().position(|name| *name == text) {
            Some(colors) => Ok(LogFormat::terminal(colors == 1)),
            None => LogFormat::parse(&text),
        }
    }
}

/// Splits a template. `place` decides the context of a value by the text before it and by whether
/// it is a number.
fn parts(
    template: &str,
    mut place: impl FnMut(&str, (&str, bool)) -> Result<Quoting, String>,
) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('$') {
        let (name, after) = name(after)?;
        let (variable, is_number) = Variable::named(name)?;
        let place = place(text, (name, is_number))?;
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(Part::Value(variable, place));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

/// The name that follows a `$`, with or without braces.
fn name(after: &str) -> Result<(&str, &str), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if let Some(braced) = after.strip_prefix('{') {
        let closed = braced.split_once('}');
        let closed = closed.filter(|(name, _)| !name.is_empty() && name.chars().all(is_name));
        return closed.ok_or_else(|| "has a `${` without a name and a `}`".to_owned());
    }
    let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
    match end {
        0 => Err("has a `$` without the name of a variable".to_owned()),
        _ => Ok(after.split_at(end)),
    }
}

/// The parts of a JSON format, which must be valid JSON with any values.
fn json_parts(template: &str) -> Result<Vec<Part>, String> {
    let mut in_string = false;
    let place = |text: &str, (name, is_number): (&str, bool)| {
        in_string ^= quotes(text) % 2 == 1;
        match (in_string, is_number) {
            (true, _) => Ok(Quoting::WithinString),
            (false, true) => Ok(Quoting::JsonNumber),
            (false, false) => Err(format!(
                "has `${name}` without quotes, and it is text; write \"${name}\" in quotes"
            )),
        }
    };
    let mut parts = parts(template, place)?;
    take_quotes(&mut parts);
    let example: String = parts.iter().map(example).collect();
    match serde_json::from_str::<serde_json::Value>(&example) {
        Ok(_) => Ok(parts),
        Err(why) => Err(format!(
            "starts with `{{` and is no JSON ({why}); correct it, or start it with something else"
        )),
    }
}

/// The number of quotes without a backslash before them.
fn quotes(text: &str) -> usize {
    let mut escaped = false;
    let is_quote = |c: char| {
        let is_quote = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        is_quote
    };
    text.chars().map(is_quote).filter(|is| *is).count()
}

/// A value that is a whole string includes its quotes, so that it can be `null`.
fn take_quotes(parts: &mut Vec<Part>) {
    for at in 1..parts.len().saturating_sub(1) {
        let (before, rest) = parts.split_at_mut(at);
        let (Some(Part::Text(before)), [Part::Value(_, place), Part::Text(after), ..]) =
            (before.last_mut(), rest)
        else {
            continue;
        };
        let begins = before.ends_with('"') && !before.ends_with("\\\"");
        if *place == Quoting::WithinString && begins && after.starts_with('"') {
            *place = Quoting::JsonString;
            before.pop();
            after.remove(0);
        }
    }
    parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
}

fn example(part: &Part) -> String {
    match part {
        Part::Text(text) => text.clone(),
        Part::StatusColor => String::new(),
        Part::Value(_, Quoting::JsonString) => "null".to_owned(),
        Part::Value(_, Quoting::WithinString) => "a".to_owned(),
        Part::Value(_, Quoting::JsonNumber | Quoting::Line) => "1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        LogFormat::parse(text).unwrap_err()
    }

    #[test]
    fn the_formats_with_names_are_formats() {
        let combined = LogFormat::parse("combined").unwrap();
        assert_eq!(combined, LogFormat::default());
        assert_eq!(combined.parts().len(), 21);
        assert!(LogFormat::parse("json").is_ok());
    }

    #[test]
    fn variables_stand_in_text_with_and_without_braces() {
        let format = LogFormat::parse("a${status}b$http_user_agent").unwrap();
        let expected = [
            Part::Text("a".to_owned()),
            Part::Value(Variable::Status, Quoting::Line),
            Part::Text("b".to_owned()),
            Part::Value(Variable::Header("user-agent".to_owned()), Quoting::Line),
        ];
        assert_eq!(format.parts(), expected);
        let sent: String = format.clone().into();
        assert_eq!(LogFormat::try_from(sent).unwrap(), format);
    }

    #[test]
    fn values_in_json_know_whether_they_are_strings() {
        let text = r#"{"a": "$host", "b": $status, "c": "x $uri"}"#;
        let format = LogFormat::parse(text).unwrap();
        let places = format.parts().iter().filter_map(|part| match part {
            Part::Value(_, place) => Some(*place),
            Part::Text(_) | Part::StatusColor => None,
        });
        let expected = [Quoting::JsonString, Quoting::JsonNumber, Quoting::WithinString];
        assert_eq!(places.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(why("main").contains("has no variable"));
        assert!(why("$remote_adr").contains("did you mean `$remote_addr`?"));
        assert!(why("$sent_http_location").contains("expected $http_NAME or one of"));
        assert!(why("$status $").contains("without the name"));
        assert!(why("${status").contains("without a name and a `}`"));
        assert!(why("$status\n$uri").contains("control character"));
        assert!(why(r#"{"a": $uri}"#).contains("it is text"));
        assert!(why(r#"{"a": $status"#).contains("is no JSON"));
        assert!(why(&format!("$status{}", "x".repeat(4096))).contains("at most 4096"));
    }
}
