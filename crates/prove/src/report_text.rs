//! The result of a comparison for people.

use std::fmt::Write;

use crate::causes::{Cause, DifferingAddresses, Explanation, Proof};
use crate::difference::Aspect;

/// Addresses that are named of a cause.
const NAMED: usize = 3;

/// Addresses that are named of those that may change something.
const NAMED_SKIPPED: usize = 5;

/// The result. `name` is the old server.
pub fn text(proof: &Proof, name: &str) -> String {
    let mut out = format!(
        "Compared {} responses for {} addresses ({} requests to both servers together).\n",
        proof.compared, proof.addresses, proof.requests
    );
    let differing = proof.compared - proof.same;
    let _ = writeln!(out, "  the same: {}, different: {differing}", proof.same);
    let _ = writeln!(out, "  compared without parts that vary by themselves: {}", proof.varying);
    if !proof.skipped.is_empty() {
        let named: Vec<&str> =
            proof.skipped.iter().take(NAMED_SKIPPED).map(String::as_str).collect();
        let count = proof.skipped.len();
        let _ = writeln!(
            out,
            "  not requested, since they may change something: {count} ({})",
            named.join(", ")
        );
    }
    if proof.left_out > 0 {
        let count = proof.left_out;
        let _ = writeln!(out, "  left out, since others like them are compared: {count}");
    }
    for trouble in &proof.troubles {
        let _ = writeln!(out, "  not compared: {trouble}");
    }
    let of = |wanted: fn(&Explanation) -> bool| {
        proof.causes.iter().filter(move |(cause, _)| wanted(&cause.explanation))
    };
    section(&mut out, "Unexplained", name, of(|one| *one == Explanation::None));
    let reported = of(|one| matches!(one, Explanation::Reported(_)));
    section(&mut out, "As the report of the import says", name, reported);
    let accepted = of(|one| matches!(one, Explanation::Accepted(_)));
    section(&mut out, "As with every site", name, accepted);
    out
}

fn section<'p>(
    out: &mut String,
    title: &str,
    name: &str,
    causes: impl Iterator<Item = (&'p Cause, &'p DifferingAddresses)>,
) {
    let causes: Vec<_> = causes.collect();
    if causes.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title} ({}):", causes.len());
    for (cause, found) in causes {
        one(out, name, cause, found);
    }
}

fn one(out: &mut String, name: &str, cause: &Cause, found: &DifferingAddresses) {
    let named: Vec<&str> = found.addresses.iter().take(NAMED).map(String::as_str).collect();
    let more = match found.count.saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let open = if cause.is_open.0 { "shown by maitred alone: " } else { "" };
    let _ = writeln!(out, "- {open}{} {}{more}", cause.form, named.join(", "));
    if let Explanation::Reported(why) = &cause.explanation {
        let _ = writeln!(out, "    {why}");
    }
    if let Explanation::Accepted(why) = &cause.explanation {
        let _ = writeln!(out, "    {why}");
        return;
    }
    let width = name.len().max("maitred".len()) + 1;
    let what = match &cause.aspect {
        Aspect::Status | Aspect::Exchange => String::new(),
        aspect => format!("{aspect} "),
    };
    for (server, value, rule) in [
        (name, &found.example.old, &cause.old_rule),
        ("maitred", &found.example.new, &cause.new_rule),
    ] {
        let value = value.replace(|c: char| c.is_control(), " ");
        let value = if value.is_empty() { "none".to_owned() } else { value };
        let server = format!("{server}:");
        let _ = writeln!(out, "    {server:<width$} {what}{value}");
        let _ = writeln!(out, "    {:<width$} by {rule}", "");
    }
}
