//! A block of nginx's configuration with the blocks around it.

use crate::source_directive::Directive;

/// The blocks from `http` down to one, for directives that are inherited.
#[derive(Debug, Clone)]
pub struct Scope<'a> {
    blocks: Vec<&'a Directive>,
}

impl<'a> Scope<'a> {
    /// The outermost block.
    pub fn new(block: &'a Directive) -> Scope<'a> {
        Scope { blocks: vec![block] }
    }

    /// The scope of a block in this one.
    pub fn inside(&self, block: &'a Directive) -> Scope<'a> {
        let mut blocks = self.blocks.clone();
        blocks.push(block);
        Scope { blocks }
    }

    /// The directives of this name in the block itself.
    pub fn own(&self, name: &str) -> impl Iterator<Item = &'a Directive> + use<'a, '_> {
        let name = name.to_owned();
        let block = self.blocks.last().map(|block| block.block.as_slice()).unwrap_or_default();
        block.iter().filter(move |directive| directive.name == name)
    }

    /// Whether the block itself has a directive of this name.
    pub fn has(&self, name: &str) -> bool {
        self.own(name).next().is_some()
    }

    /// The scope of the block around this one.
    pub fn outer(&self) -> Scope<'a> {
        let end = self.blocks.len().saturating_sub(1);
        Scope { blocks: self.blocks[..end].to_vec() }
    }

    /// All directives of the block itself.
    pub fn directives(&self) -> &'a [Directive] {
        self.blocks.last().map(|block| block.block.as_slice()).unwrap_or_default()
    }

    /// The nearest block that has a directive of these names.
    pub fn block_with(&self, names: &[&str]) -> Option<&'a Directive> {
        let is_one = |one: &Directive| names.contains(&one.name.as_str());
        self.blocks.iter().rev().copied().find(|block| block.block.iter().any(is_one))
    }

    /// The directives of these names in the nearest block that has any.
    pub fn group(&self, names: &[&str]) -> Vec<&'a Directive> {
        let block = self.block_with(names).map(|block| block.block.as_slice()).unwrap_or_default();
        block.iter().filter(|one| names.contains(&one.name.as_str())).collect()
    }

    /// The last directive of this name in the nearest block that has one.
    pub fn get(&self, name: &str) -> Option<&'a Directive> {
        self.group(&[name]).pop()
    }
}
