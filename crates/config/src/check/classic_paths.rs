//! Checks of the paths of a site that run in a classic pool.

use maitred_rules::settings::PathSettings;

use crate::mistakes::Fault;
use crate::model::mode::Mode;
use crate::model::pool::Pool;
use crate::read::drafts::ClassicDraft;

impl ClassicDraft {
    /// The settings of these paths, without faults only.
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
            faults.push(Fault::new(span, sentence));
        }
        let paths = self.paths.into_iter();
        let settings = |path| PathSettings {
            path,
            pool: Some(pool.clone()),
            max_body_size: None,
            urgent: None,
        };
        paths.map(settings).collect()
    }
}
