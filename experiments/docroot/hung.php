<?php

// Asks a database that takes connections and never says a word.
mysqli_report(MYSQLI_REPORT_OFF);
$connection = mysqli_init();
$connection->options(MYSQLI_OPT_READ_TIMEOUT, 60);
@$connection->real_connect('127.0.0.1', 'root', '', '', (int) $_GET['port']);
echo "done\n";
