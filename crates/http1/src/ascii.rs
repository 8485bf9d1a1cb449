//! Character classes of RFC 9110 §5.6.

/// Whether `byte` is a token character (RFC 9110 §5.6.2): methods and header names are tokens.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// Whether `bytes` is a token: non-empty, and token characters only.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| is_token_byte(byte))
}

/// Whether `byte` is valid in a field value (RFC 9110 §5.5): no control character but HTAB.
pub(crate) const fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether `bytes` is a field value without white space around it (RFC 9113 §8.2.1).
pub(crate) fn is_value(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| is_value_byte(byte)) && trim(bytes).len() == bytes.len()
}

/// The members of a comma-separated list (RFC 9110 §5.6.1) without the white space around them;
/// empty ones are ignored.
pub(crate) fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}

/// `bytes` without the optional white space (space and tab only, RFC 9110 §5.6.3) at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

const TOKEN_BYTES: [bool; 256] = {
    let punctuation = b"!#$%&'*+-.^_`|~";
    let mut table = [false; 256];
    let mut index = 0;
    while index < 256 {
        table[index] = (index as u8).is_ascii_alphanumeric();
        index += 1;
    }
    index = 0;
    while index < punctuation.len() {
        table[punctuation[index] as usize] = true;
        index += 1;
    }
    table
};
