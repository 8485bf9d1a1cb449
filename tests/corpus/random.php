<?php
// request: GET {self}
// expect: fresh
// request: GET {self}
// expect: fresh
$file = sys_get_temp_dir() . '/corpus-random-' . getmypid();
$now = mt_rand() . ' ' . random_int(0, PHP_INT_MAX) . ' ' . uniqid('', true);
$before = is_file($file) ? file_get_contents($file) : '';
is_file($file) ? unlink($file) : file_put_contents($file, $now);
echo $before === $now ? 'repeated' : 'fresh';
