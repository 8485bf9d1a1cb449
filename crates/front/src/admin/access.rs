//! Access control for the admin listener. Pure: peer, settings and header in, a decision out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maitred_config::{AdminAccess, AdminToken};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::net::admin_peer::AdminPeer;
use crate::pool::status::View;

/// Longest header with a token that is looked at, in bytes.
const AUTHORIZATION_BYTES: usize = 1024;

/// The reason why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The token is missing or wrong.
    NoToken,
    /// The user of the peer has no access.
    WrongUser,
    /// A reload has removed the listener.
    NoListener,
}

/// The pages that a client with this `Authorization` header may read.
///
/// # Errors
/// Why it may not.
pub fn decide(
    access: &AdminAccess,
    peer: AdminPeer,
    authorization: Option<&[u8]>,
) -> Result<View, Refused> {
    let has_token = |token: &AdminToken| authorization.is_some_and(|field| is_token(field, token));
    if access.token.as_ref().is_some_and(has_token) || is_known(access, peer) {
        return Ok(View::Whole);
    }
    match peer {
        AdminPeer::Unix(_) => Err(Refused::WrongUser),
        AdminPeer::Tcp if access.token.is_some() => Err(Refused::NoToken),
        AdminPeer::Tcp if access.has_several_users => Ok(View::WithoutRequests),
        AdminPeer::Tcp => Ok(View::WithoutQueries),
    }
}

/// The header with the token for purges. A browser sends it from another host's page only if this
/// server allowed that, and never by itself, as it does with a password or a cookie.
pub const PURGE_TOKEN_HEADER: &str = "x-maitred-purge-token";

/// Whether a client with this value of [`PURGE_TOKEN_HEADER`] may purge cached pages.
pub fn may_purge(access: &AdminAccess, sent: Option<&[u8]>) -> bool {
    let sent = sent.filter(|sent| sent.len() <= AUTHORIZATION_BYTES);
    match (&access.purge_token, sent) {
        (Some(token), Some(sent)) => is_same(sent, token),
        _ => false,
    }
}

fn is_known(access: &AdminAccess, peer: AdminPeer) -> bool {
    let AdminPeer::Unix(Some((uid, gid))) = peer else {
        return false;
    };
    uid == 0 || access.users.contains(&uid) || access.group == Some(gid)
}

/// Whether the `Authorization` header carries the token (RFC 6750 §2.1), or as a password of any
/// user (RFC 7617), which is what a browser can send. The comparison takes as
/// long whatever was sent.
fn is_token(field: &[u8], token: &AdminToken) -> bool {
    let field = field.get(..field.len().min(AUTHORIZATION_BYTES)).unwrap_or_default();
    let after = |scheme: &[u8]| {
        let (start, rest) = field.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| rest.trim_ascii())
    };
    let password = || {
        let pair = BASE64.decode(after(b"Basic ")?).ok()?;
        let colon = memchr::memchr(b':', &pair)?;
        pair.get(colon + 1..).map(<[u8]>::to_vec)
    };
    let sent = after(b"Bearer ").map(<[u8]>::to_vec).or_else(password);
    is_same(sent.as_deref().unwrap_or_default(), token) && sent.is_some()
}

fn is_same(sent: &[u8], token: &AdminToken) -> bool {
    let hash: [u8; 32] = Sha256::digest(sent).into();
    hash.ct_eq(token.hash()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "correct-horse-battery";

    fn access() -> AdminAccess {
        AdminAccess { users: vec![33], group: Some(44), ..AdminAccess::default() }
    }

    fn with_token() -> AdminAccess {
        AdminAccess { token: AdminToken::new(TOKEN), ..access() }
    }

    #[test]
    fn a_client_that_nobody_knows_is_shown_no_query_and_nothing_of_other_tenants() {
        let seen = |access: &AdminAccess| decide(access, AdminPeer::Tcp, None);
        assert_eq!(seen(&access()), Ok(View::WithoutQueries));
        let several = AdminAccess { has_several_users: true, ..access() };
        assert_eq!(seen(&several), Ok(View::WithoutRequests));
    }

    #[test]
    fn a_purge_needs_its_own_token_whatever_else_is_sent() {
        assert!(!may_purge(&with_token(), Some(TOKEN.as_bytes())), "purges are off");
        let access =
            AdminAccess { purge_token: AdminToken::new("another-horse-1"), ..with_token() };
        assert!(access.purge_token.is_none(), "it is too short");
        let access =
            AdminAccess { purge_token: AdminToken::new("another-horse-battery"), ..with_token() };
        assert!(may_purge(&access, Some(b"another-horse-battery")));
        for wrong in [None, Some(&b""[..]), Some(TOKEN.as_bytes()), Some(&[b'x'; 5000])] {
            assert!(!may_purge(&access, wrong));
        }
    }

    #[test]
    fn over_a_unix_socket_the_system_says_who_it_is() {
        let seen = |peer| decide(&access(), AdminPeer::Unix(peer), None);
        for known in [(0, 0), (33, 1), (1, 44)] {
            assert_eq!(seen(Some(known)), Ok(View::Whole), "{known:?}");
        }
        assert_eq!(seen(Some((1, 1))), Err(Refused::WrongUser));
        assert_eq!(seen(None), Err(Refused::WrongUser));
    }

    #[test]
    fn a_token_shows_everything_and_without_it_nothing_is_shown() {
        let seen = |peer, field: &str| decide(&with_token(), peer, Some(field.as_bytes()));
        let right = format!("bearer  {TOKEN} ");
        for peer in [AdminPeer::Tcp, AdminPeer::Unix(Some((1, 1)))] {
            assert_eq!(seen(peer, &right), Ok(View::Whole));
        }
        for user in ["", "admin", "a b"] {
            let pair = BASE64.encode(format!("{user}:{TOKEN}"));
            assert_eq!(seen(AdminPeer::Tcp, &format!("basic {pair}")), Ok(View::Whole));
        }
        let pair = BASE64.encode(format!("{TOKEN}:"));
        assert_eq!(seen(AdminPeer::Tcp, &format!("Basic {pair}")), Err(Refused::NoToken));
        let long = format!("Bearer {TOKEN}{}", "x".repeat(4096));
        for wrong in ["", "Bearer", "Bearer ", "Basic x", TOKEN, "Bearer correct-horse", &long] {
            assert_eq!(seen(AdminPeer::Tcp, wrong), Err(Refused::NoToken), "{wrong}");
        }
        assert_eq!(decide(&with_token(), AdminPeer::Tcp, None), Err(Refused::NoToken));
    }
}
