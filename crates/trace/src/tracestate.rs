//! The header `tracestate` of W3C Trace Context: the state of tracing systems, passed on as it is
//! if it is valid, and dropped if not (Level 2, §3.3 and §4.3).

/// Most members of a list (§3.3.1.1).
const MAX_MEMBERS: usize = 32;

/// Longest list in bytes that is passed on; at least 512 have to be (§3.3.1.5).
const MAX_BYTES: usize = 2048;

/// Longest key and value of a member in bytes (§3.3.1.3).
const MAX_PART_BYTES: usize = 256;

/// The list of all header lines, joined (§3.3.1, RFC 9110 §5.3). None if it is empty or invalid.
pub fn of_header<'h>(values: impl Iterator<Item = &'h [u8]>) -> Option<String> {
    let mut list: Vec<&str> = Vec::new();
    let mut bytes = 0;
    for value in values {
        for member in value.split(|byte| *byte == b',') {
            // Only spaces and tabs are whitespace of a header (RFC 9110 §5.6.3).
            let member = trim(member);
            if member.is_empty() {
                continue;
            }
            bytes += member.len() + 1;
            if list.len() == MAX_MEMBERS || bytes > MAX_BYTES + 1 {
                return None;
            }
            let (key, _) = split(member)?;
            let is_double =
                list.iter().any(|known| split(known.as_bytes()).is_some_and(|k| k.0 == key));
            if is_double {
                return None;
            }
            list.push(std::str::from_utf8(member).ok()?);
        }
    }
    (!list.is_empty()).then(|| list.join(","))
}

/// Key and value of a member, if both are valid.
fn split(member: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = member.iter().position(|byte| *byte == b'=')?;
    let (key, value) = (member.get(..at)?, member.get(at + 1..)?);
    (is_key(key) && is_value(value)).then_some((key, value))
}

/// A key starts with a lowercase letter or a digit; `tenant@system` of Level 1 is one of Level 2.
fn is_key(key: &[u8]) -> bool {
    let is_start = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_char = |byte: &u8| is_start(byte) || b"_-*/@".contains(byte);
    key.len() <= MAX_PART_BYTES && key.first().is_some_and(is_start) && key.iter().all(is_char)
}

/// A value is printable ASCII without a comma and an equals sign, and does not end with a space.
fn is_value(value: &[u8]) -> bool {
    let is_char = |byte: &u8| matches!(byte, 0x20..=0x2b | 0x2d..=0x3c | 0x3e..=0x7e);
    let ends_well = value.last().is_some_and(|last| *last != b' ');
    value.len() <= MAX_PART_BYTES && ends_well && value.iter().all(is_char)
}

fn trim(mut member: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = member {
        member = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = member {
        member = rest;
    }
    member
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[&str]) -> Option<String> {
        of_header(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn valid_lists_are_passed_on() {
        let is =
            |values: &[&str], expected: &str| assert_eq!(of(values).as_deref(), Some(expected));
        is(&["congo=t61rcWkgMzE"], "congo=t61rcWkgMzE");
        is(&["rojo=00f067aa0ba902b7,congo=t61"], "rojo=00f067aa0ba902b7,congo=t61");
        is(&["a=1 , b=2", "", "c=3"], "a=1,b=2,c=3");
        is(&["fw529a3039@dt=FfIAAAAA", "0a=b c"], "fw529a3039@dt=FfIAAAAA,0a=b c");
        is(&[",, a=1,\t,"], "a=1");
        let many: Vec<String> = (0..32).map(|number| format!("k{number}=v")).collect();
        is(&[&many.join(",")], &many.join(","));
        let long = format!("a={}", "x".repeat(256));
        is(&[&long], &long);
    }

    #[test]
    fn the_longest_list_has_2048_bytes() {
        let member = |name: char, bytes: usize| format!("{name}={}", "x".repeat(bytes - 2));
        // Seven of 255 bytes and one, with a comma between each two.
        let list = |last: usize| {
            let others = ('a'..='g').map(|name| member(name, 255));
            others.chain([member('h', last)]).collect::<Vec<_>>().join(",")
        };
        let longest = list(MAX_BYTES - 7 * 256);
        assert_eq!(longest.len(), MAX_BYTES);
        assert_eq!(of(&[&longest]), Some(longest));
        assert_eq!(of(&[&list(MAX_BYTES - 7 * 256 + 1)]), None);
    }

    #[test]
    fn invalid_lists_are_dropped_as_a_whole() {
        let many: Vec<String> = (0..33).map(|number| format!("k{number}=v")).collect();
        let (many, long) = (many.join(","), format!("a={}", "x".repeat(257)));
        let key = format!("{}=1", "k".repeat(257));
        let large: Vec<String> = (0..9).map(|n| format!("k{n}={}", "x".repeat(250))).collect();
        let large = large.join(",");
        for wrong in [
            "",
            " ",
            ",",
            "a",
            "a=",
            "=b",
            "A=b",
            "_a=b",
            "a b=c",
            "a=b=c",
            "a=b,a=c",
            "a=\u{e9}",
            "a=1,b",
            "foo@=1,\x7f=2",
            "a=\x01",
            &many,
            &long,
            &key,
            &large,
        ] {
            assert_eq!(of(&[wrong]), None, "{wrong:?}");
        }
        assert_eq!(of(&["a=1", "a=2"]), None);
    }

    proptest! {
        #[test]
        fn what_is_passed_on_is_valid_and_stays_as_it_is(
            values in prop::collection::vec("[ -~]{0,60}", 0..4)
        ) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if let Some(list) = of(&values) {
                prop_assert!(list.len() <= MAX_BYTES && list.split(',').count() <= MAX_MEMBERS);
                prop_assert_eq!(of(&[&list]), Some(list));
            }
        }
    }
}
