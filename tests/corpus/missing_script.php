<?php
// request: GET /no_such_script.php
// status: any
// request: GET /no_such_script.php/with/path
// status: any
// request: GET /folder/no_such_script.php
// status: any
