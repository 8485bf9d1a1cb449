<?php
// request: GET {self}
// expect: prepended 7M
echo ini_get('upload_max_filesize'), ' ', ini_get('memory_limit'), ' ', ini_get('user_agent');
