<?php
// request: POST {self}
// header: Content-Type: application/octet-stream
// fill: 300000 0123456789
// expect: answered without reading
// request: GET {self}
// expect: answered without reading
ini_set('enable_post_data_reading', '0');
echo 'answered without reading';
