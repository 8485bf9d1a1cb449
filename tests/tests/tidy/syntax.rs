//! What rules need of the syntax of each file. It takes seconds to parse all files: they are parsed
//! once for all rules.

use std::sync::OnceLock;

use syn::visit::{self, Visit};
use syn::{Ident, ItemEnum, ItemStruct, ItemTrait, ItemType, Signature};

use crate::signatures;
use crate::source::{File, Tree};

/// Something in a file.
#[derive(Debug)]
pub struct Found {
    /// The number of its line, from 1.
    pub line: usize,
    /// Its name, or what is wrong with it.
    pub text: String,
}

/// What was found in a file.
#[derive(Debug)]
pub struct Syntax {
    /// The file.
    pub file: &'static File,
    /// Names of types.
    pub types: Vec<Found>,
    /// Tuple patterns of parameters.
    pub tuples: Vec<Found>,
    /// Functions with too many arguments.
    pub arguments: Vec<Found>,
}

impl Syntax {
    /// That of all sources of the crates.
    pub fn of_crates() -> &'static [Syntax] {
        static ALL: OnceLock<Vec<Syntax>> = OnceLock::new();
        ALL.get_or_init(|| Tree::get().rust("crates/").map(Syntax::of).collect())
    }

    fn of(file: &'static File) -> Syntax {
        let syntax = syn::parse_file(&file.text);
        let syntax = syntax.unwrap_or_else(|error| panic!("{}: {error}", file.path));
        let mut found = Syntax { file, types: vec![], tuples: vec![], arguments: vec![] };
        found.visit_file(&syntax);
        found
    }

    fn add_type(&mut self, ident: &Ident) {
        self.types.push(Found { line: ident.span().start().line, text: ident.to_string() });
    }
}

impl<'ast> Visit<'ast> for Syntax {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add_type(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add_type(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add_type(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add_type(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        self.tuples.extend(signatures::tuples_of(signature));
        self.arguments.extend(signatures::too_many_of(signature));
        visit::visit_signature(self, signature);
    }
}
