<?php

// 4 ms of CPU time, whatever else the machine does, and 40 ms of waiting.
function cpu_us(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

$until = cpu_us() + 4000;
while (cpu_us() < $until) {
    continue;
}
usleep(40000);
echo "done\n";
