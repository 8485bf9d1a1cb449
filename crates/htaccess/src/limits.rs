//! Limits of files and of their configurations. A file is a tenant's: requests of others wait while
//! the front reads it, merges it and evaluates it.

/// Most lines of a file besides `Allow`, `Deny` and `Require`, of which plugins write thousands.
const MAX_DIRECTIVES: usize = 10_000;

/// Most text of a file in bytes, where a group of a pattern counts as often as it is repeated:
/// PCRE2 compiles it that often.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// Largest compiled pattern in bytes (PCRE2's own limit).
const MAX_PATTERN_BYTES: usize = 64 << 10;

/// Most variables that `SetEnv`, `UnsetEnv`, `Require env` and `Allow from env=` name, and that one
/// line of `SetEnvIf` or one rule sets.
pub const MAX_VARIABLES: usize = 1024;

/// Most media types of `ExpiresByType`.
pub const MAX_EXPIRIES: usize = 1024;

/// Most patterns of `IndexIgnore`.
pub const MAX_IGNORED: usize = 1024;

/// Most directives for headers, of each kind. Each may insert a variable.
pub const MAX_HEADER_RULES: usize = 1024;

/// Most extensions of `AddType` and the like.
pub const MAX_EXTENSIONS: usize = 4096;

/// Longest media type, language and the like of an extension in bytes.
pub const MAX_PROPERTY_BYTES: usize = 1024;

/// Longest text that an expansion makes of values, in bytes: variables and headers can contain each
/// other.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// Most memory of the directives of a file in bytes: those of some thousand patterns.
pub const MAX_FILE_BYTES: usize = 16 << 20;

/// Most memory of a merged configuration in bytes, besides what it shares with those of files.
pub const MAX_MERGED_BYTES: usize = 4 << 20;

/// The size of a file up to a line.
#[derive(Debug, Default)]
pub struct FileSize {
    directives: usize,
    expanded_bytes: usize,
}

impl FileSize {
    /// Adds a line.
    ///
    /// # Errors
    /// The limit that the file exceeds.
    pub fn add(&mut self, line: &[u8]) -> Result<(), String> {
        self.directives += usize::from(!names_clients(line));
        self.expanded_bytes += expanded_bytes(line);
        if self.directives > MAX_DIRECTIVES {
            return Err(format!(
                "the file has more than {MAX_DIRECTIVES} lines besides Allow, Deny and Require"
            ));
        }
        if self.expanded_bytes > MAX_EXPANDED_BYTES {
            return Err("the patterns of the file repeat groups too often".to_owned());
        }
        Ok(())
    }
}

/// Whether there are no more than `most`.
///
/// # Errors
/// The limit, as a sentence about `what`.
pub fn check(count: usize, most: usize, what: &str) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("more than {most} {what}")) }
}

fn names_clients(line: &[u8]) -> bool {
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let names: [&[u8]; 3] = [b"allow", b"deny", b"require"];
    names.iter().any(|name| name.eq_ignore_ascii_case(&line[..end]))
}

/// The length of a pattern, times the repetitions of its groups.
pub fn expanded_bytes(pattern: &[u8]) -> usize {
    let mut factor = 1_usize;
    for brace in memchr::memchr_iter(b'{', pattern) {
        // A repeated character or class is compiled once.
        let is_single = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b']' | b'.');
        if pattern[..brace].last().is_some_and(is_single) {
            continue;
        }
        let numbers = pattern[brace + 1..].split(|byte| !byte.is_ascii_digit()).take(2);
        factor = factor.saturating_mul(numbers.map(number).max().unwrap_or(1).max(1));
    }
    match factor {
        1 => pattern.len(),
        _ => pattern
            .len()
            .saturating_mul(factor)
            .clamp(pattern.len(), MAX_PATTERN_BYTES.max(pattern.len())),
    }
}

fn number(digits: &[u8]) -> usize {
    usize::try_from(crate::text::integer(digits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_group_counts_as_often_as_it_is_compiled() {
        assert_eq!(expanded_bytes(b"^[a-z]{2}/a{1000}$"), 18);
        assert_eq!(expanded_bytes(br"(?:\d\d){3}"), 33);
        assert_eq!(expanded_bytes(b"((ab){2,10}){5}"), 15 * 50);
        assert_eq!(expanded_bytes(b"(?x)(abcdef) {60000}"), MAX_PATTERN_BYTES);
        assert_eq!(expanded_bytes(b"%{HTTP_HOST} {}"), 15);
    }

    #[test]
    fn thousands_of_addresses_are_no_directives() {
        let mut size = FileSize::default();
        for _ in 0..2 * MAX_DIRECTIVES {
            size.add(b"deny from 192.0.2.1").unwrap();
        }
        for _ in 0..MAX_DIRECTIVES {
            size.add(b"Redirect /a /b").unwrap();
        }
        assert!(size.add(b"Redirect /a /b").unwrap_err().contains("10000 lines"));
    }
}
