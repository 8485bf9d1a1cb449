//! A pool's FastCGI listener: settings of `[pools.NAME]`. Names are php-fpm's, with `_` for `.`.

use std::net::IpAddr;
use std::path::PathBuf;

use crate::model::access_format::AccessFormat;
use crate::model::listener::Address;
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::drafts::{ListenAddress, ListenerDraft};
use crate::read::listen::parse_listen;
use crate::read::value::{BadValue, Value};

/// Most `listen_backlog`, which is an `int` in the kernel.
const MAX_BACKLOG: u32 = i32::MAX as u32;

/// Longest path of a Unix socket in bytes: `sun_path` of `sockaddr_un` without its NUL (unix(7)).
pub(crate) const MAX_SOCKET_PATH_BYTES: usize = 107;

const ADDRESS: &str = "the path of a Unix socket, or an address and a port such as \
                       \"127.0.0.1:9000\"";

/// The directives of a pool's FastCGI listener.
pub const DIRECTIVES: &[Directive<ListenerDraft>] = &[
    Directive {
        name: "listen",
        default: Preset::Words("none"),
        takes: ADDRESS,
        needs: Needs::NewZygote,
        doc: "The FastCGI listener, to which web servers such as nginx and Apache connect as to \
              php-fpm. A port alone means all addresses. Without it, the pool serves its sites \
              only; where every pool has one, there need be no site.",
        example: "\"/run/maitred/www.sock\"",
        read: |listener, value| store(&mut listener.listen, asked(value).map(Some)),
    },
    Directive {
        name: "listen_backlog",
        default: Preset::Words("the kernel's maximum (`net.core.somaxconn`)"),
        takes: "a whole number from 1 to 2147483647",
        needs: Needs::NewZygote,
        doc: "Most connections that wait in the kernel to be accepted.",
        example: "511",
        read: |listener, value| store(&mut listener.backlog, value.count(1, MAX_BACKLOG).map(Some)),
    },
    Directive {
        name: "listen_owner",
        default: Preset::Words("the user who starts the server"),
        takes: "the name or the number of a user",
        needs: Needs::NewZygote,
        doc: "The owner of the Unix socket: the web server's user. Needs maitred to be started as \
              root.",
        example: "\"www-data\"",
        read: |listener, value| store(&mut listener.owner, value.account().map(Some)),
    },
    Directive {
        name: "listen_group",
        default: Preset::Words("that of `listen_owner`"),
        takes: "the name or the number of a group",
        needs: Needs::NewZygote,
        doc: "The group of the Unix socket.",
        example: "\"www-data\"",
        read: |listener, value| store(&mut listener.group, value.account().map(Some)),
    },
    Directive {
        name: "listen_mode",
        default: Preset::Value("\"0660\""),
        takes: "an octal number in quotes such as \"0660\"",
        needs: Needs::NewZygote,
        doc: "The mode of the Unix socket. Write permission allows to connect.",
        example: "\"0666\"",
        read: |listener, value| {
            let octal = |text: &str| u32::from_str_radix(text, 8).ok();
            listener.mode = Some(value.text_as(|text| octal(text).filter(|mode| *mode <= 0o777))?);
            Ok(())
        },
    },
    Directive {
        name: "listen_acl_users",
        default: Preset::Words("none"),
        takes: "the name of a user, or an array of them",
        needs: Needs::NewZygote,
        doc: "Users who may connect to the Unix socket (POSIX ACL), in place of `listen_owner` \
              and `listen_group`.",
        example: "[\"www-data\", \"nginx\"]",
        read: |listener, value| store(&mut listener.acl_users, value.each(Value::account)),
    },
    Directive {
        name: "listen_acl_groups",
        default: Preset::Words("none"),
        takes: "the name of a group, or an array of them",
        needs: Needs::NewZygote,
        doc: "Groups that may connect to the Unix socket (POSIX ACL), in place of `listen_owner` \
              and `listen_group`.",
        example: "[\"web\"]",
        read: |listener, value| store(&mut listener.acl_groups, value.each(Value::account)),
    },
    Directive {
        name: "listen_allowed_clients",
        default: Preset::Words("all"),
        takes: "an IP address, or an array of them",
        needs: Needs::NewZygote,
        doc: "Addresses of web servers that may connect over TCP.",
        example: "[\"10.0.0.5\", \"::1\"]",
        read: |listener, value| {
            let address = |value: &Value<'_>| value.text_as(|text| text.parse::<IpAddr>().ok());
            listener.allowed_clients = Some(value.each(address)?);
            Ok(())
        },
    },
    Directive {
        name: "status_listen",
        default: Preset::Words("none"),
        takes: ADDRESS,
        needs: Needs::NewZygote,
        doc: "A FastCGI listener for the pool's status page alone, at `status_path` or else at \
              `/`.",
        example: "\"127.0.0.1:9001\"",
        read: |listener, value| store(&mut listener.status_listen, asked(value).map(Some)),
    },
    Directive {
        name: "limit_extensions",
        default: Preset::Value("[\".php\", \".phar\"]"),
        takes: "an ending such as \".php\", or an array of them",
        needs: Needs::NewZygote,
        doc: "File name endings of scripts that web servers may run. php-fpm's \
              `security.limit_extensions`. `\"\"` means that every file is a script.",
        example: "[\".php\", \".php8\"]",
        read: |listener, value| {
            let ending = |value: &Value<'_>| {
                value.text_as(|text| {
                    let good = text.is_empty() || text.starts_with('.') && text.len() > 1;
                    (good && !text.contains([' ', '/'])).then(|| text.to_owned())
                })
            };
            let mut endings = value.each(ending)?;
            endings.retain(|ending| !ending.is_empty());
            listener.limit_extensions = Some(endings);
            Ok(())
        },
    },
    Directive {
        name: "access_log",
        default: Preset::Words("none"),
        takes: "a path",
        needs: Needs::NewZygote,
        doc: "The access log of the FastCGI listener. `access_log` at the top of the file does \
              not apply to it.",
        example: "\"log/www.access.log\"",
        read: |listener, value| store(&mut listener.access_log, value.log_path().map(Some)),
    },
    Directive {
        name: "access_format",
        default: Preset::Value("\"%R - %u %t \\\"%m %r\\\" %s\""),
        takes: "a format as php-fpm's `access.format` has it",
        needs: Needs::NewZygote,
        doc: "The format of the FastCGI listener's access log, in php-fpm's placeholders.",
        example: "\"%t %m %r%Q%q %s %{milli}d ms %{kilo}M kB\"",
        read: |listener, value| {
            let format = value.text()?;
            if let Err(problem) = AccessFormat::parse(format) {
                return Err(value.refused(&format!("is no such format: {problem}")));
            }
            listener.access_format = Some(format.to_owned());
            Ok(())
        },
    },
    Directive {
        name: "access_suppress_path",
        default: Preset::Words("none"),
        takes: "a path that starts with \"/\", or an array of them",
        needs: Needs::NewZygote,
        doc: "Paths that are not logged: plain GET or HEAD requests without query or body that \
              get a 2xx response.",
        example: "[\"/ping\"]",
        read: |listener, value| {
            let path = |value: &Value<'_>| {
                value.text_as(|text| text.starts_with('/').then(|| text.to_owned()))
            };
            listener.access_suppress_path = value.each(path)?;
            Ok(())
        },
    },
];

pub(crate) fn asked(value: &Value<'_>) -> Result<ListenAddress, BadValue> {
    let text = value.text()?;
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let address = if path.starts_with('/') {
        if path.len() > MAX_SOCKET_PATH_BYTES {
            return Err(value.refused(&format!(
                "is longer than the {MAX_SOCKET_PATH_BYTES} bytes that a Unix socket's path may \
                 have"
            )));
        }
        Address::Unix(PathBuf::from(path))
    } else if path.len() < text.len() {
        return Err(
            value.refused("is not absolute; expected \"unix:\" and a path that starts with \"/\"")
        );
    } else {
        Address::Tcp(parse_listen(text).map_err(|why| value.refused(&why))?)
    };
    Ok(ListenAddress { address, text: path.to_owned() })
}
