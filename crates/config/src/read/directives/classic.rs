//! The paths of a site with a booted application that a classic pool runs.

use maitred_rules::Pattern;

use crate::read::directive::{Directive, Needs, Preset};
use crate::read::drafts::RulesDraft;

pub(super) const CLASSIC_PATHS: Directive<RulesDraft> = Directive {
    name: "classic_paths",
    default: Preset::Words("none"),
    takes: "a path such as \"/wp-login.php\" or a folder such as \"/wp-admin/\", or an array of \
            them",
    needs: Needs::Live,
    doc: "Paths whose scripts `classic_pool` runs: parts of a booted application that need a \
          classic pool. A path that ends with `/` means all below it. Their pool takes \
          precedence over those of `paths`.",
    example: "[\"/wp-login.php\", \"/wp-admin/\", \"/xmlrpc.php\"]",
    read: |site, value| {
        site.classic.paths = value.each(|item| {
            let text = item.text()?;
            let folder = text.ends_with('/');
            let pattern =
                if folder { Pattern::parse(&format!("{text}*")) } else { Pattern::parse(text) };
            pattern.map_err(|why| item.refused(&why))
        })?;
        site.classic.span = value.span();
        Ok(())
    },
};

pub(super) const CLASSIC_POOL: Directive<RulesDraft> = Directive {
    name: "classic_pool",
    default: Preset::Words("none; `classic_paths` need it"),
    takes: "the name of a pool",
    needs: Needs::Live,
    doc: "The pool that runs the scripts of `classic_paths`: one whose `mode` is `\"classic\"`.",
    example: "\"shop\"",
    read: |site, value| {
        let name = value.text()?.to_owned();
        site.pools.push((name.clone(), value.span()));
        site.classic.pool = Some((name, value.span()));
        Ok(())
    },
};
