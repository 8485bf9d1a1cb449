<?php
// request: GET {self}
// status: 307
// expect: moving
http_response_code(307);
header('Location: /there');
echo 'moving';
