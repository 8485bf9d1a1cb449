//! Checks between a pool's `mode` and its other settings.

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::mode::Mode;
use crate::model::pool::Pool;

/// Checks a pool's mode against its other settings.
pub(crate) fn check_mode(pool: &Pool, settings: &DeTable<'_>) -> Vec<Fault> {
    let mode = pool.mode.name();
    let mut faults = Vec::new();
    // A wrong `script` is reported already.
    if pool.mode != Mode::Classic && pool.script.is_none() && !settings.contains_key("script") {
        let sentence = format!(
            "`mode` is \"{mode}\", which needs `script`; add the script that boots the application"
        );
        faults.push(Fault::at(settings, "mode", sentence));
    }
    if pool.preload && pool.confinement.chroot.is_some() {
        let sentence = "`preload` has no effect with `chroot`: PHP starts outside of it, where the \
                        scripts have other paths; remove one of them";
        faults.push(Fault::at(settings, "preload", sentence.to_owned()));
    }
    faults
}
