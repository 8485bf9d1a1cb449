<?php
// WordPress's settings, from the variables of the container.
foreach (['DB_NAME', 'DB_USER', 'DB_PASSWORD', 'DB_HOST'] as $name) {
    define($name, getenv("WORDPRESS_$name") ?: '');
}
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');

// Behind a proxy with TLS, which `trusted_proxies` has to name, the server says so in HTTPS.
define('WP_DEBUG', false);
define('FS_METHOD', 'direct');

// WordPress makes its keys and salts itself, and has them in its database.
$table_prefix = getenv('WORDPRESS_TABLE_PREFIX') ?: 'wp_';

if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
