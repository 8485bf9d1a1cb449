<?php
// request: GET {self}
// expect: text
// request: GET {self}?type=text/css
// expect: text
// request: GET {self}?type=image/png
// expect: text
// request: GET {self}?type=text/html;charset=utf-16
// expect: text
if (isset($_GET['type'])) {
    header('Content-Type: ' . $_GET['type']);
}
echo 'text';
