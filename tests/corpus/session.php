<?php
// request: GET {self}
// ignore-header: Set-Cookie
// expect: visits 1
// request: GET {self}
// cookies: keep
// expect: visits 2
// request: GET {self}?regenerate=1
// cookies: keep
// ignore-header: Set-Cookie
// expect: visits 3
session_name('CORPUS');
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
if (isset($_GET['regenerate'])) {
    session_regenerate_id(true);
}
echo 'visits ', $_SESSION['visits'], ' ', session_status(), ' ', strlen(session_id());
