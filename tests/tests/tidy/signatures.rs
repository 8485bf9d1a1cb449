//! Rules about parameters of functions.

use syn::spanned::Spanned;
use syn::{FnArg, Pat, Signature};

use crate::source::{Tree, Violation};
use crate::syntax::{Found, Syntax};

const ARGUMENTS: usize = 5;

/// Constructors may have more arguments: each is a field.
const CONSTRUCTORS: [&str; 3] = ["new", "open", "start"];

fn each(found: fn(&Syntax) -> &[Found]) -> Vec<Violation> {
    let violations = Syntax::of_crates().iter().flat_map(|syntax| {
        let found = found(syntax).iter();
        found.map(|found| Violation::new(syntax.file, found.line, found.text.clone()))
    });
    violations.collect()
}

/// Tuple patterns.
pub fn tuples(_: &Tree) -> Vec<Violation> {
    each(|syntax| &syntax.tuples)
}

/// Functions with too many arguments.
pub fn arguments(_: &Tree) -> Vec<Violation> {
    each(|syntax| &syntax.arguments)
}

fn is_tuple(pat: &Pat) -> bool {
    match pat {
        Pat::Tuple(_) => true,
        Pat::Reference(reference) => is_tuple(&reference.pat),
        _ => false,
    }
}

/// The tuple patterns of a function.
pub fn tuples_of(signature: &Signature) -> Vec<Found> {
    let name = &signature.ident;
    let tuples = signature.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) if is_tuple(&typed.pat) => {
            let line = typed.span().start().line;
            Some(Found { line, text: format!("`{name}` has a tuple pattern: name a struct") })
        }
        _ => None,
    });
    tuples.collect()
}

/// A function, if it has too many arguments.
pub fn too_many_of(signature: &Signature) -> Option<Found> {
    let name = signature.ident.to_string();
    let typed = |input: &&FnArg| matches!(input, FnArg::Typed(_));
    let count = signature.inputs.iter().filter(typed).count();
    if count <= ARGUMENTS || CONSTRUCTORS.contains(&name.as_str()) {
        return None;
    }
    let line = signature.ident.span().start().line;
    Some(Found { line, text: format!("`{name}` has {count} arguments, at most {ARGUMENTS}") })
}
