<?php
// request: GET {self}
// expect: body
header_register_callback(function () {
    header('X-From-Callback: yes');
    header_remove('X-Powered-By');
});
echo 'body';
