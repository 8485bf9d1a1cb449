<?php

// ?ms=… milliseconds of CPU time, whatever else the machine does, and ?wait=… of waiting.
function cpu_us(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

$until = cpu_us() + 1000 * (int) $_GET['ms'];
while (cpu_us() < $until) {
    continue;
}
usleep(1000 * (int) ($_GET['wait'] ?? 0));
echo "done\n";
