//! The parsers of what Redis sends, for fuzzing.

use maitred_redis::resp::{self, Malformed};

use crate::log_entry::EntryId;
use crate::member::{Member, MemberSettings, Round, Start};
use crate::node_figures;
use crate::wire;

/// The length of the reply at the start of these bytes, if it is complete.
///
/// # Errors
/// When it is none.
pub fn read_reply(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    Ok(resp::parse(bytes)?.map(|(_, length)| length))
}

/// Reads these bytes as replies to the commands of a round, and has a member act on them.
pub fn read_round(mut bytes: &[u8]) {
    let mut replies = Vec::new();
    while let Ok(Some((value, length))) = resp::parse(bytes) {
        replies.push(value);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    let round = Round {
        registration: String::new(),
        establish: None,
        add: Vec::new(),
        read_after: Some(EntryId::default()),
        forget: Vec::new(),
    };
    if let Ok((reply, _)) = wire::decode(&round, "a:b", &replies) {
        let settings = MemberSettings {
            node: "a".to_owned(),
            instance: "i".to_owned(),
            lease: 1000,
            timeout: 100,
            everything: String::new(),
        };
        let mut member = Member::new(settings, Start::Unknown);
        for now in 1..3 {
            member.round(now);
            member.replied(reply.clone(), now);
        }
    }
    if let Some(text) = replies.first().and_then(|value| value.text()) {
        // Its run, or a sentence.
        let _ = wire::run_of(text);
        let _ = node_figures::read_nodes(vec![("a".to_owned(), text.to_owned())], "a", 100);
    }
}
