<?php

declare(strict_types=1);

/**
 * The guestbook's front controller: every path that is no file under public/ comes here.
 */

require __DIR__ . '/../src/http.php';
require __DIR__ . '/../src/store.php';
require __DIR__ . '/../src/pictures.php';
require __DIR__ . '/../src/pages.php';

// PHP's own server, when given this file as its router, asks it about files too.
if (
    PHP_SAPI === 'cli-server'
    && request_path() !== '/index.php'
    && is_file(__DIR__ . request_path())
) {
    return false;
}

try {
    dispatch(request_path());
} catch (DataUnavailable $problem) {
    if (str_starts_with(request_path(), '/api/')) {
        send_json(503, ['error' => $problem->getMessage()]);
    } else {
        send_page(503, 'The guestbook cannot open its data', 'trouble', ['problem' => $problem]);
    }
}
