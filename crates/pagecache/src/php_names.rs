//! Names of cookies and parameters as PHP parses them (`php_register_variable_ex`): spaces
//! and dots become `_`, and `a[b][c]` is an array index; text after the last bracket is dropped.

use std::iter;

use crate::settings::Pattern;

/// Whether the pattern matches a cookie or parameter, by the name as sent or by the name that PHP
/// gives it. A session cookie in an unusual spelling must not pass as an anonymous request. An
/// empty index, for which PHP chooses a number, matches any index.
pub(crate) fn is_named(pattern: &Pattern, name: &[u8]) -> bool {
    if pattern.matches(name) {
        return true;
    }
    if !name.iter().any(|byte| matches!(byte, b' ' | b'.' | b'[')) {
        return false;
    }
    let (base, indexes) = split(name);
    let mut mangled_name: Vec<u8> = mangled(base).collect();
    let base_meant = pattern.before_index();
    let is_part_named = each_index(indexes).any(|index| {
        let may_be_meant =
            is_any(index) && base_meant.as_ref().is_some_and(|base| base.matches(&mangled_name));
        let is_named = pattern.matches(&mangled_name) || may_be_meant;
        mangled_name.push(b'[');
        mangled_name.extend_from_slice(index);
        mangled_name.push(b']');
        is_named
    });
    let whole: Vec<u8> = mangled(name).collect();
    is_part_named || pattern.matches(&mangled_name) || pattern.matches(&whole)
}

/// Whether PHP's variable for `name` could be that of `other`, contain it, or be an element of it.
pub(crate) fn may_be(name: &[u8], other: &[u8]) -> bool {
    if mangled(name).eq(mangled(other)) {
        return true;
    }
    let ((base, indexes), (other_base, other_indexes)) = (split(name), split(other));
    let mut pairs = iter::zip(each_index(indexes), each_index(other_indexes));
    mangled(base).eq(mangled(other_base)) && pairs.all(|(one, two)| is_same_index(one, two))
}

/// Whether PHP's name for `name` may begin with `start`.
pub(crate) fn begins_with(name: &[u8], start: &[u8]) -> bool {
    name.len() >= start.len() && mangled(&name[..start.len()]).eq(start.iter().copied())
}

/// Whether PHP stores a variable of this name in an array.
pub(crate) fn has_index(name: &[u8]) -> bool {
    each_index(split(name).1).next().is_some()
}

/// A name up to its first bracket, and the rest.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    name.split_at(memchr::memchr(b'[', name).unwrap_or(name.len()))
}

/// The indexes directly after a name; PHP drops everything behind them.
fn each_index(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    iter::from_fn(move || {
        let inside = rest.strip_prefix(b"[")?;
        let end = memchr::memchr(b']', inside)?;
        rest = &inside[end + 1..];
        Some(&inside[..end])
    })
}

fn is_same_index(one: &[u8], two: &[u8]) -> bool {
    one == two || is_any(one) || is_any(two)
}

/// For an empty index PHP takes the next free number, which may be any.
fn is_any(index: &[u8]) -> bool {
    index.trim_ascii().is_empty()
}

fn mangled(name: &[u8]) -> impl Iterator<Item = u8> {
    name.iter().map(|byte| match byte {
        b' ' | b'.' | b'[' => b'_',
        byte => *byte,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_meant_as_it_is_written_and_as_php_has_it() {
        let meant = |pattern: &str, name: &str| is_named(&Pattern::new(pattern), name.as_bytes());
        for (pattern, name) in [
            ("a_b", "a.b"),
            ("a_b", "a b[x]"),
            ("a_b", "a[b"),
            ("user[id]", "user[id]"),
            ("user[id]", "user[id]x"),
            ("user[id]", "user[id][x"),
            ("user[id]", "user[id][a][b]"),
            ("my_user[a.b]", "my.user[a.b]x]"),
            ("user[*", "user[id]x"),
            ("user", "user[id]"),
            ("user[0]", "user[]"),
            ("user[0]", "user[ ]x"),
            ("u*[0]", "user[]"),
        ] {
            assert!(meant(pattern, name), "{pattern} is not {name}");
        }
        for (pattern, name) in [
            ("a_b", "a-b"),
            ("a_b", "ab[x]"),
            ("user[id]", "user[ids]"),
            ("user[id]", "user[ id]"),
            ("user[id]", "users[id]"),
            ("user[0]", "users[]"),
            ("user", "users[]"),
        ] {
            assert!(!meant(pattern, name), "{pattern} is {name}");
        }
    }

    #[test]
    fn names_of_one_variable_or_of_parts_of_it_may_be_each_other() {
        let may = |one: &str, two: &str| {
            let (there, back) =
                (may_be(one.as_bytes(), two.as_bytes()), may_be(two.as_bytes(), one.as_bytes()));
            assert_eq!(there, back, "{one} {two}");
            there
        };
        for other in [
            "p.q[lang]",
            "p_q",
            "p q[]",
            "p_q[ ]",
            "p_q[lang][a]",
            "p_q[lang]x",
            "p_q[lang][",
            "p_q[",
        ] {
            assert!(may("p_q[lang]", other), "{other}");
        }
        for other in ["p_q[theme]", "p_q[theme][lang]", "pq[lang]", "p_qx", "lang"] {
            assert!(!may("p_q[lang]", other), "{other}");
        }
        assert!(may("a[0]", "a[]") && may("a_b", "a[b") && !may("a[0]", "a[1]"));
        assert!(has_index(b"a[b]") && has_index(b"a[]x") && !has_index(b"a[b"));
    }
}
