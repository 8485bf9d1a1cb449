<?php
// request: GET /no_such_script.php
// status: 404
// request: GET /no_such_script.php/with/path
// status: 404
// request: GET /folder/no_such_script.php
// status: 404
