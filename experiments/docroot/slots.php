<?php

// Asks a database that is slow for 50 ms, after 2 ms of processor time; with ?locks=1 only ten such
// questions go on at a time, and the others wait inside the database.
mysqli_report(MYSQLI_REPORT_OFF);
$database = mysqli_init();
if (!@$database->real_connect(null, 'root', '', '', 0, getenv('DATABASE_SOCKET'))) {
    http_response_code(500);
    exit("no connection\n");
}
$until = hrtime(true) + 2000000;
while (hrtime(true) < $until) {
    continue;
}
$slot = isset($_GET['locks']) ? "GET_LOCK(CONCAT('slot', CONNECTION_ID() % 10), 30)" : '1';
$taken = $database->query("SELECT $slot");
$answer = $taken === false ? false : $database->query('SELECT SLEEP(0.05)');
if ($answer === false) {
    http_response_code(500);
    exit("no answer\n");
}
echo "done\n";
