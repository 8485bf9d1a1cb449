//! Paths of a site that another pool runs than the one with the booted application.

use std::ops::Range;

use maitred_rules::Pattern;
use maitred_rules::settings::PathSettings;

use super::rules::RulesDraft;
use crate::mistakes::Fault;
use crate::model::config::Pool;
use crate::model::mode::Mode;
use crate::read::directive::{Directive, Needs, Preset};

/// What a site says about such paths.
#[derive(Debug, Default)]
pub(crate) struct ClassicDraft {
    paths: Vec<Pattern>,
    span: Range<usize>,
    pool: Option<(String, Range<usize>)>,
}

pub(super) const CLASSIC_PATHS: Directive<RulesDraft> = Directive {
    name: "classic_paths",
    default: Preset::Words("none"),
    unit: "",
    takes: "a path such as \"/wp-login.php\" or a folder such as \"/wp-admin/\", or an array of them",
    needs: Needs::Live,
    doc: "Paths whose scripts `classic_pool` runs: what does not work in an application that is booted \
          once. A path that ends with `/` means all below it. They come before those of `paths`.",
    example: "[\"/wp-login.php\", \"/wp-admin/\", \"/xmlrpc.php\"]",
    read: |site, value| {
        site.classic.paths = value.each(|item| {
            let text = item.text()?;
            let folder = text.ends_with('/');
            let pattern = match folder {
                true => Pattern::parse(&format!("{text}*")),
                false => Pattern::parse(text),
            };
            pattern.map_err(|why| item.refused(&why))
        })?;
        site.classic.span = value.span();
        Ok(())
    },
};

pub(super) const CLASSIC_POOL: Directive<RulesDraft> = Directive {
    name: "classic_pool",
    default: Preset::Words("none; `classic_paths` need it"),
    unit: "",
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

impl ClassicDraft {
    /// The settings of these paths, if what is said of them holds together.
    pub(crate) fn into_settings(
        self,
        pools: &[Pool],
        faults: &mut Vec<Fault>,
    ) -> Vec<PathSettings> {
        let Some((pool, span)) = self.pool else {
            if !self.paths.is_empty() {
                let sentence = "`classic_paths` needs `classic_pool`; add the pool that runs them";
                faults.push(Fault::new(self.span, sentence.to_owned()));
            }
            return Vec::new();
        };
        let named = pools.iter().find(|known| known.name == pool);
        if let Some(named) = named.filter(|named| named.mode != Mode::Classic) {
            let mode = named.mode.name();
            let sentence = format!(
                "`classic_pool` is \"{pool}\", whose `mode` is \"{mode}\"; expected a pool whose \
                 `mode` is \"classic\""
            );
            faults.push(Fault::new(span.clone(), sentence));
        }
        if self.paths.is_empty() {
            let sentence = "`classic_pool` needs `classic_paths`; add the paths that it runs";
            faults.push(Fault::new(span, sentence.to_owned()));
        }
        let paths = self.paths.into_iter();
        let settings = |path| PathSettings {
            path,
            pool: Some(pool.clone()),
            max_body_size: None,
            urgent: false,
        };
        paths.map(settings).collect()
    }
}
