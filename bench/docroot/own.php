<?php

// Computes ?ms=… milliseconds of processor time. Says which process it is, and what that had used at the
// beginning and at the end, in microseconds.
function used_us(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

$began = used_us();
$until = $began + 1000 * (int) $_GET['ms'];
while (($now = used_us()) < $until) {
    continue;
}
echo getmypid(), ' ', $began, ' ', $now, "\n";
