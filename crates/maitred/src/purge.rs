//! `maitred purge`: drops cached pages of a running server.

use std::process::ExitCode;

use maitred_control::admin::{MAX_REQUEST_BYTES, Reply, Request};
use maitred_control::purge::{PurgeMode, PurgeRequest, Target, TooLong};
use serde_json::json;

use crate::client::{Client, UNEXPECTED};
use crate::command::Purge;
use crate::exit_code::{EXIT_SUCCESS, EXIT_UNCONFIRMED, complain, fail, refuse};

/// Most targets that the result names.
const MAX_NAMED: usize = 20;

/// Bytes of a request beside its targets.
const REQUEST_FRAME_BYTES: usize = 64;

/// Drops pages, and prints which.
pub fn purge(asked: &Purge) -> ExitCode {
    let targets = targets(asked);
    if targets.is_empty() {
        return refuse(
            &"nothing to purge: name URLs, or use --prefix, --host, --tag or --everything",
        );
    }
    let requests = match requests(asked, targets) {
        Ok(requests) => requests,
        Err(why) => return refuse(&why),
    };
    let mut client = match Client::reach(&asked.reach) {
        Ok(client) => client,
        Err(why) => return fail(&why),
    };
    let (mut dropped, mut complaint) = (Vec::new(), None);
    for request in requests {
        match client.ask_patiently(&request) {
            Ok(Reply::Purged { what }) => dropped.extend(what),
            Ok(Reply::PurgedHere { what, why }) => {
                dropped.extend(what);
                complaint = Some(why);
            }
            Ok(Reply::Refused { why }) => return refuse(&why),
            Ok(Reply::Failed { why }) | Err(why) => return fail(&why),
            Ok(_) => return fail(&UNEXPECTED),
        }
    }
    let json = match &complaint {
        None => json!({ "purged": dropped, "soft": asked.soft }),
        Some(why) => json!({ "purged": dropped, "soft": asked.soft, "unconfirmed": why }),
    };
    match (asked.json.publish(&json.to_string(), || line(&dropped, asked.soft)), complaint) {
        (Ok(()), None) => ExitCode::from(EXIT_SUCCESS),
        (Ok(()), Some(why)) => {
            complain(&format!("not purged everywhere: {why}"));
            ExitCode::from(EXIT_UNCONFIRMED)
        }
        (Err(why), _) => fail(&why),
    }
}

fn targets(asked: &Purge) -> Vec<Target> {
    let urls = asked.urls.iter().cloned().map(Target::Url);
    let prefixes = asked.prefix.iter().cloned().map(Target::Prefix);
    let hosts = asked.host.iter().cloned().map(Target::Host);
    let tags = asked.tag.iter().cloned().map(Target::Tag);
    let everything = asked.everything.then_some(Target::Everything);
    let all = urls.chain(prefixes).chain(hosts).chain(tags);
    all.chain(everything).collect()
}

/// The targets, in as few requests as possible.
fn requests(asked: &Purge, targets: Vec<Target>) -> Result<Vec<Request>, String> {
    let how = if asked.soft { PurgeMode::Soft } else { PurgeMode::Hard };
    let all = PurgeRequest {
        targets,
        how,
        site: asked.site.as_ref().map(|site| site.to_ascii_lowercase()),
    };
    let parts = all.split(MAX_REQUEST_BYTES - REQUEST_FRAME_BYTES);
    let parts = parts.map_err(|TooLong| {
        format!(
            "a target may have at most {MAX_REQUEST_BYTES} bytes; use a shorter --prefix or --tag"
        )
    })?;
    Ok(parts.into_iter().map(Request::Purge).collect())
}

fn line(dropped: &[String], soft: bool) -> String {
    let done = if soft { "marked stale" } else { "dropped" };
    let named = dropped.iter().take(MAX_NAMED).map(String::as_str);
    let mut named: Vec<&str> = named.collect();
    let more = dropped.len().saturating_sub(MAX_NAMED);
    let more = format!("{more} more");
    if dropped.len() > MAX_NAMED {
        named.push(&more);
    }
    format!("{done}: {}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command::{Command, Maitred};

    fn read(arguments: &[&str]) -> Purge {
        let line = ["maitred", "purge"].iter().chain(arguments);
        match Maitred::parse_from(line).command {
            Command::Purge(purge) => purge,
            other => panic!("purge, not {other:?}"),
        }
    }

    #[test]
    fn all_kinds_can_be_asked_for_together() {
        let asked = read(&[
            "https://a/x",
            "b/y",
            "--tag",
            "t",
            "--prefix",
            "/p",
            "--host",
            "h",
            "--soft",
            "--site",
            "S",
        ]);
        let requests = requests(&asked, targets(&asked)).unwrap();
        let Request::Purge(one) = &requests[0] else { panic!("a purge") };
        assert_eq!((requests.len(), one.targets.len()), (1, 5));
        assert_eq!(one.how, PurgeMode::Soft);
        assert_eq!(one.site.as_deref(), Some("s"));
    }

    #[test]
    fn many_are_asked_for_in_several_requests_and_one_that_is_too_long_in_none() {
        let asked = read(&["--everything"]);
        let many = vec![Target::Tag("t".repeat(100)); 100];
        let several = requests(&asked, many).unwrap();
        let mut count = 0;
        for request in &several {
            assert!(serde_json::to_vec(request).unwrap().len() < MAX_REQUEST_BYTES);
            let Request::Purge(one) = request else { panic!("a purge") };
            count += one.targets.len();
        }
        assert_eq!((count, several.len()), (100, 3));
        let long = vec![Target::Tag("t".repeat(5000))];
        assert!(requests(&asked, long).is_err());
    }

    #[test]
    fn the_line_that_says_what_was_dropped_is_bounded() {
        let dropped = vec!["a/x".to_owned(); 30];
        assert!(line(&dropped, true).starts_with("marked stale: a/x, "));
        assert!(line(&dropped, false).ends_with("a/x, 10 more"));
    }
}
