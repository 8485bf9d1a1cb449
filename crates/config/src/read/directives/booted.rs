//! Copies of an application that is booted once: settings in `[pools.NAME]`.

use crate::model::mode::BootConnections;
use crate::model::pool::Pool;
use crate::read::directive::{Directive, Needs, Preset, store};

pub(super) const REQUESTS_PER_CHILD: Directive<Pool> = Directive {
    name: "requests_per_child",
    default: Preset::Value("1"),
    unit: "requests",
    takes: "a whole number from 1 to 4294967295",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, requests that a copy of the booted application serves before it \
          ends. With 1, no request sees anything of another. More is cheaper, and holds only for \
          scripts that call `frankenphp_handle_request()` in a loop.",
    example: "10",
    read: |pool, value| store(&mut pool.requests_per_child, value.count(1, u32::MAX)),
};

pub(super) const REWINDS_PER_CHILD: Directive<Pool> = Directive {
    name: "rewinds_per_child",
    default: Preset::Value("0"),
    unit: "",
    takes: "a whole number from 0 to 4294967295",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, how often a copy, when it has served `requests_per_child` requests, \
          goes back to what it was when it was forked, and serves again, instead of ending. All of its \
          memory is put back and what it has opened is closed; a copy in which anything else has \
          changed ends. With 0, or in a pool with a `chroot`, every copy is a new process.",
    example: "1000",
    read: |pool, value| store(&mut pool.rewinds_per_child, value.count(0, u32::MAX)),
};

pub(super) const BOOT_CONNECTIONS: Directive<Pool> = Directive {
    name: "boot_connections",
    default: Preset::Value("\"refuse\""),
    unit: "",
    takes: "\"refuse\" or \"close\"",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, what becomes of connections that the boot has left open, to a \
          database or to anything else, and which copies must not share. `\"refuse\"`: the boot has \
          failed, and the log says whom they lead to and which line has made them. `\"close\"`: they \
          are closed, so that every copy finds the other side gone where it uses one; that is for \
          libraries and applications which then connect again by themselves.",
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

pub(super) const WATCH: Directive<Pool> = Directive {
    name: "watch",
    default: Preset::Value("false"),
    unit: "",
    takes: "true or false",
    needs: Needs::NewZygote,
    doc: "For development, in `mode = \"worker\"` and `\"snapshot\"`: whether the application is booted \
          anew when one of its files is saved. What is watched are the PHP files, and YAML, NEON, INI \
          and `.env` files, in the nearest folder above `script` with a `composer.json`, or else in \
          that of the script, and below; but for hidden folders and those named vendor, node_modules, \
          var, storage, cache, tmp, log and logs. The boot before serves until the new one is ready, \
          and goes on if that fails.",
    example: "true",
    read: |pool, value| store(&mut pool.watch, value.boolean()),
};

pub(super) const OPCACHE_MEMORY_MAX: Directive<Pool> = Directive {
    name: "opcache_memory_max",
    default: Preset::Value("\"512M\""),
    unit: "bytes",
    takes: "a size such as \"64M\"",
    needs: Needs::NewZygote,
    doc: "In `mode = \"worker\"` and `\"snapshot\"`, how large OPcache is made at most when it is full: the \
          application is then booted anew with twice the memory, keys or room for strings, whatever \
          `opcache.memory_consumption`, `opcache.max_accelerated_files` and \
          `opcache.interned_strings_buffer` say, and the boot before serves until that is ready. It is \
          never given more than a quarter of the memory that the pool may have. 0 means that it stays \
          as it is.",
    example: "\"1G\"",
    read: |pool, value| store(&mut pool.opcache_memory_max, value.size(0)),
};

pub(super) const WARM_REQUESTS: Directive<Pool> = Directive {
    name: "warm_requests",
    default: Preset::Words("none"),
    unit: "",
    takes: "a list of paths such as [\"/\", \"/search?q=a\"]",
    needs: Needs::NewZygote,
    doc: "In `mode = \"snapshot\"`, what is asked for, and its answers dropped, after the boot and \
          before clients are served: so that OPcache holds what requests need.",
    example: "[\"/\", \"/login\"]",
    read: |pool, value| {
        let path = |text: &str| text.starts_with('/').then(|| text.to_owned());
        pool.warm_requests = value.each(|item| item.text_as(path))?;
        Ok(())
    },
};
