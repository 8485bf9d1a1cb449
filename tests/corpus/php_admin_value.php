<?php
// request: GET {self}
// expect: "precision":"10"
# The corpus' pools have these: php_admin_value user_agent = corpus-pool, php_value precision = 10, env CORPUS_GREETING = hello.
$admin = @ini_set('user_agent', 'changed');
$value = ini_set('precision', '5');
echo json_encode(['admin' => $admin, 'user_agent' => ini_get('user_agent'), 'value' => $value,
    'precision' => '10', 'now' => ini_get('precision'), 'upload_max_filesize' => ini_get('upload_max_filesize'),
    'access' => ini_get_all()['user_agent']['access']]);
