//! The mode of a pool's workers: settings in `[pools.NAME]`.

use crate::model::mode::Mode;
use crate::model::pool::Pool;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::value::{BadValue, Value};

pub(super) const MODE: Directive<Pool> = Directive {
    name: "mode",
    default: Preset::Value("\"classic\""),
    takes: "\"classic\", \"worker\" or \"snapshot\"",
    needs: Needs::NewZygote,
    doc: "How the pool's workers run an application. `\"classic\"`: every request runs its own \
          script, as in php-fpm. `\"worker\"`: each worker boots `script` once, which then takes \
          its requests in a loop with `frankenphp_handle_request()`; state that the application \
          does not reset is visible to the next request. See the guide's page on worker mode. \
          `\"snapshot\"`: `script` is booted once for all workers, until it calls \
          `maitred_snapshot()`; every request is then served by a copy of that process, forked \
          before the request arrives, so that it costs no boot and sees nothing of other \
          requests. See the guide's page on snapshot mode.",
    example: "\"worker\"",
    read: |pool, value| store(&mut pool.mode, mode(value)),
};

pub(super) const SCRIPT: Directive<Pool> = Directive {
    name: "script",
    default: Preset::Words("none; every `mode` but `\"classic\"` needs it"),
    takes: "the path of a file",
    needs: Needs::NewZygote,
    doc: "The script that boots the application where `mode` is not `\"classic\"`. It serves all \
          requests of the pool, whatever their script: that one is `$_SERVER['SCRIPT_FILENAME']`. \
          A relative path starts from the directory of its file.",
    example: "\"public/worker.php\"",
    read: |pool, value| store(&mut pool.script, value.path().map(Some)),
};

pub(super) const BOOT_TIMEOUT: Directive<Pool> = Directive {
    name: "boot_timeout",
    default: Preset::Value("\"60s\""),
    takes: "a duration of at most 366 days such as \"30s\"",
    needs: Needs::NewZygote,
    doc: "Timeout of `script` from its start to its first request. A worker that takes longer is \
          ended, and another one is tried. 0 means none.",
    example: "\"2m\"",
    read: |pool, value| store(&mut pool.boot_timeout, value.duration()),
};

fn mode(value: &Value<'_>) -> Result<Mode, BadValue> {
    match value.text()? {
        "classic" => Ok(Mode::Classic),
        "worker" => Ok(Mode::Worker),
        "snapshot" => Ok(Mode::Snapshot),
        _ => Err(value.wrong()),
    }
}
