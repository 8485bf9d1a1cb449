//! Directives without a counterpart, and why none is needed or what to do.

/// Directives that need no counterpart: tuning of nginx itself, and what maitred does anyway.
const NOT_NEEDED: [&str; 62] = [
    "absolute_redirect",
    "accept_mutex",
    "aio",
    "aio_write",
    "brotli",
    "brotli_buffers",
    "brotli_comp_level",
    "brotli_min_length",
    "brotli_static",
    "brotli_types",
    "brotli_window",
    "chunked_transfer_encoding",
    "connection_pool_size",
    "daemon",
    "default_type",
    "directio",
    "etag",
    "events",
    "gzip_buffers",
    "gunzip",
    "gunzip_buffers",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_proxied",
    "gzip_static",
    "gzip_vary",
    "http2",
    "ignore_invalid_headers",
    "keepalive_requests",
    "keepalive_timeout",
    "large_client_header_buffers",
    "client_header_buffer_size",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_body_timeout",
    "client_header_timeout",
    "log_not_found",
    "multi_accept",
    "pcre_jit",
    "output_buffers",
    "port_in_redirect",
    "postpone_output",
    "read_ahead",
    "request_pool_size",
    "reset_timedout_connection",
    "resolver",
    "resolver_timeout",
    "send_timeout",
    "sendfile",
    "sendfile_max_chunk",
    "server_name_in_redirect",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_tokens",
    "ssi",
    "tcp_nodelay",
    "tcp_nopush",
    "types",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "use",
];

/// Beginnings of names whose directives only tune the connection to PHP or to another server.
const TUNING: [&str; 27] = [
    "fastcgi_buffer",
    "fastcgi_busy_",
    "fastcgi_connect_timeout",
    "fastcgi_index",
    "fastcgi_keep_conn",
    "fastcgi_max_temp_file_size",
    "fastcgi_next_upstream",
    "fastcgi_request_buffering",
    "fastcgi_send_timeout",
    "fastcgi_socket_keepalive",
    "fastcgi_split_path_info",
    "fastcgi_temp_",
    "http2_",
    "lingering_",
    "map_hash_",
    "open_file_cache",
    "proxy_buffer",
    "proxy_busy_",
    "proxy_headers_hash_",
    "proxy_http_version",
    "proxy_next_upstream",
    "proxy_temp_",
    "quic_",
    "scgi_temp_path",
    "uwsgi_temp_path",
    "variables_hash_",
    "worker_",
];

/// Directives that do not decide who may see what, and what to do.
const BY_HAND: [(&str, &str); 33] = [
    ("access_log", "set `access_log` at the top of the file or of the site"),
    ("autoindex_exact_size", "lists of folders have one form"),
    ("autoindex_format", "lists of folders have one form"),
    ("autoindex_localtime", "lists of folders have one form"),
    ("charset", "scripts set the charset themselves (`default_charset` of PHP)"),
    ("debug_connection", "see `maitred explain` and `--log-level debug`"),
    ("error_log", "set `error_log` at the top of the file"),
    ("fastcgi_ignore_client_abort", "set `ignore_user_abort` in `php_value` of the pool"),
    ("fastcgi_pass_header", "headers of scripts are passed"),
    ("http3", "HTTP/3 is not served"),
    ("limit_rate", "the rate of a response has no limit here"),
    ("limit_rate_after", "the rate of a response has no limit here"),
    ("limit_req_log_level", "see the guide's page on logs"),
    ("limit_req_status", "the status is 429"),
    ("limit_conn_status", "the status is 429"),
    ("load_module", "modules of nginx have no counterpart"),
    ("log_format", "set `access_log_format`, which knows nginx's variables"),
    ("log_subrequest", "there are no subrequests"),
    ("map", "its variable has no counterpart; a use of it is named on its own"),
    ("mirror", "requests are not mirrored"),
    ("msie_padding", "browsers that need it are gone"),
    ("proxy_hide_header", "set `headers` with `unset`"),
    ("proxy_redirect", "the `Location` of an upstream server is passed as it is"),
    ("recursive_error_pages", "an error page has no error page of its own"),
    ("rewrite_log", "see `maitred explain`"),
    ("set", "variables have no counterpart; a use of one is named on its own"),
    ("stream", "maitred serves HTTP only; let nginx serve the rest on its own ports"),
    ("mail", "maitred serves HTTP only; let nginx serve the rest on its own ports"),
    ("stub_status", "`admin` has metrics for Prometheus, and `maitred status` the rest"),
    ("sub_filter", "responses are not changed"),
    ("sub_filter_once", "responses are not changed"),
    ("underscores_in_headers", "headers with an underscore are not passed"),
    ("userid", "no cookie is set"),
];

/// What a directive without a finding of its own is.
pub enum KnownDirective {
    /// Nothing is needed.
    NotNeeded,
    /// It is left out, with what to do; it does not decide who may see what.
    ByHand(&'static str),
    /// A cache of responses.
    Cache,
    /// A directive that the import knows, in a place where it cannot be written.
    Misplaced,
    /// Unknown, or it decides who may see what.
    Access,
}

/// Directives with a counterpart that do not decide who may see what.
const COUNTERPARTS: [&str; 29] = [
    "add_header",
    "alias",
    "autoindex",
    "break",
    "client_max_body_size",
    "error_page",
    "expires",
    "fastcgi_hide_header",
    "fastcgi_intercept_errors",
    "fastcgi_param",
    "fastcgi_pass",
    "fastcgi_read_timeout",
    "gzip",
    "gzip_min_length",
    "gzip_types",
    "index",
    "limit_conn",
    "limit_conn_zone",
    "limit_req",
    "limit_req_zone",
    "proxy_connect_timeout",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_send_timeout",
    "proxy_set_header",
    "rewrite",
    "root",
    "try_files",
    "upstream",
];

/// What is known of a directive.
pub fn known(name: &str) -> KnownDirective {
    let by_hand = BY_HAND.iter().find(|(known, _)| *known == name);
    let is_tuning = || TUNING.iter().any(|start| name.starts_with(start));
    let of_server = ["user", "pid", "env", "timer_resolution", "lock_file", "thread_pool"];
    let of_tls = name.starts_with("ssl_")
        && !["ssl_client_certificate", "ssl_verify_client", "ssl_trusted_certificate", "ssl_crl"]
            .contains(&name)
        && !["ssl_verify_depth", "ssl_ocsp", "ssl_reject_handshake"].contains(&name);
    match name {
        _ if NOT_NEEDED.contains(&name) || of_server.contains(&name) => KnownDirective::NotNeeded,
        _ if is_tuning() => KnownDirective::NotNeeded,
        _ if of_tls || name == "ssl_trusted_certificate" => KnownDirective::NotNeeded,
        _ if name.starts_with("fastcgi_cache") || name.starts_with("proxy_cache") => {
            KnownDirective::Cache
        }
        "fastcgi_no_cache" | "proxy_no_cache" | "fastcgi_ignore_headers" => KnownDirective::Cache,
        _ if COUNTERPARTS.contains(&name) => KnownDirective::Misplaced,
        _ => match by_hand {
            Some((_, what)) => KnownDirective::ByHand(what),
            None => KnownDirective::Access,
        },
    }
}
