//! Names for the calls of another process of this program.

use std::fmt::Write as _;

use maitred_os::thread_stack;

/// Most calls that are named.
const NAMED_MAX: usize = 40;

/// Distance from the program's own functions at which an address is that of a library, in bytes.
/// Libraries lie elsewhere in each process.
const PROGRAM_BYTES: u64 = 256 * 1024 * 1024;

/// Longest name, in characters: those of generic functions have no end.
const NAME_MAX: usize = 100;

/// The calls of a stack that another process of this program has reported, as one line.
pub fn describe(calls: &[i64]) -> String {
    let mut text = String::new();
    let mut in_library = false;
    for &call in calls.iter().take(NAMED_MAX) {
        if call.unsigned_abs() > PROGRAM_BYTES {
            if !in_library {
                push(&mut text, "a library");
            }
            in_library = true;
            continue;
        }
        in_library = false;
        // The address is that of the return; the call is before it.
        let address = thread_stack::absolute(call).saturating_sub(1);
        let mut is_named = false;
        backtrace::resolve(address as *mut _, |symbol| {
            is_named = true;
            push(&mut text, &described(symbol));
        });
        if !is_named {
            push(&mut text, &format!("{call:#x}"));
        }
    }
    text
}

fn described(symbol: &backtrace::Symbol) -> String {
    let mut text = match symbol.name() {
        Some(name) => format!("{name:#}").chars().take(NAME_MAX).collect(),
        None => "?".to_owned(),
    };
    if let (Some(file), Some(line)) =
        (symbol.filename().and_then(|f| f.file_name()), symbol.lineno())
    {
        let _ = write!(text, " ({}:{line})", file.display());
    }
    text
}

fn push(text: &mut String, call: &str) {
    if !text.is_empty() {
        text.push_str(" < ");
    }
    text.push_str(call);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_this_program_has_a_name_and_others_are_those_of_a_library() {
        let here = describe as *const () as usize;
        let call = (here as i64).wrapping_sub(thread_stack::absolute(0) as i64) + 8;
        let text = describe(&[i64::MAX / 2, i64::MAX / 2 + 1, call]);
        assert!(text.starts_with("a library < "), "{text}");
        assert!(text.contains("describe (native_stack.rs:"), "{text}");
    }
}
