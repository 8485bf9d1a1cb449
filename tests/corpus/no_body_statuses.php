<?php
// request: GET {self}?code=204
// status: 204
// request: GET {self}?code=304
// status: 304
header('X-Kept: yes');
http_response_code((int) $_GET['code']);
