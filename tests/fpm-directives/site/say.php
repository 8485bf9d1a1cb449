<?php
// Writes to what a worker can write to.
fwrite(fopen('php://stderr', 'w'), "to stderr\n");
fwrite(fopen('php://stdout', 'w'), "to stdout\n");
error_log('to the log');
echo "said\n";
