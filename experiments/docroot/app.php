<?php

// A page of an application: ?cpu=… ms of processor time and ?wait=… ms for a database elsewhere, in a
// worker that keeps ?hold=… MB from its first request on, as one does that has seen all of an application.
if (isset($_GET['hold'])) {
    $c = FFI::cdef(
        'void *malloc(size_t size); void *memset(void *at, int byte, size_t size);
        char *getenv(const char *name); int setenv(const char *name, const char *value, int anew);'
    );
    if ($c->getenv('HELD') === null) {
        $size = 1048576 * (int) $_GET['hold'];
        $c->memset($c->malloc($size), 1, $size);
        $c->setenv('HELD', 'yes', 1);
    }
}
$began = getrusage();
$used = static function () use ($began): float {
    $now = getrusage();
    return ($now['ru_utime.tv_sec'] + $now['ru_stime.tv_sec'] - $began['ru_utime.tv_sec']
        - $began['ru_stime.tv_sec']) * 1e3 + ($now['ru_utime.tv_usec'] + $now['ru_stime.tv_usec']
        - $began['ru_utime.tv_usec'] - $began['ru_stime.tv_usec']) / 1e3;
};
while ($used() < (int) ($_GET['cpu'] ?? 0)) {
    continue;
}
usleep(1000 * (int) ($_GET['wait'] ?? 0));
echo "done\n";
