<?php
// Shows what it is asked for, as JSON: ?show=env:NAME,ini:NAME,…
header('Content-Type: application/json');
$shown = [];
foreach (explode(',', $_GET['show'] ?? '') as $what) {
    [$kind, $name] = explode(':', $what, 2) + [1 => ''];
    $shown[$what] = match ($kind) {
        'env' => getenv($name),
        'environment' => getenv(),
        'ini' => [ini_get($name), ini_get_all(null, true)[$name]['access'] ?? null],
        'set' => [ini_set($name, '77'), ini_get($name)],
        'server' => $_SERVER[$name] ?? null,
        'ids' => [posix_getuid(), posix_geteuid(), posix_getgid(), posix_getegid(), posix_getgroups()],
        'limits' => posix_getrlimit(),
        'umask' => umask(),
        'nice' => explode(' ', explode(') ', file_get_contents('/proc/self/stat'))[1])[16],
        'dumpable' => fileowner('/proc/self/maps') === posix_geteuid(),
        'exists' => file_exists($name),
        'post' => $_POST,
        'input' => file_get_contents('php://input'),
        'sapi' => PHP_SAPI,
        'function' => function_exists($name),
        default => null,
    };
}
// Before the script runs PHP changes to its folder, and back afterwards.
register_shutdown_function(function () use ($shown) {
    if (isset($_GET['cwd'])) {
        $shown['cwd'] = getcwd();
    }
    echo json_encode($shown, JSON_PRETTY_PRINT), "\n";
});
