<?php

// Works for ?ms=… milliseconds of processor time at least.
$until = hrtime(true) + 1000000 * (int) $_GET['ms'];
while (hrtime(true) < $until) {
    continue;
}
echo "done\n";
