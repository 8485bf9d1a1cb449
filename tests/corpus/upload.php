<?php
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="title"\r\n\r\nA picture\r\n
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename="C:\\folder\\a \xc3\xa9.txt"\r\nContent-Type: text/plain\r\n\r\nhello\r\nthere\r\n
// body: --xyz--\r\n
// expect: "sent": "hello
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary="xyz"
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\nContent-Type: application/octet-stream\r\n\r\n
// fill: 150000 0123456789
// body: \r\n--xyz--\r\n
// expect: "size": 1500000
require 'dump.inc';
$file = $_FILES['file'];
$sent = file_get_contents($file['tmp_name']);
$temporary = $file['tmp_name'];
$file['tmp_name'] = preg_replace('/php\w{6,}$/', 'phpXXXXXX', $temporary);
dump(['file' => $file, 'post' => $_POST, 'sent' => substr($sent, 0, 100), 'hash' => md5($sent),
    'is_uploaded' => is_uploaded_file($temporary), 'mode' => decoct(fileperms($temporary) & 0777),
    'moved' => move_uploaded_file($temporary, "$temporary.moved") && unlink("$temporary.moved")]);
