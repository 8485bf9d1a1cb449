//! Names of settings in other programs, and what to write in their place.

/// Names that another program has for something, and what to do here.
pub(super) struct ForeignName {
    /// The names, in the spelling of their program; case, `_` and `-` do not matter.
    pub(super) names: &'static [&'static str],
    /// The program, as in "is a setting of PHP".
    pub(super) of: &'static str,
    /// What to do, as in "write …" or "leave it out: …".
    pub(super) remedy: &'static str,
}

/// A setting of php.ini: its name, an example of its value, and a setting to see as well.
pub(super) struct PhpSetting {
    pub(super) name: &'static str,
    pub(super) example: &'static str,
    pub(super) see: &'static str,
}

const fn nginx(names: &'static [&'static str], remedy: &'static str) -> ForeignName {
    ForeignName { names, of: "nginx", remedy }
}

const fn apache(names: &'static [&'static str], remedy: &'static str) -> ForeignName {
    ForeignName { names, of: "Apache", remedy }
}

const fn caddy(names: &'static [&'static str], remedy: &'static str) -> ForeignName {
    ForeignName { names, of: "Caddy", remedy }
}

const fn fpm(names: &'static [&'static str], remedy: &'static str) -> ForeignName {
    ForeignName { names, of: "php-fpm", remedy }
}

/// Settings of servers.
pub(super) const FOREIGN_NAMES: &[ForeignName] = &[
    nginx(&["server_name"], "write `hosts = [\"shop.example\"]` in [[sites]]"),
    nginx(
        &["client_max_body_size"],
        "write `max_body_size = \"64M\"` in [[sites]]; see also `upload_max_filesize` and \
         `post_max_size` of PHP",
    ),
    nginx(&["server"], "write [[sites]] with the `hosts` and the `root` of each server"),
    nginx(&["http", "events"], "leave the section out; write [[sites]] for each site"),
    nginx(
        &["location"],
        "write `deny`, `headers`, `proxy` or `paths` in [[sites]], each with a pattern of paths",
    ),
    nginx(
        &["fastcgi_pass"],
        "write `pool = \"www\"` in [[sites]], or `upstream = \"unix:/run/php/php-fpm.sock\"` for a \
         php-fpm that stays",
    ),
    nginx(
        &["proxy_pass"],
        "write `proxy = [{ path = \"/app/*\", to = \"http://127.0.0.1:3000\" }]` in [[sites]]",
    ),
    nginx(&["proxy_read_timeout"], "write `read_timeout` in the item of `proxy` in [[sites]]"),
    nginx(
        &["fastcgi_read_timeout", "fastcgi_send_timeout"],
        "write `request_terminate_timeout = \"60s\"` in the pool",
    ),
    nginx(&["fastcgi_param"], "write `env = { APP_ENV = \"prod\" }` in the pool"),
    nginx(&["fastcgi_index"], "write `index = [\"index.php\"]` in [[sites]]"),
    nginx(
        &["fastcgi_intercept_errors", "proxy_intercept_errors"],
        "write `intercept_errors = true` in [[sites]]",
    ),
    nginx(
        &["fastcgi_cache", "fastcgi_cache_valid", "proxy_cache", "proxy_cache_valid"],
        "write a section [sites.cache] with `valid = \"10m\"` after the settings of the site",
    ),
    nginx(
        &["fastcgi_cache_path", "proxy_cache_path"],
        "write `cache_dir = \"/var/cache/maitred\"` before the first section",
    ),
    nginx(
        &["ssl_certificate", "ssl_certificate_key"],
        "write `certificates = [{ cert = \"site.pem\", key = \"site.key\" }]` in [tls]",
    ),
    nginx(&["ssl_protocols"], "write `min_version = \"1.2\"` in [tls]"),
    nginx(&["ssl_client_certificate"], "write `client_ca = \"clients.pem\"` in [tls]"),
    nginx(&["ssl", "ssl_ciphers"], "leave it out; [tls] with `certificates` is enough"),
    nginx(&["http2"], "leave it out: HTTP/2 is on"),
    nginx(
        &["worker_processes"],
        "leave it out, or write `front_threads = 2` before the first section; the workers of PHP \
         are `max_children` of a pool",
    ),
    nginx(
        &["worker_connections", "worker_rlimit_nofile"],
        "leave it out: the limit is that of open files (`LimitNOFILE` of the service)",
    ),
    nginx(&["try_files"], "write `front_controller = \"/index.php\"` in [[sites]]"),
    nginx(&["return"], "write `redirects = [{ from = \"/old\", to = \"/new\" }]` in [[sites]]"),
    nginx(&["add_header"], "write `headers = { X-Frame-Options = \"DENY\" }` in [[sites]]"),
    nginx(&["error_page"], "write `error_pages = { 404 = \"/404.html\" }` in [[sites]]"),
    nginx(
        &["auth_basic", "auth_basic_user_file"],
        "write `basic_auth = { path = \"/admin/*\", users = \"users\" }` in [[sites]]",
    ),
    nginx(
        &["gzip", "brotli", "zstd", "gzip_comp_level"],
        "write `compression = [\"br\", \"gzip\"]` in [[sites]]; it is on by default",
    ),
    nginx(&["gzip_types", "brotli_types"], "write `compression_types` in [[sites]]"),
    nginx(&["gzip_min_length"], "write `compression_min_length = \"1k\"` in [[sites]]"),
    nginx(&["gzip_static", "brotli_static"], "write `precompressed = true` in [[sites]]"),
    nginx(
        &["limit_req", "limit_req_zone"],
        "write `rate_limit = { path = \"/login\", rate = \"10/m\" }` in [[sites]]",
    ),
    nginx(&["limit_conn", "limit_conn_zone"], "write `connection_limit = 20` in [[sites]]"),
    nginx(&["real_ip_header"], "write `trusted_headers` before the first section"),
    nginx(&["real_ip_recursive"], "write `trusted_recursive` before the first section"),
    nginx(&["set_real_ip_from"], "write `trusted_proxies` before the first section"),
    nginx(&["log_format"], "write `access_log_format = \"combined\"` before the first section"),
    nginx(&["client_body_timeout"], "write `min_request_rate = 500` before the first section"),
    nginx(&["send_timeout"], "write `min_response_rate = 500` before the first section"),
    nginx(&["client_body_temp_path"], "write `spool_dir` before the first section"),
    nginx(
        &["keepalive_timeout", "sendfile", "tcp_nopush", "tcp_nodelay", "server_tokens"],
        "leave it out: there is nothing to set",
    ),
    apache(&["DocumentRoot"], "write `root = \"/srv/shop/public\"` in [[sites]]"),
    apache(&["ServerName", "ServerAlias"], "write `hosts = [\"shop.example\"]` in [[sites]]"),
    apache(&["VirtualHost", "Directory"], "write [[sites]] with the `hosts` and the `root`"),
    apache(&["DirectoryIndex"], "write `index = [\"index.php\", \"index.html\"]` in [[sites]]"),
    apache(&["FallbackResource"], "write `front_controller = \"/index.php\"` in [[sites]]"),
    apache(&["ErrorDocument"], "write `error_pages = { 404 = \"/404.html\" }` in [[sites]]"),
    apache(&["AllowOverride"], "write `htaccess = true` in [[sites]]"),
    apache(
        &["RewriteEngine", "RewriteRule", "RewriteCond"],
        "write `rewrite` in [[sites]], or `htaccess = true` for a .htaccess file that has it",
    ),
    apache(
        &["Redirect", "RedirectMatch", "RedirectPermanent"],
        "write `redirects = [{ from = \"/old\", to = \"/new\" }]` in [[sites]]",
    ),
    apache(&["CustomLog", "TransferLog"], "write `access_log = \"/var/log/access.log\"`"),
    apache(&["ErrorLog"], "write `error_log = \"/var/log/error.log\"` before the first section"),
    apache(
        &["SSLCertificateFile", "SSLCertificateKeyFile", "SSLEngine"],
        "write `certificates = [{ cert = \"site.pem\", key = \"site.key\" }]` in [tls]",
    ),
    apache(&["SSLProtocol"], "write `min_version = \"1.2\"` in [tls]"),
    apache(&["MaxRequestWorkers", "MaxClients"], "write `max_children = 40` in the pool"),
    apache(&["MaxConnectionsPerChild"], "write `max_requests = 1000` in the pool"),
    apache(&["LimitRequestBody"], "write `max_body_size = \"64M\"` in [[sites]]"),
    apache(
        &["ProxyPass", "ProxyPassMatch"],
        "write `proxy = [{ path = \"/app/*\", to = \"http://127.0.0.1:3000\" }]` in [[sites]]",
    ),
    apache(&["SetEnv", "PassEnv"], "write `env` or `pass_env` in the pool"),
    apache(&["SetHandler", "AddHandler"], "write `pool = \"www\"` in [[sites]]"),
    apache(&["Options"], "write `autoindex = [\"/downloads/*\"]` in [[sites]] for lists of files"),
    apache(&["Require"], "write `allow`, `deny` or `basic_auth` in [[sites]]"),
    apache(&["ServerAdmin", "ServerRoot"], "leave it out: there is nothing to set"),
    caddy(&["php_fastcgi", "php_server"], "write `pool = \"www\"` in [[sites]]"),
    caddy(&["file_server"], "leave it out: files below `root` are sent"),
    caddy(
        &["reverse_proxy"],
        "write `proxy = [{ path = \"/app/*\", to = \"http://127.0.0.1:3000\" }]` in [[sites]]",
    ),
    caddy(&["encode"], "write `compression = [\"br\", \"gzip\"]` in [[sites]]"),
    caddy(&["redir"], "write `redirects = [{ from = \"/old\", to = \"/new\" }]` in [[sites]]"),
    caddy(&["handle", "handle_path", "route"], "write `paths` or `proxy` in [[sites]]"),
    caddy(&["handle_errors"], "write `error_pages = { 404 = \"/404.html\" }` in [[sites]]"),
    caddy(&["import"], "write `include = \"sites.d/*.toml\"` before the first section"),
    caddy(
        &["email", "auto_https"],
        "write `acme = { email = \"ops@example.com\", terms_agreed = true }` in [tls]",
    ),
    caddy(&["request_body"], "write `max_body_size = \"64M\"` in [[sites]]"),
    fpm(&["pm.max_children"], "write `max_children = 40` in the pool"),
    fpm(&["pm.start_servers"], "write `start_servers = 4` in the pool"),
    fpm(&["pm.min_spare_servers"], "write `min_spare_servers = 2` in the pool"),
    fpm(&["pm.max_spare_servers"], "write `max_spare_servers = 6` in the pool"),
    fpm(&["pm.max_spawn_rate"], "write `max_spawn_rate = 32` in the pool"),
    fpm(&["pm.process_idle_timeout"], "write `process_idle_timeout = \"10s\"` in the pool"),
    fpm(&["pm.max_requests"], "write `max_requests = 1000` in the pool"),
    fpm(&["pm.status_path"], "write `status_path = \"/status\"` in the pool"),
    fpm(&["pm.status_listen"], "write `status_listen = \"/run/status.sock\"` in the pool"),
    fpm(&["ping.path"], "write `ping_path = \"/ping\"` in the pool"),
    fpm(&["ping.response"], "write `ping_response = \"pong\"` in the pool"),
    fpm(&["listen.owner"], "write `listen_owner = \"www-data\"` in the pool"),
    fpm(&["listen.group"], "write `listen_group = \"www-data\"` in the pool"),
    fpm(&["listen.mode"], "write `listen_mode = \"0660\"` in the pool"),
    fpm(&["listen.backlog"], "write `listen_backlog = 511` in the pool"),
    fpm(
        &["listen.allowed_clients"],
        "write `listen_allowed_clients = [\"127.0.0.1\"]` in the pool",
    ),
    fpm(&["listen.acl_users"], "write `listen_acl_users = [\"www-data\"]` in the pool"),
    fpm(&["listen.acl_groups"], "write `listen_acl_groups = [\"www-data\"]` in the pool"),
    fpm(&["access.log"], "write `access_log = \"/var/log/www.log\"` in the pool"),
    fpm(&["access.format"], "write `access_format` in the pool"),
    fpm(&["access.suppress_path"], "write `access_suppress_path` in the pool"),
    fpm(&["security.limit_extensions"], "write `limit_extensions = [\".php\"]` in the pool"),
    fpm(&["process.priority"], "write `process_priority = 5` in the pool"),
    fpm(&["process.max"], "write `max_children = 40` in each pool"),
    fpm(&["clear_env"], "write `pass_env = \"all\"` in the pool for `clear_env = no`"),
    fpm(
        &["catch_workers_output", "decorate_workers_output"],
        "leave it out: what workers print is in the error log",
    ),
    fpm(&["log_level"], "start the server with `--log-level`"),
    fpm(
        &["pid", "daemonize", "emergency_restart_threshold", "emergency_restart_interval"],
        "leave it out: there is nothing to set",
    ),
];

const fn ini(name: &'static str, example: &'static str) -> PhpSetting {
    PhpSetting { name, example, see: "" }
}

const fn ini_and(name: &'static str, example: &'static str, see: &'static str) -> PhpSetting {
    PhpSetting { name, example, see }
}

/// Settings of php.ini.
pub(super) const PHP_SETTINGS: &[PhpSetting] = &[
    ini_and("upload_max_filesize", "\"64M\"", "`max_body_size` in [[sites]]"),
    ini_and("post_max_size", "\"64M\"", "`max_body_size` in [[sites]]"),
    ini_and("max_execution_time", "60", "`request_terminate_timeout` in the pool"),
    ini_and("memory_limit", "\"256M\"", "`memory_max` in the pool"),
    ini("max_input_time", "60"),
    ini("max_input_vars", "5000"),
    ini("max_file_uploads", "20"),
    ini("file_uploads", "true"),
    ini("upload_tmp_dir", "\"/srv/shop/tmp\""),
    ini("sys_temp_dir", "\"/srv/shop/tmp\""),
    ini("display_errors", "false"),
    ini("display_startup_errors", "false"),
    ini("log_errors", "true"),
    ini("error_reporting", "\"E_ALL\""),
    ini("html_errors", "false"),
    ini("short_open_tag", "false"),
    ini("output_buffering", "4096"),
    ini("default_charset", "\"UTF-8\""),
    ini("include_path", "\".:/srv/shop/lib\""),
    ini("open_basedir", "\"/srv/shop\""),
    ini("disable_functions", "\"exec,system\""),
    ini("auto_prepend_file", "\"/srv/shop/before.php\""),
    ini("auto_append_file", "\"/srv/shop/after.php\""),
    ini("allow_url_fopen", "true"),
    ini("allow_url_include", "false"),
    ini("default_socket_timeout", "60"),
    ini("realpath_cache_size", "\"4096k\""),
    ini("realpath_cache_ttl", "600"),
    ini("variables_order", "\"GPCS\""),
    ini("user_ini.cache_ttl", "300"),
    ini("date.timezone", "\"Europe/Vienna\""),
    ini("sendmail_path", "\"/usr/sbin/sendmail -t -i\""),
    ini("timezone", "\"Europe/Vienna\""),
];

/// First parts of the names of php.ini settings that PHP's extensions have, such as
/// `session.gc_maxlifetime`.
pub(super) const PHP_PREFIXES: &[&str] = &[
    "apc",
    "assert",
    "curl",
    "date",
    "exif",
    "ffi",
    "gd",
    "iconv",
    "imagick",
    "intl",
    "ldap",
    "mail",
    "mbstring",
    "memcached",
    "mysqli",
    "mysqlnd",
    "opcache",
    "openssl",
    "pcre",
    "pdo_mysql",
    "pgsql",
    "phar",
    "redis",
    "session",
    "soap",
    "sqlite3",
    "tidy",
    "user_ini",
    "xdebug",
    "zend",
    "zlib",
];

/// Settings that load extensions, which only an INI file has.
pub(super) const PHP_LOADERS: &[&str] = &["extension", "zend_extension", "extension_dir"];
