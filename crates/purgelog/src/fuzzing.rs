//! The parsers of what Redis and other nodes send, for fuzzing.

use maitred_redis::resp::{self, Malformed};

use crate::log_entry::EntryId;
use crate::member::{Member, MemberSettings, Round, Start};
use crate::node_figures;
use crate::peers::PeerStep;
use crate::peers::followed_logs::{FollowSettings, FollowedLogs};
use crate::peers::own_log::{OwnLog, OwnLogSettings};
use crate::peers::peer_figures::PeerFigures;
use crate::peers::peer_messages::{LogName, PeerMessage};
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

/// Reads these bytes as messages of a node, and has both logs act on them. Returns how many there
/// were.
pub fn read_messages(mut bytes: &[u8]) -> usize {
    let log = LogName { server: 1, process: 1 };
    let own = OwnLogSettings { log, peers: 1, length: 8, timeout: 100 };
    let follow = FollowSettings { lease: 1000, positions: vec![None] };
    let (mut own, mut followed) = (OwnLog::new(own, 1), FollowedLogs::new(follow, 1));
    followed.connected(0, 1);
    let mut figures = PeerFigures::new("n", &[([127, 0, 0, 1], 1).into()], 1);
    let mut count = 0;
    while let Ok(Some((message, length))) = PeerMessage::parse(bytes) {
        bytes = bytes.get(length..).unwrap_or_default();
        count += 1;
        let now = 1 + count as u64;
        match &message {
            PeerMessage::Hello { known, .. } => drop(own.followed_by(0, now, *known)),
            PeerMessage::Applied { number } => drop(own.applied(0, now - 1, *number)),
            PeerMessage::Figures { .. } => figures.take(0, message.clone(), now),
            _ => {}
        }
        own.submit(now, String::new(), now);
        for step in followed.received(0, 1, message, now) {
            if let PeerStep::Apply { mark, .. } = step {
                followed.applied(mark, true, now);
            }
        }
    }
    assert!(figures.nodes(1, |_| true).nodes.len() <= 1, "of one peer");
    count
}

/// Whether the message at the start of these bytes is written as it was read.
pub fn is_written_as_read(bytes: &[u8]) -> bool {
    match PeerMessage::parse(bytes) {
        Ok(Some((message, _))) => {
            let written = message.encode();
            PeerMessage::parse(&written) == Ok(Some((message, written.len())))
        }
        Ok(None) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_messages_of_nodes_are_refused_or_acted_on() {
        let seeds: [&[u8]; 4] = [
            include_bytes!("../../../fuzz/seeds/purge_peers/follower"),
            include_bytes!("../../../fuzz/seeds/purge_peers/followed"),
            include_bytes!("../../../fuzz/seeds/purge_peers/reset"),
            include_bytes!("../../../fuzz/seeds/purge_peers/figures"),
        ];
        assert_eq!(seeds.map(read_messages), [3, 4, 2, 2]);
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..3).flat_map(|_| seeds[rng.usize(..4)]).copied().collect();
            for _ in 0..rng.usize(1..6) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            assert!(is_written_as_read(&bytes));
            read_messages(&bytes);
        }
    }
}
