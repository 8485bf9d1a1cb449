<?php
// request: GET {self}
// expect: prepended 5M
// request: GET /user_ini/settings.php
// expect: prepended 7M
// request: GET /php_admin_value.php
// expect: "upload_max_filesize":"2M"
echo ini_get('upload_max_filesize'), ' ', ini_get('memory_limit'), ' ', ini_get('user_agent');
