//! Settings of a site, in `[[sites]]`.

use std::path::PathBuf;

use maitred_rules::settings::Upstream;

use crate::mistakes::quoted;
use crate::model::host::{Host, is_host_name};
use crate::model::site::SiteLog;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::drafts::{SiteDraft, WithSpan};

/// Longest path of a Unix socket in bytes: `sun_path` has 108 with its final NUL (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The directives of a site.
pub const DIRECTIVES: &[Directive<SiteDraft>] = &[
    Directive {
        name: "hosts",
        default: Preset::Value("[\"*\"]"),
        takes: "a host name such as \"example.com\" or \"*.example.com\", or an array of them",
        needs: Needs::Live,
        doc: "The host names of the site. `*.example.com` means all names below `example.com`, \
              but not that name itself. `*` means every name that no other site has. An exact \
              name takes precedence over a name with `*.`, and a longer one over a shorter one.",
        example: "[\"shop.example.com\", \"*.shop.example.com\"]",
        read: |site, value| {
            site.hosts = Some(value.each(|item| {
                let host = Host::parse(item.text()?).map_err(|why| item.refused(&why))?;
                Ok(WithSpan(host, item.span()))
            })?);
            Ok(())
        },
    },
    Directive {
        name: "root",
        default: Preset::Words("none; every site needs it"),
        takes: "the path of a directory",
        needs: Needs::Live,
        doc: "The document root: the directory with the site's public files and scripts. As \
              long as it does not exist or cannot be read, the site responds with 503, and the \
              others are served. A relative path starts from the directory of its file.",
        example: "\"public\"",
        read: |site, value| store(&mut site.root, value.path().map(Some)),
    },
    Directive {
        name: "index",
        default: Preset::Value("[\"index.php\", \"index.html\"]"),
        takes: "a file name such as \"index.php\", or an array of them",
        needs: Needs::Live,
        doc: "The index files of a directory; the first that exists is used.",
        example: "[\"index.html\", \"index.php\"]",
        read: |site, value| {
            site.index = Some(value.each(|item| {
                if item.text()?.contains(char::is_whitespace) {
                    let names = item.text()?.split_whitespace();
                    let names: Vec<_> = names.map(|name| format!("\"{}\"", quoted(name))).collect();
                    let names = names.join(", ");
                    let why =
                        format!("has a space; expected each name by itself, such as [{names}]");
                    return Err(item.refused(&why));
                }
                item.text_as(|text| {
                    let good = !["", ".", ".."].contains(&text) && !text.contains('/');
                    good.then(|| text.to_owned())
                })
            })?);
            Ok(())
        },
    },
    Directive {
        name: "pool",
        default: Preset::Words("the only pool, or one called `www` if the file defines none"),
        takes: "the name of a pool",
        needs: Needs::Live,
        doc: "The pool that runs the site's PHP. Required if there are several pools.",
        example: "\"shop\"",
        read: |site, value| {
            site.pool = Some((value.text()?.to_owned(), value.span()));
            Ok(())
        },
    },
    Directive {
        name: "upstream",
        default: Preset::Words("none; a pool runs the site's PHP"),
        takes: "\"unix:/path\" or \"host:port\"",
        needs: Needs::Live,
        doc: "A FastCGI server that runs the site's PHP in place of a pool, such as php-fpm.",
        example: "\"unix:/run/php/php8.2-fpm.sock\"",
        read: |site, value| {
            let upstream = value.text_as(|text| Some(parse_upstream(text)))?;
            let upstream = upstream.map_err(|why| match why {
                Some(why) => value.refused(why),
                None => value.wrong(),
            })?;
            site.upstream = Some((upstream, value.span()));
            Ok(())
        },
    },
    Directive {
        name: "front_controller",
        default: Preset::Value("\"/index.php\""),
        takes: "a path below the root such as \"/index.php\", or \"\" for none",
        needs: Needs::Live,
        doc: "The script for all paths without a file, as WordPress, Laravel and Symfony need. \
              It is used only if it exists. With `\"\"` such a path is a 404.",
        example: "\"/app.php\"",
        read: |site, value| {
            store(&mut site.front_controller, value.text_as(front_controller).map(Some))
        },
    },
    Directive {
        name: "max_body_size",
        default: Preset::Value("\"256M\""),
        takes: "a size from 1 on such as \"64M\"",
        needs: Needs::Live,
        doc: "The largest request body; a larger one gets a 413. PHP's own limits, \
              `post_max_size` and `upload_max_filesize`, apply as well.",
        example: "\"64M\"",
        read: |site, value| store(&mut site.max_body_size, value.size(1).map(Some)),
    },
    Directive {
        name: "access_log",
        default: Preset::Words("`access_log` at the top of the file"),
        takes: "a path or \"off\"",
        needs: Needs::Live,
        doc: "The access log of the site, in place of the server's; sites may share one. Its \
              format is `access_log_format`.",
        example: "\"log/shop.log\"",
        read: |site, value| {
            site.access_log = match value.text()? {
                "off" => SiteLog::Off,
                _ => SiteLog::File(value.log_path()?),
            };
            Ok(())
        },
    },
];

/// Parses the address of a FastCGI server. An error may have a reason.
pub(super) fn parse_upstream(text: &str) -> Result<Upstream, Option<&'static str>> {
    if let Some(path) = text.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return Err(Some(
                "is not absolute; expected \"unix:\" and a path that starts with \"/\"",
            ));
        }
        if path.len() > MAX_SOCKET_PATH_BYTES {
            return Err(Some("is longer than the 107 bytes that a Unix socket's path may have"));
        }
        return Ok(Upstream::Unix(PathBuf::from(path)));
    }
    if text.starts_with('/') {
        return Err(Some("lacks \"unix:\" in front of the path of a Unix socket"));
    }
    let (host, port) = text.rsplit_once(':').ok_or(None)?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse::<u16>().ok().filter(|port| digits && *port > 0).ok_or(None)?;
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let good = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_host_name(host),
    };
    let host = bracketed.unwrap_or(host).to_owned();
    if good { Ok(Upstream::Tcp { host, port }) } else { Err(None) }
}

fn front_controller(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let inner = text.strip_prefix('/')?;
    let good = inner.split('/').all(|part| !["", ".", ".."].contains(&part));
    good.then(|| Some(text.to_owned()))
}
