//! Directives of Apache without a finding of their own, and why none is needed or what to do.

use super::host_rewrites::decides;
use crate::source_directive::Directive;

/// What a directive without a finding of its own is.
pub(super) enum ApacheDirective {
    /// Nothing is needed.
    NotNeeded,
    /// It is left out, with what to do; it does not decide who may see what.
    ByHand(&'static str),
    /// A directive that the import knows, in a place where it cannot be written.
    Misplaced,
    /// As [`ApacheDirective::ByHand`], but it decides who may see what.
    AccessByHand(&'static str),
    /// Unknown, or it decides who may see what.
    Access,
}

/// Directives that need no counterpart: tuning of Apache itself, and what maitred does anyway.
const NOT_NEEDED: [&str; 91] = [
    "acceptfilter",
    "addcharset",
    "addencoding",
    "addlanguage",
    "addinputfilter",
    "allowencodedslashes",
    "asyncrequestworkerfactor",
    "authbasicauthoritative",
    "brotlicompressionquality",
    "buffersize",
    "bufferedlogs",
    "cgipassauth",
    "contentdigest",
    "coredumpdirectory",
    "defaultlanguage",
    "defaultruntimedir",
    "deflatebuffersize",
    "deflatecompressionlevel",
    "deflatefilternote",
    "deflatememlevel",
    "deflatewindowsize",
    "directoryslash",
    "documentroot",
    "enablemmap",
    "enablesendfile",
    "enableexceptionhook",
    "errorlogformat",
    "expiresactive",
    "extendedstatus",
    "fileetag",
    "forcelanguagepriority",
    "gracefulshutdowntimeout",
    "group",
    "hostnamelookups",
    "httpprotocoloptions",
    "keepalive",
    "keepalivetimeout",
    "languagepriority",
    "limitrequestfields",
    "limitrequestfieldsize",
    "limitrequestline",
    "listen",
    "listenbacklog",
    "listencoresbucketsratio",
    "loadmodule",
    "loadfile",
    "maxconnectionsperchild",
    "maxclients",
    "maxkeepaliverequests",
    "maxmemfree",
    "maxrequestsperchild",
    "maxrequestworkers",
    "maxspareservers",
    "maxsparethreads",
    "mimemagicfile",
    "minspareservers",
    "minsparethreads",
    "mutex",
    "namevirtualhost",
    "options",
    "pidfile",
    "protocols",
    "protocolshonororder",
    "proxybadheader",
    "proxypassreverse",
    "proxypassreversecookiedomain",
    "proxypassreversecookiepath",
    "proxypreservehost",
    "proxyrequests",
    "proxyset",
    "proxystatus",
    "proxytimeout",
    "proxyvia",
    "receivebuffersize",
    "requestreadtimeout",
    "rewriteengine",
    "rewritebase",
    "scoreboardfile",
    "seerequesttail",
    "sendbuffersize",
    "serveradmin",
    "serverlimit",
    "serverroot",
    "serversignature",
    "servertokens",
    "startservers",
    "threadlimit",
    "threadsperchild",
    "threadstacksize",
    "timeout",
    "traceenable",
];

/// Further ones.
const NOT_NEEDED_EITHER: [&str; 7] = [
    "servername",
    "typesconfig",
    "usecanonicalname",
    "usecanonicalphysicalport",
    "user",
    "mmapfile",
    "maxrangeoverlaps",
];

/// Beginnings of names of directives that need no counterpart.
const TUNING: [&str; 7] =
    ["h2", "addicon", "index", "adddescription", "defaulticon", "headername", "readmename"];

/// Beginnings of names of directives for TLS that do not decide which clients are let in.
const OF_TLS: [&str; 21] = [
    "sslcadnrequest",
    "sslcertificate",
    "sslciphersuite",
    "sslcompression",
    "sslcryptodevice",
    "sslengine",
    "sslfips",
    "sslhonorcipherorder",
    "sslinsecurerenegotiation",
    "sslocsp",
    "sslopensslconfcmd",
    "sslpassphrasedialog",
    "sslprotocol",
    "sslproxy",
    "sslrandomseed",
    "sslrenegbuffersize",
    "sslsession",
    "sslstapling",
    "sslstrictsnivhostcheck",
    "sslusestapling",
    "sslvhostsnipolicy",
];

/// Directives that do not decide who may see what, and what to do.
const BY_HAND: [(&str, &str); 30] = [
    ("action", "CGI programs do not run here"),
    ("adddefaultcharset", "text has the charset UTF-8, and scripts set theirs themselves"),
    ("addoutputfilter", "responses are not filtered; `compression` says what is compressed"),
    ("addoutputfilterbytype", "responses are not filtered; `compression` says what is compressed"),
    ("addtype", "types are those of the file's extension; a script may send another"),
    ("addhandler", "only PHP runs here"),
    ("checkspelling", "paths are not corrected"),
    ("cookietracking", "no cookie is set"),
    ("customlog", "write `access_log` of the site"),
    ("errorlog", "set `error_log` at the top of the file"),
    ("forcetype", "types are those of the file's extension"),
    ("forensiclog", "set `access_log`"),
    ("globallog", "set `access_log` at the top of the file"),
    ("loglevel", "see the guide's page on logs"),
    ("mdomain", "set `acme` in [tls]"),
    ("mdcertificateagreement", "set `acme` in [tls]"),
    ("mdcontactemail", "set `acme` in [tls]"),
    ("passenv", "set `pass_env` of the pool"),
    ("removehandler", "only PHP runs here, by the extension `.php`"),
    ("removetype", "types are those of the file's extension"),
    ("rewritelog", "see `maitred explain`"),
    ("rewriteoptions", "rules are not inherited"),
    ("setoutputfilter", "responses are not filtered; `compression` says what is compressed"),
    ("suexecusergroup", "set `user` of the pool"),
    ("unsetenv", "variables are those of the pool (`env`)"),
    ("ssioptions", "server-side includes are not evaluated"),
    ("sslcertificatechainfile", "append it to the file of the certificate"),
    ("ssloptions", "scripts get the variables of TLS that begin with `SSL_CLIENT_` only"),
    ("substitute", "responses are not changed"),
    ("xbithack", "server-side includes are not evaluated"),
];

/// Directives with a counterpart that do not decide who may see what.
const COUNTERPARTS: [&str; 17] = [
    "alias",
    "define",
    "directoryindex",
    "errordocument",
    "expiresbytype",
    "expiresdefault",
    "fallbackresource",
    "header",
    "limitrequestbody",
    "logformat",
    "php_flag",
    "php_value",
    "proxypass",
    "redirect",
    "redirectmatch",
    "serveralias",
    "setenv",
];

/// What takes the place of a header that a proxy sets.
const FORWARDED: &str = "set `trusted_proxies` and `trusted_headers`: scripts get the scheme and \
                         the address of the client by the headers of these proxies";

/// The beginning of the names of such headers, in small letters.
const FORWARDED_HEADERS: &str = "x-forwarded-";

/// What is known of a directive.
pub(super) fn known(directive: &Directive) -> ApacheDirective {
    let name = directive.name.to_ascii_lowercase();
    let name = name.as_str();
    let by_hand = BY_HAND.iter().find(|(known, _)| *known == name);
    let of_tls = OF_TLS.iter().any(|start| name.starts_with(start)) && by_hand.is_none();
    match name {
        _ if NOT_NEEDED.contains(&name) || NOT_NEEDED_EITHER.contains(&name) => {
            ApacheDirective::NotNeeded
        }
        "acceptpathinfo" => match directive.first().eq_ignore_ascii_case("off") {
            true => ApacheDirective::ByHand(
                "scripts get what follows their name in a path: `deny` of the site has patterns",
            ),
            false => ApacheDirective::NotNeeded,
        },
        "userdir" => match directive.first().eq_ignore_ascii_case("disabled") {
            true => ApacheDirective::NotNeeded,
            false => ApacheDirective::ByHand(
                "folders of users (`/~name/`) are not served: write `aliases` of the site",
            ),
        },
        _ if TUNING.iter().any(|start| name.starts_with(start)) => ApacheDirective::NotNeeded,
        // Revoked certificates of clients are refused.
        "sslocspenable" if !directive.first().eq_ignore_ascii_case("off") => {
            ApacheDirective::Access
        }
        _ if of_tls => ApacheDirective::NotNeeded,
        "<proxy" | "<proxymatch" => of_proxy(directive),
        "<if" | "<elseif" | "<else" | "<limit" | "<limitexcept" => of_condition(directive),
        "accessfilename" => match directive.arguments.as_slice() {
            [only] if only == ".htaccess" => ApacheDirective::NotNeeded,
            _ => ApacheDirective::Access,
        },
        "regexdefaultoptions" => {
            let adds_case = |word: &String| word.to_ascii_lowercase().ends_with("icase");
            let mut words = directive.arguments.iter().filter(|word| !word.starts_with('-'));
            match words.any(adds_case) {
                true => ApacheDirective::Access,
                false => ApacheDirective::NotNeeded,
            }
        }
        "sethandler" => match directive.first() {
            "server-status" | "server-info" => {
                ApacheDirective::ByHand("`admin` has metrics, and `maitred status` the rest")
            }
            _ => ApacheDirective::ByHand("only PHP runs here"),
        },
        "setenvif" | "setenvifnocase" => of_variable(directive, 2),
        "setenvifexpr" | "browsermatch" | "browsermatchnocase" => of_variable(directive, 1),
        "requestheader" => match directive.argument(1).to_ascii_lowercase().as_str() {
            // Scripts never get it.
            "proxy" => ApacheDirective::NotNeeded,
            header if header.starts_with(FORWARDED_HEADERS) => {
                ApacheDirective::AccessByHand(FORWARDED)
            }
            _ => ApacheDirective::Access,
        },
        _ if COUNTERPARTS.contains(&name) => ApacheDirective::Misplaced,
        // Without `Require`, these have no effect.
        "authname" | "authtype" | "authuserfile" | "authgroupfile" | "authbasicprovider" => {
            ApacheDirective::NotNeeded
        }
        _ => match by_hand {
            Some((_, what)) => ApacheDirective::ByHand(what),
            None => ApacheDirective::Access,
        },
    }
}

/// `<Proxy>`: who may use a forward proxy, and settings of a server.
fn of_proxy(directive: &Directive) -> ApacheDirective {
    let is_harmless = |one: &Directive| {
        one.is("ProxySet")
            || one.is("Require") && one.arguments.join(" ").eq_ignore_ascii_case("all granted")
            || one.is("Order") && one.arguments.concat().eq_ignore_ascii_case("deny,allow")
            || one.is("Allow") && one.arguments.join(" ").eq_ignore_ascii_case("from all")
            || one.is("AddDefaultCharset")
    };
    match directive.block.iter().all(is_harmless) {
        true => ApacheDirective::NotNeeded,
        false if directive.first().starts_with("balancer:") => {
            ApacheDirective::ByHand("one server can be behind a path (`[[sites.proxy]]`)")
        }
        false => ApacheDirective::Access,
    }
}

/// `<If>` and `<Limit>`: they decide about access if a directive in them does.
fn of_condition(directive: &Directive) -> ApacheDirective {
    let is_response = |one: &Directive| {
        let known = ["Header", "SetEnv", "ExpiresDefault", "ErrorDocument", "ExpiresActive"];
        known.iter().any(|name| one.is(name))
    };
    let sets_php = |one: &Directive| one.is("SetEnv") && decides(one.first());
    match directive.block.iter().all(|one| is_response(one) && !sets_php(one)) {
        true => ApacheDirective::ByHand(
            "conditions by request have no counterpart but in `.htaccess` files, with `htaccess = \
             true`",
        ),
        false => ApacheDirective::Access,
    }
}

/// `SetEnvIf` and relatives: variables of the request, which follow this many words.
fn of_variable(directive: &Directive, at: usize) -> ApacheDirective {
    let sets = directive.arguments.iter().skip(at).map(|one| one.trim_start_matches('!'));
    let are_all_of =
        |known: &[&str]| sets.clone().all(|one| known.iter().any(|name| one.starts_with(name)));
    let header = directive.first().to_ascii_lowercase();
    let is_forwarded = at == 2 && header.starts_with(FORWARDED_HEADERS);
    let known = ["HTTP_AUTHORIZATION", "no-gzip", "dont-vary", "nokeepalive", "downgrade"];
    match () {
        () if sets.clone().any(decides) => ApacheDirective::Access,
        () if are_all_of(&known) => ApacheDirective::NotNeeded,
        () if is_forwarded => ApacheDirective::ByHand(FORWARDED),
        () => ApacheDirective::ByHand(
            "variables by request have no counterpart; a use of one for access is named on its own",
        ),
    }
}
