<?php
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n
// fill: 300000 0123456789
// body: \r\n--xyz--\r\n
// expect: UPLOAD_ERR_INI_SIZE
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="MAX_FILE_SIZE"\r\n\r\n10\r\n
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\nmore than ten bytes\r\n--xyz--\r\n
// expect: UPLOAD_ERR_FORM_SIZE
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\nnever ended
// expect: UPLOAD_ERR_PARTIAL
// request: POST {self}
// header: Content-Type: multipart/form-data; boundary=xyz
// body: --xyz\r\nContent-Disposition: form-data; name="file"; filename=""\r\n\r\n\r\n--xyz--\r\n
// expect: UPLOAD_ERR_NO_FILE
require 'dump.inc';
$names = array_flip(array_filter(get_defined_constants(), fn ($name) => str_starts_with($name, 'UPLOAD_ERR_'), ARRAY_FILTER_USE_KEY));
dump(['error' => $names[$_FILES['file']['error']], 'size' => $_FILES['file']['size'], 'name' => $_FILES['file']['name']]);
