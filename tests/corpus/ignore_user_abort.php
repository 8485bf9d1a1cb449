<?php
// request: GET {self}
// expect: {"before":0,"previous":0,"after":1,"aborted":0,"status":0}
// request: GET {self}
// expect: {"before":0
echo json_encode(['before' => ignore_user_abort(), 'previous' => ignore_user_abort(true), 'after' => ignore_user_abort(),
    'aborted' => connection_aborted(), 'status' => connection_status()]);
