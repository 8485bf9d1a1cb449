<?php
// request: GET {self}
// status: 302
// request: GET {self}?code=301
// status: 301
// request: GET {self}?code=201
// status: 201
// request: POST {self}?code=303
// status: 303
// request: GET {self}?to=/relative?a=b
// status: 302
header('Location: ' . ($_GET['to'] ?? 'http://elsewhere.test/path'), true, (int) ($_GET['code'] ?? 0));
