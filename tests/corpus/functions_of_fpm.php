<?php
// request: GET {self}
# Applications choose by the functions that exist.
$names = ['apache_response_headers', 'apache_request_headers', 'getallheaders', 'chroot', 'fastcgi_finish_request',
    'fpm_get_status', 'frankenphp_handle_request', 'frankenphp_log', 'maitred_snapshot', 'cli_set_process_title'];
foreach ($names as $name) {
    echo $name, ' ', (int) function_exists($name), "\n";
}
