//! Differences between nginx or Apache and maitred that every site has, with their reasons.

use crate::difference::{Aspect, Difference};
use crate::probe::{ProbeForm, Responses, ServerResponse};

/// What is known of a request besides the responses.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    /// The request target.
    pub target: &'a str,
    /// The form of the request.
    pub form: &'a ProbeForm,
    /// Whether the new server runs the front controller for it.
    pub runs_front_controller: bool,
    /// Whether the old server passes it to PHP.
    pub is_for_php: bool,
    /// Whether a rule of the old server refuses it.
    pub is_refused: bool,
}

/// Statuses of refusals.
const REFUSALS: [u16; 6] = [400, 401, 403, 404, 405, 410];

/// Media types whose scripts a browser runs.
const RUN_BY_BROWSERS: [&str; 4] =
    ["text/html", "application/xhtml+xml", "image/svg+xml", "text/xml"];

/// The title of a folder's listing.
const LISTING: &[u8] = b"<title>Index of /";

/// The reason of a difference that every site has, if it is one.
pub fn accepted(
    difference: &Difference,
    responses: &Responses,
    facts: RequestFacts<'_>,
) -> Option<&'static str> {
    let (old, new) = (&responses.old[0], &responses.new);
    let has_path_info = facts.target.to_ascii_lowercase().contains(".php/");
    let is_missing = old.status == 404 && !facts.is_refused;
    if has_path_info && (old.shows() || is_missing) && new.shows() {
        return Some("maitred runs the script before the slash; the rest is its PATH_INFO");
    }
    if has_path_info && old.shows() && new.status == 403 {
        return Some("maitred applies the rules of the script before the slash");
    }
    let path = facts.target.split('?').next().unwrap_or_default();
    // A script that the old server runs may be missing here.
    let is_of_old =
        facts.is_for_php && path.ends_with(".php") && !shows_source(old) && old.body != new.body;
    let is_script = path.to_ascii_lowercase().ends_with(".php") && !is_of_old;
    if is_script && facts.runs_front_controller && old.shows() && new.shows() {
        return Some("a .php path without a file is one of the front controller");
    }
    match &difference.aspect {
        Aspect::Status => status(responses, facts),
        Aspect::Header(name) if name == "content-encoding" => Some(
            "maitred compresses text unless `compression = false`, the old server by its settings",
        ),
        Aspect::Header(name)
            if name == "content-type" && [old.status, new.status] == [304, 304] =>
        {
            difference.old.is_empty().then_some("a 304 has the headers that `headers` sets")
        }
        Aspect::Header(name) if name == "content-type" && difference.old.is_empty() => {
            let is_harmless = !RUN_BY_BROWSERS.contains(&new.media_type());
            is_harmless.then_some("maitred's table has a type for these files, or octet-stream")
        }
        Aspect::Header(name) if name == "content-type" => {
            let is_same = old.media_type().eq_ignore_ascii_case(new.media_type());
            let adds = new.header("content-type")?.len() >= old.header("content-type")?.len();
            let scripts = [old.media_type(), new.media_type()];
            match scripts == ["application/javascript", "text/javascript"] {
                true => Some("the media type of scripts is text/javascript (RFC 9239)"),
                false if !is_same && have_one_meaning(scripts) => {
                    Some("the media type has two names; maitred sends the one of its own table")
                }
                false => (is_same && adds)
                    .then_some("maitred adds the charset to the types of text files"),
            }
        }
        Aspect::Header(name) if name == "etag" || name == "last-modified" => {
            let is_weak = facts.form == &ProbeForm::Gzip;
            is_weak.then_some("a compressed response has validators of its own")
        }
        Aspect::Body if [old, new].iter().all(|response| is_listing(response)) => {
            Some("listings of folders have one form in maitred")
        }
        Aspect::Header(name) if name == "x-content-type-options" && difference.old.is_empty() => {
            Some("maitred adds it to files")
        }
        _ => None,
    }
}

/// Whether two media types are names of one: `text/x-perl` and `application/x-perl`.
fn have_one_meaning(names: [&str; 2]) -> bool {
    let [(first, one), (second, other)] =
        names.map(|name| name.split_once('/').unwrap_or_default());
    let plain = |name: &str| match name {
        "vnd.microsoft.icon" => "icon".to_owned(),
        name => name.trim_start_matches("x-").to_ascii_lowercase(),
    };
    let is_text = |name: &str| ["text", "application"].contains(&name);
    !one.is_empty()
        && plain(one) == plain(other)
        && (first == second || is_text(first) && is_text(second))
}

/// Whether a response is the source of a script.
fn shows_source(response: &ServerResponse) -> bool {
    response.shows() && response.body.windows(5).any(|part| part == b"<?php")
}

/// Whether a response is the listing of a folder.
fn is_listing(response: &ServerResponse) -> bool {
    response.body.windows(LISTING.len()).any(|part| part == LISTING)
}

fn status(responses: &Responses, facts: RequestFacts<'_>) -> Option<&'static str> {
    let (old, new) = (&responses.old[0], &responses.new);
    if REFUSALS.contains(&old.status) && REFUSALS.contains(&new.status) {
        return Some("both refuse it, with different statuses");
    }
    if facts.is_for_php && [old.status, new.status] == [206, 200] {
        return Some("a range of a script's response is the whole response");
    }
    let path = facts.target.split('?').next().unwrap_or_default();
    if new.status == 404 && path.contains("/.") {
        return Some("maitred serves no names that begin with a dot");
    }
    let slash = format!("{path}/");
    let is_folder = old.header("location").is_some_and(|to| to.ends_with(&slash));
    if old.status == 301 && is_folder && (new.status >= 400 || facts.runs_front_controller) {
        return Some("a folder without an index file is not redirected to its slash");
    }
    let is_script = path.to_ascii_lowercase().contains(".php");
    let is_odd = path.contains("%00") || path.contains("%2e") || path.contains("%2E");
    if new.status >= 400 && shows_source(old) && is_script {
        return Some("the old server shows the source of a script; maitred never does");
    }
    if is_odd && new.status == 400 {
        return Some("maitred refuses this spelling of a path");
    }
    if facts.runs_front_controller && REFUSALS.contains(&old.status) {
        return match (is_script, path.ends_with('/')) {
            (true, _) => Some("a .php path without a file is one of the front controller"),
            (false, true) => Some("a folder without an index file is one of the front controller"),
            _ if facts.is_for_php => Some("a path without a script is one of the front controller"),
            _ => None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(old: (u16, &str), new: u16, target: &str, runs: bool) -> Option<&'static str> {
        let response = |status: u16, body: &str| ServerResponse {
            status,
            body: body.as_bytes().to_vec(),
            ..ServerResponse::default()
        };
        let old = response(old.0, old.1);
        let responses = Responses { old: [old.clone(), old], new: response(new, "") };
        let form = ProbeForm::Get;
        let facts = RequestFacts {
            target,
            form: &form,
            runs_front_controller: runs,
            is_for_php: target.starts_with("/tool"),
            is_refused: target.starts_with("/refused/"),
        };
        let difference =
            Difference { aspect: Aspect::Status, old: String::new(), new: String::new() };
        accepted(&difference, &responses, facts)
    }

    #[test]
    fn only_refusals_on_both_sides_are_alike() {
        assert!(reason((403, ""), 404, "/a", false).is_some());
        assert!(reason((403, ""), 200, "/a", false).is_none());
        assert!(reason((200, ""), 403, "/a", false).is_none());
        assert!(reason((301, ""), 404, "/a", false).is_none());
    }

    #[test]
    fn names_of_one_media_type_are_alike() {
        for (names, alike) in [
            (["text/x-perl", "application/x-perl"], true),
            (["image/vnd.microsoft.icon", "image/x-icon"], true),
            (["application/xml", "text/xml"], true),
            (["text/html", "text/plain"], false),
            (["text/plain", "text/html"], false),
            (["", ""], false),
        ] {
            assert_eq!(have_one_meaning(names), alike, "{names:?}");
        }
    }

    #[test]
    fn sources_and_missing_scripts_have_their_reasons() {
        assert!(reason((200, "<?php echo 1;"), 404, "/a.php.", false).is_some());
        assert!(reason((404, ""), 200, "/a.php", true).is_some());
        assert!(reason((404, ""), 200, "/a.php", false).is_none());
        assert!(reason((404, ""), 200, "/a.txt", true).is_none());
        assert!(reason((403, ""), 200, "/a.php/x", false).is_none());
        assert!(reason((404, ""), 200, "/a.php/x", false).is_some());
        assert!(reason((404, ""), 200, "/refused/a.php/x", false).is_none());
        assert!(reason((200, "a page"), 200, "/tool.php", true).is_none());
        assert!(reason((200, "<?php echo 1;"), 200, "/tool.php", true).is_some());
        assert!(reason((200, "a page"), 200, "/TOOL.PHP", true).is_some());
        assert!(reason((200, ""), 403, "/a.php/x", false).is_some());
        assert!(reason((200, ""), 404, "/.a", false).is_some());
        assert!(reason((200, ""), 404, "/a", false).is_none());
    }
}
