//! The user of HTTP's Basic authentication (RFC 7617), as PHP decodes it.

use base64::Engine as _;

/// The scheme and the space before the credentials.
const BASIC: &str = "Basic ";

/// The user of Basic credentials in `HTTP_AUTHORIZATION` (`php_handle_auth_data`).
pub fn basic_user(authorization: &[u8]) -> Option<Vec<u8>> {
    let (scheme, credentials) = authorization.split_at_checked(BASIC.len())?;
    if !scheme.eq_ignore_ascii_case(BASIC.as_bytes()) {
        return None;
    }
    let engine = base64::engine::general_purpose::STANDARD;
    let decoded = engine.decode(credentials.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &decoded)?;
    Some(decoded[..colon].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_basic_credentials_is_known_and_no_other() {
        let user = |text: &str| basic_user(text.as_bytes());
        assert_eq!(user("Basic YW5uYTpzZWNyZXQ="), Some(b"anna".to_vec()));
        assert_eq!(user("basic YW5uYTpzZWNyZXQ="), Some(b"anna".to_vec()));
        for none in ["", "Basic", "Basic ", "Basic ?", "Bearer YW5uYTpzZWNyZXQ=", "Basic YW5uYQ=="]
        {
            assert_eq!(user(none), None, "{none}");
        }
    }
}
