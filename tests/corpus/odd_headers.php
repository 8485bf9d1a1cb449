<?php
// request: GET {self}
// request: GET {self}?type=twice
// request: GET {self}?type=empty
switch ($_GET['type'] ?? '') {
    case 'twice':
        header('Content-Type: text/a');
        header('Content-Type: text/b', false);
        break;
    case 'empty':
        header('Content-Type:');
        break;
    default:
        header('X-Before: 1');
        header("X-Gr\xc3\xb6\xc3\x9fe: 1");
        header('noColon');
        header('X-After: 1');
}
echo 'page';
