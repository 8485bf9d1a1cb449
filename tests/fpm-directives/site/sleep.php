<?php
// Sleeps below a function of its own, for slow logs.
function nap(int $ms): void
{
    usleep($ms * 1000);
}
nap((int) ($_GET['ms'] ?? 100));
echo "slept\n";
