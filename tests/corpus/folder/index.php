<?php
// request: GET /folder/
// expect: index of a folder
// request: GET /folder/?a=b
// expect: index of a folder
// request: GET {self}
// expect: index of a folder
echo 'index of a folder ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['PHP_SELF'], ' ', $_SERVER['QUERY_STRING'];
