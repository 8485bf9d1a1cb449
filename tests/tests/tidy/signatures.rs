//! Rules about parameters of functions.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, Pat, Signature};

use crate::source::{File, Tree, Violation};

const ARGUMENTS: usize = 5;

/// Constructors may have more arguments: each is a field.
const CONSTRUCTORS: [&str; 3] = ["new", "open", "start"];

struct Signatures<'f> {
    file: &'f File,
    found: Vec<Violation>,
    rule: fn(&Signature) -> Vec<(usize, String)>,
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        let found = (self.rule)(signature);
        let violations =
            found.into_iter().map(|(line, what)| Violation::new(self.file, line, what));
        self.found.extend(violations);
        visit::visit_signature(self, signature);
    }
}

fn each(tree: &Tree, rule: fn(&Signature) -> Vec<(usize, String)>) -> Vec<Violation> {
    let found = tree.rust("crates/").flat_map(|file| {
        let mut signatures = Signatures { file, found: Vec::new(), rule };
        signatures.visit_file(&file.syntax());
        signatures.found
    });
    found.collect()
}

fn is_tuple(pat: &Pat) -> bool {
    match pat {
        Pat::Tuple(_) => true,
        Pat::Reference(reference) => is_tuple(&reference.pat),
        _ => false,
    }
}

/// Tuple patterns.
pub fn tuples(tree: &Tree) -> Vec<Violation> {
    each(tree, |signature| {
        let name = &signature.ident;
        let tuples = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) if is_tuple(&typed.pat) => {
                let line = typed.span().start().line;
                Some((line, format!("`{name}` has a tuple pattern: name a struct")))
            }
            _ => None,
        });
        tuples.collect()
    })
}

/// Functions with too many arguments.
pub fn arguments(tree: &Tree) -> Vec<Violation> {
    each(tree, |signature| {
        let name = signature.ident.to_string();
        let typed = |input: &&FnArg| matches!(input, FnArg::Typed(_));
        let count = signature.inputs.iter().filter(typed).count();
        if count <= ARGUMENTS || CONSTRUCTORS.contains(&name.as_str()) {
            return Vec::new();
        }
        let line = signature.ident.span().start().line;
        vec![(line, format!("`{name}` has {count} arguments, at most {ARGUMENTS}"))]
    })
}
