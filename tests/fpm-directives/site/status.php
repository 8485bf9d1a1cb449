<?php
// Answers with the status, headers and length that it is asked for.
http_response_code((int) ($_GET['status'] ?? 200));
foreach ($_GET['header'] ?? [] as $line) {
    header($line, false);
}
echo str_repeat('x', (int) ($_GET['length'] ?? 3)), "\n";
