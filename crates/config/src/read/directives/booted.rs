//! Copies of an application that is booted once: settings in `[pools.NAME]`.

use crate::model::mode::BootConnections;
use crate::model::pool::Pool;
use crate::read::directive::{Directive, Needs, Preset, store};

/// Names of server APIs under which OPcache starts (php-src, ext/opcache/ZendAccelerator.c,
/// `supported_sapis`) and that scripts take for a web server.
const SAPI_NAMES: [&str; 7] =
    ["fpm-fcgi", "frankenphp", "cgi-fcgi", "apache2handler", "litespeed", "uwsgi", "cli-server"];

pub(super) const REQUESTS_PER_CHILD: Directive<Pool> = Directive {
    name: "requests_per_child",
    default: Preset::Value("1"),
    takes: "a whole number from 1 to 4294967295",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, requests that a copy of the booted application serves before \
          it ends. With 1, no request sees anything of another. More is cheaper, and works only \
          for scripts that call `frankenphp_handle_request()` in a loop.",
    example: "10",
    read: |pool, value| store(&mut pool.requests_per_child, value.count(1, u32::MAX)),
};

pub(super) const REWINDS_PER_CHILD: Directive<Pool> = Directive {
    name: "rewinds_per_child",
    default: Preset::Value("0"),
    takes: "a whole number from 0 to 4294967295",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, how often a copy that has served `requests_per_child` \
          requests is rewound to its state after the fork, and serves again, instead of ending. \
          All of its memory is restored and its open files are closed; a copy in which anything \
          else has changed ends. With 0, or in a pool with a `chroot`, every copy is a new \
          process.",
    example: "1000",
    read: |pool, value| store(&mut pool.rewinds_per_child, value.count(0, u32::MAX)),
};

pub(super) const BOOT_CONNECTIONS: Directive<Pool> = Directive {
    name: "boot_connections",
    default: Preset::Value("\"refuse\""),
    takes: "\"refuse\" or \"close\"",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, the handling of connections that the boot has left open, to \
          a database or anything else, and which copies must not share. `\"refuse\"`: the boot \
          fails, and the log names their peers and the lines of code that opened them. \
          `\"close\"`: they are closed, so that a copy finds its connection broken on first use; \
          that is for libraries and applications that reconnect by themselves.",
    example: "\"close\"",
    read: |pool, value| {
        pool.boot_connections = match value.text()? {
            "refuse" => BootConnections::Refuse,
            "close" => BootConnections::Close,
            _ => return Err(value.wrong()),
        };
        Ok(())
    },
};

pub(super) const SAPI_NAME: Directive<Pool> = Directive {
    name: "sapi_name",
    default: Preset::Value("\"fpm-fcgi\""),
    takes: "\"fpm-fcgi\", \"frankenphp\", \"cgi-fcgi\", \"apache2handler\", \"litespeed\", \
            \"uwsgi\" or \"cli-server\"",
    needs: Needs::NewZygote,
    doc: "In `mode = \"worker\"` and `\"snapshot\"`, the value of `PHP_SAPI` and \
          `php_sapi_name()`. Extensions that observe applications may decide by it whether a \
          script is one request or a loop of many; with `\"frankenphp\"` they find what they \
          know of FrankenPHP's worker mode. Nothing else changes. These are the names under which \
          OPcache of PHP 8.2 starts.",
    example: "\"frankenphp\"",
    read: |pool, value| match value.text()? {
        name if SAPI_NAMES.contains(&name) => {
            name.clone_into(&mut pool.sapi_name);
            Ok(())
        }
        _ => Err(value.wrong()),
    },
};

pub(super) const WATCH: Directive<Pool> = Directive {
    name: "watch",
    default: Preset::Value("false"),
    takes: "true or false",
    needs: Needs::NewZygote,
    doc: "For development, in `mode = \"worker\"` and `\"snapshot\"`: whether a saved file \
          starts a new boot of the application. Watched are the PHP, YAML, NEON, INI and `.env` \
          files in the nearest directory above `script` with a `composer.json`, or else in that \
          of the script, and below; except for hidden directories and those named vendor, \
          node_modules, var, storage, cache, tmp, log and logs. The previous boot serves until \
          the new one is ready, and keeps serving if that fails.",
    example: "true",
    read: |pool, value| store(&mut pool.watch, value.boolean()),
};

pub(super) const OPCACHE_MEMORY_MAX: Directive<Pool> = Directive {
    name: "opcache_memory_max",
    default: Preset::Value("\"512M\""),
    takes: "a size such as \"64M\"",
    needs: Needs::NewZygote,
    doc: "In `mode = \"worker\"` and `\"snapshot\"`, the size up to which a full OPcache grows: \
          the application is booted again with twice the memory, keys or string buffer, \
          regardless of `opcache.memory_consumption`, `opcache.max_accelerated_files` and \
          `opcache.interned_strings_buffer`, and the previous boot serves until the new one is \
          ready. It never gets more than a quarter of the pool's memory. 0 means that it does \
          not grow.",
    example: "\"1G\"",
    read: |pool, value| store(&mut pool.opcache_memory_max, value.size(0)),
};

pub(super) const WARM_REQUESTS: Directive<Pool> = Directive {
    name: "warm_requests",
    default: Preset::Words("none"),
    takes: "a list of paths such as [\"/\", \"/search?q=a\"]",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, paths that are requested after the boot and before clients \
          are served, so that OPcache is warm; the responses are dropped.",
    example: "[\"/\", \"/login\"]",
    read: |pool, value| {
        let path = |text: &str| text.starts_with('/').then(|| text.to_owned());
        pool.warm_requests = value.each(|item| item.text_as(path))?;
        Ok(())
    },
};
