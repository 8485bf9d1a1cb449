<?php
// request: POST {self}?k=get&g=1
// header: Content-Type: application/x-www-form-urlencoded
// header: Cookie: k=cookie; c=1
// body: k=post&p=1
// expect: "k": "post"
require 'dump.inc';
dump(['request' => $_REQUEST, 'k' => $_REQUEST['k'], 'order' => ini_get('request_order'), 'variables' => ini_get('variables_order')]);
