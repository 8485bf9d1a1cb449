<?php
// The origin of http-cache-tests: its server/*.mjs, in PHP. A test hands over what is to be answered
// (PUT /config/ID), asks for it (/test/ID), and sees what has arrived here (/state/ID).

declare(strict_types=1);

const DATES = ['date', 'expires', 'last-modified', 'if-modified-since', 'if-unmodified-since'];
const LOCATIONS = ['location', 'content-location'];
const WITHOUT_BODY = [204, 304];

// Nothing of PHP's own in the answers.
ini_set('default_charset', '');
header_remove('X-Powered-By');

function refuse(int $status, string $why): never
{
    http_response_code($status);
    header('Content-Type: text/plain');
    exit("$why\n");
}

/** @return array{0: string, 1: mixed} a header field with the values that are made up here */
function fixed(array $field, array $own, array $config): array
{
    $name = strtolower($field[0]);
    if (in_array($name, DATES, true) && is_int($field[1])) {
        $is_old = in_array($name, $config['rfc850date'] ?? [], true);
        $at = intdiv($own['now'], 1000) + $field[1];
        $field[1] = gmdate($is_old ? 'l, d-M-y H:i:s' : 'D, d M Y H:i:s', $at) . ' GMT';
    }
    if (in_array($name, LOCATIONS, true) && ($config['magic_locations'] ?? false)) {
        $field[1] = $own['url'] . (empty($field[1]) ? '' : "/$field[1]");
    }
    return $field;
}

/** The last value of a field in a list of them. */
function value(array $fields, string $name): mixed
{
    $values = array_filter($fields, fn ($field) => strcasecmp($field[0], $name) === 0);
    return $values === [] ? null : end($values)[1];
}

/** What a request is answered with that is to validate what its client has. */
function validated(?array $before, array $request): int
{
    foreach (['Last-Modified' => 'if-modified-since', 'ETag' => 'if-none-match'] as $name => $asked) {
        $had = value($before['response_headers'] ?? [], $name);
        if ($had && ($request[$asked] ?? null) === $had) {
            return 304;
        }
    }
    return 999;
}

/** Says the head of an answer; returns its status. */
function answer(array &$test, array $request): int
{
    $client_count = (int) ($request['req-num'] ?? 0);
    $count = count($test['state']) + 1;
    $number = $client_count ?: $count;
    $config = &$test['requests'][$number - 1];
    if ($config === null) {
        refuse(409, "there is no request $number");
    }
    $own = ['now' => (int) (microtime(true) * 1000), 'url' => $_SERVER['REQUEST_URI']];
    $status = $config['response_status'][0] ?? 200;
    if (str_ends_with($config['expected_type'] ?? '', 'validated')) {
        $status = validated($test['requests'][$number - 2] ?? null, $request);
    }
    $sent = [
        'server-base-url' => [$own['url']],
        'server-request-count' => [(string) $count],
        'client-request-count' => [(string) $client_count],
        'server-now' => [(string) $own['now']],
    ];
    $names = ['server-base-url' => 'Server-Base-Url', 'server-request-count' => 'Server-Request-Count',
        'client-request-count' => 'Client-Request-Count', 'server-now' => 'Server-Now'];
    $saved = [];
    foreach ($config['response_headers'] ?? [] as $at => $field) {
        // What is made up stays: the next request validates what this one was answered with.
        $field = $config['response_headers'][$at] = fixed($field, $own, $config);
        $key = strtolower($field[0]);
        $names[$key] = $field[0];
        $sent[$key][] = (string) $field[1];
        if (count($field) < 3 || $field[2] === true) {
            $saved[$field[0]] = count($sent[$key]) > 1 ? $sent[$key] : $sent[$key][0];
        }
    }
    $names += ['content-type' => 'Content-Type'];
    $sent += ['content-type' => ['text/plain']];
    $test['state'][] = [
        'request_num' => $client_count,
        'request_method' => $_SERVER['REQUEST_METHOD'],
        'request_headers' => $request,
        'response_headers' => array_map(null, array_keys($saved), array_values($saved)),
    ];
    $names['request-numbers'] = 'Request-Numbers';
    $sent['request-numbers'] = [implode(' ', array_column($test['state'], 'request_num'))];
    foreach ($sent as $key => $values) {
        foreach ($values as $value) {
            header("$names[$key]: $value", false);
        }
    }
    // PHP's own way of saying it is silent about 200, which with a Location means a redirect, and takes
    // the Content-Type off a 304. It is last, since some fields set a status.
    header("Status: $status");
    http_response_code(200);
    return $status;
}

$segments = explode('/', parse_url("http://a$_SERVER[REQUEST_URI]", PHP_URL_PATH));
[, $what, $id] = $segments + ['', '', ''];
if (!preg_match('/^[0-9a-f-]{36}$/D', $id)) {
    refuse(404, 'there is no such test');
}
$file = fopen(__DIR__ . "/stash/$id", 'c+');
flock($file, LOCK_EX);
$test = json_decode(stream_get_contents($file) ?: 'null', true);
$keep = function (array $test) use ($file): void {
    rewind($file);
    ftruncate($file, 0);
    fwrite($file, json_encode($test, JSON_THROW_ON_ERROR));
    fflush($file);
    flock($file, LOCK_UN);
};

if ($what === 'config' && $_SERVER['REQUEST_METHOD'] === 'PUT' && $test === null) {
    $requests = json_decode(file_get_contents('php://input'), true, 64, JSON_THROW_ON_ERROR);
    $keep(['requests' => $requests, 'state' => []]);
    http_response_code(201);
    exit('OK');
}
if ($test === null) {
    refuse(409, 'the test has not been handed over');
}
if ($what === 'state') {
    header('Content-Type: text/plain');
    exit(json_encode($test['state'], JSON_THROW_ON_ERROR));
}
$status = answer($test, array_change_key_case(getallheaders()));
$keep($test);
$number = (int) ($_SERVER['HTTP_REQ_NUM'] ?? 0) ?: count($test['state']);
$config = $test['requests'][$number - 1];
if ($config['disconnect'] ?? false) {
    // The nearest that a script has to closing the connection.
    posix_kill(getmypid(), 9);
}
if (!in_array($status, WITHOUT_BODY, true)) {
    // Over HTTP an answer has no more bytes than it announces.
    $length = value($config['response_headers'] ?? [], 'Content-Length');
    $body = $config['response_body'] ?? $id;
    echo $length === null ? $body : substr($body, 0, (int) $length);
}
